"""What a kind of devices offers: seconds per local step of every node, fixed or over time.

Step times are either seconds, or factors of a base that follows from the model: see `Devices.scales`.

Devices whose speed changes in simulated time, from a CSV of our own: time_s,node,step_time_s.

A device works at one rate, 1 / step_time_s steps per second, until its next row; a training that runs across a change
does its first steps at the old rate and the rest at the new one.

Phones as FedScale's capacity trace has them: how long they compute, how fast their link is.

FedScale's file (Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
2022, `client_device_capacity`) is a pickle: device -> {computation: ms, communication: kbit/s}, of 500,000 devices.
FedScale takes 3 x computation for a training step on one sample (forward, and twice as long backward), and the same
rate in both directions; so do we. The one figure of computation holds for every model there: `time_factor` fits it to
another one.

The file is read without running any code in it. A node draws its phone once, the same for device and links.
"""

import reprlib
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt

from ddlsim.foundation.csv_rows import Column, read_rows, refuse
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.file_states import state_of
from ddlsim.foundation.part import Part, Problem
from ddlsim.foundation.pickled_data import read_data_only
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import MAX_STEP_S, Count

FORWARD_SHARE = 1 / 3
"""Where a model's operations are not counted, a forward pass costs a third of a training step (forward, gradient by
inputs, gradient by weights).
"""
FLOPS_PER_VALUE = 6
"""Operations of a training step per trained value and sample where they cannot be counted: two forward, four back."""


@dataclass(frozen=True)
class StepWork:
    """Floating-point operations of one architecture on one mini-batch of training.

    Args:
        forward_flops: of a forward pass.
        training_flops: of a training step, the forward pass included.
        counted: false: FLOPS_PER_VALUE for every value and sample instead of a count.
    """

    forward_flops: float
    training_flops: float
    counted: bool = True

    @classmethod
    def of_size(cls, size: int, samples: int) -> "StepWork":
        """The estimate for a model of which only the number of parameters counts: 6 operations for each and sample."""
        training = float(FLOPS_PER_VALUE * max(1, size) * samples)
        return cls(training / 3, training, counted=False)

    @property
    def forward_share(self) -> float:
        """What a forward pass costs of a training step."""
        return self.forward_flops / self.training_flops


@dataclass(frozen=True)
class StepTimeTrace:
    """Seconds per step of every node over time.

    Args:
        times_s: per node the times from which its values hold, ascending, the first one 0.
        step_times_s: per node as many values.
    """

    times_s: tuple[tuple[float, ...], ...]
    step_times_s: tuple[tuple[float, ...], ...]

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.times_s)

    def duration_s(self, node: int, steps: float, start_s: float) -> float:
        """How long `steps` steps (whole or not) take a node that begins with them at `start_s`."""
        times_s, step_times_s = self.times_s[node], self.step_times_s[node]
        at = bisect_right(times_s, start_s) - 1
        now_s = start_s
        for i in range(at, len(times_s) - 1):
            needed_s = steps * step_times_s[i]
            if now_s + needed_s <= times_s[i + 1]:
                return now_s + needed_s - start_s
            steps -= (times_s[i + 1] - now_s) / step_times_s[i]
            now_s = times_s[i + 1]
        return now_s + steps * step_times_s[-1] - start_s


class Devices(Part, ABC):
    """What every entry of DEVICES is."""

    @property
    def measures(self) -> bool:
        """Whether a run measures step times on its own machine when it starts. Default: no."""
        return False

    @property
    def scales(self) -> bool:
        """Whether `draw` returns factors of `base_step_s` instead of seconds. Default: seconds."""
        return False

    def base_step_s(self, architecture: str, work: StepWork) -> float:
        """Seconds per local step of an architecture, which `draw`'s factors multiply; called where `scales` is true.

        Raises:
            ScenarioError: if they are not known.
        """
        raise NotImplementedError

    @property
    def source(self) -> tuple[str | None, str]:
        """The device's name (None: the part's own) and where step times come from: given, estimated or measured."""
        return None, "given"

    @abstractmethod
    def draw(self, num_nodes: int, seed: int) -> np.ndarray | StepTimeTrace:
        """Seconds per local step, float64 [num_nodes], or what changes over time (see StepTimeTrace).

        Raises:
            ScenarioError: if they do not fit this many nodes.
        """

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """See Part; tries to draw. Override where that takes long and can refuse nothing."""
        self.draw(num_nodes, seed)
        return iter(())


@dataclass(frozen=True, kw_only=True)
class Trace(Devices):
    """Every node's speed over time is given in a file.

    Args:
        path: CSV with the columns time_s,node,step_time_s: seconds per local step from that time on, the last value for
            ever; each node needs a row at time 0; nodes that the run does not have are skipped. Relative to the folder
            that the command is started in.
    """

    path: str

    def draw(self, num_nodes: int, seed: int) -> StepTimeTrace:
        """The trace of all nodes.

        Raises:
            ScenarioError: the file cannot be read, has wrong rows or a node twice at one time, or lacks a node at 0.
        """
        found: list[dict[float, float]] = [{} for _ in range(num_nodes)]
        columns = {"time_s": Column(), "node": Column(whole=True, below=2**31), "step_time_s": Column(below=MAX_STEP_S)}
        for line, row in read_rows(self.path, columns):
            if row["node"] >= num_nodes:
                continue
            changes = found[int(row["node"])]
            if row["time_s"] in changes:
                raise ScenarioError(
                    f"{self.path}:{line}: expected one row per node and time, got node {row['node']} at "
                    f"{row['time_s']:g} s again"
                )
            changes[row["time_s"]] = row["step_time_s"]
        missing = next((node for node, changes in enumerate(found) if 0 not in changes), None)
        if missing is not None:
            raise ScenarioError(
                f"{self.path}: expected a row at time 0 for each of {num_nodes} nodes, got none for node {missing}"
            )
        times_s = [sorted(changes) for changes in found]
        return StepTimeTrace(
            tuple(tuple(times) for times in times_s),
            tuple(tuple(changes[time] for time in times) for changes, times in zip(found, times_s, strict=True)),
        )


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
