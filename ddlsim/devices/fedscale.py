"""Phones as FedScale's capacity trace has them: how long they compute, how fast their link is.

FedScale's file (Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
2022, `client_device_capacity`) is a pickle: device -> {computation: ms, communication: kbit/s}, of 500,000 devices.
FedScale takes 3 x computation for a training step on one sample (forward, and twice as long backward), and the same
rate in both directions; so do we. The one figure of computation holds for every model there: `time_factor` fits it to
another one.

The file is read without running any code in it. A node draws its phone once, the same for device and links.
"""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt

from ddlsim.csv_rows import refuse
from ddlsim.devices.base import Devices
from ddlsim.errors import ScenarioError
from ddlsim.file_states import state_of
from ddlsim.pickled_data import read_data_only
from ddlsim.rng import stream
from ddlsim.units import MAX_STEP_S, Count

TRAINING_OVER_INFERENCE = 3
"""A training step takes so many times as long as a forward pass."""


@dataclass(frozen=True, kw_only=True)
class FedScale(Devices):
    """Nodes compute as phones of FedScale's capacity trace; each node draws its phone.

    Args:
        path: FedScale's pickle; read without running any code in it. Relative to the folder that the command is started
            in.
        samples_per_step: samples of a local step, of each of which a phone's time is taken: training.batch_size.
        time_factor: how many times longer this model takes than FedScale's.
    """

    path: str
    samples_per_step: Count
    time_factor: Annotated[float, Gt(0)] = 1.0

    def draw(self, num_nodes: int, seed: int) -> np.ndarray:
        """Seconds per step, float64 [num_nodes].

        Raises:
            ScenarioError: the file cannot be read, or is not what FedScale's looks like; a step is too long.
        """
        ms = drawn_phones(self.path, num_nodes, seed)[0]
        found = TRAINING_OVER_INFERENCE * ms / 1e3 * self.samples_per_step * self.time_factor
        if found.max(initial=0.0) >= MAX_STEP_S:
            raise ScenarioError(f"devices.time_factor: expected steps below {MAX_STEP_S:g} s, got {found.max():g} s")
        return found


def drawn_phones(path: str, num_nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Milliseconds of computation and kbit/s of communication of each node's phone, float64 [num_nodes] each."""
    table = _read_capacities(path, state_of(path))
    rows = [int(stream(seed, "fedscale phone", node).integers(len(table))) for node in range(num_nodes)]
    return table[rows, 0], table[rows, 1]


@lru_cache(maxsize=1)
def _read_capacities(path: str, state: tuple[int, int, int] | None) -> np.ndarray:
    """Computation (ms) and communication (kbit/s) of every device, float64 [devices, 2], in the file's order.

    They are kept while the file is in this state.

    Raises:
        ScenarioError: it cannot be read, is not what FedScale's looks like, or holds more than data.
    """
    expected = "expected FedScale's pickle of capacities"
    devices = read_data_only(path, expected)
    if not isinstance(devices, dict) or not devices:
        raise ScenarioError(f"{path}: {expected}, a dict of devices, got {reprlib.repr(devices)}")
    wrong = [name for name, phone in devices.items() if not _fits(phone)]
    refuse(
        [
            f"{path}: device {name!r}: expected computation (ms) and communication (kbit/s) above 0, got "
            f"{reprlib.repr(devices[name])}"
            for name in wrong
        ]
    )
    return np.array([[phone["computation"], phone["communication"]] for phone in devices.values()], dtype=float)


def _fits(phone: Any) -> bool:
    if not isinstance(phone, Mapping):
        return False
    values = [phone.get(key) for key in ("computation", "communication")]
    return all(isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12 for value in values)
