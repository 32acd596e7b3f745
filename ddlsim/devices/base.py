"""The contract of devices, seconds per local step of every node, fixed or over time; and devices of recorded traces.

Step times are either seconds, or factors of a base that follows from the model: see `Devices.scales`.

Speeds that change in simulated time come from ddlsim's CSV format: time_s,node,step_time_s. A device works at one rate,
1 / step_time_s steps per second, until its next row; a training that runs across a change does its first steps at the
old rate and the rest at the new one.

FedScale's file (Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
2022, `client_device_capacity`) is a pickle: device -> {computation: ms, communication: kbit/s}, of 500,000 devices.
FedScale takes 3 x computation for a training step on one sample (forward, and twice as long backward), and the same
rate in both directions; so does ddlsim. FedScale uses its single figure of computation for every model: `time_factor`
adapts it to another model.

The file is read without running any code in it. A node draws its phone once, the same for device and links.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt, Lt
from pydantic import Strict
from typing_extensions import TypedDict

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.input_files import NODE, Column, read_devices, read_rows, require_nodes, state_of
from ddlsim.foundation.registry import Part, Problem
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import MAX_STEP_S, Count

FORWARD_SHARE = 1 / 3
"""Cost of a forward pass as a share of a training step, if a model's operations are not counted (forward, gradient by
inputs, gradient by weights).
"""
FLOPS_PER_VALUE = 6
"""Operations of a training step per trained value and sample if they cannot be counted: two forward, four backward."""


@dataclass(frozen=True)
class StepWork:
    """Floating-point operations of one architecture on one mini-batch of training.

    Args:
        forward_flops: operations of a forward pass.
        training_flops: operations of a training step, including the forward pass.
        counted: whether operations were counted; false: FLOPS_PER_VALUE for every value and sample.
        parameters: number of parameters of the architecture.
        tokens: tokens of the mini-batch; 0 if samples are not sequences of tokens.
    """

    forward_flops: float
    training_flops: float
    counted: bool = True
    parameters: int = 0
    tokens: int = 0

    @classmethod
    def of_size(cls, size: int, samples: int) -> "StepWork":
        """Return the estimate by the number of parameters alone: 6 operations for each parameter and sample."""
        training = float(FLOPS_PER_VALUE * max(1, size) * samples)
        return cls(training / 3, training, counted=False)

    def times(self, factor: float) -> "StepWork":
        """Return the work on a mini-batch that is larger by a factor."""
        if factor == 1:
            return self
        forward, training = factor * self.forward_flops, factor * self.training_flops
        return replace(self, forward_flops=forward, training_flops=training, tokens=round(factor * self.tokens))

    @property
    def forward_share(self) -> float:
        """Cost of a forward pass as a share of a training step."""
        return self.forward_flops / self.training_flops


@dataclass(frozen=True)
class StepTimeTrace:
    """Seconds per step of every node over time.

    Args:
        times_s: per node the times from which its values apply, ascending, the first one 0.
        step_times_s: per node the same number of values.
    """

    times_s: tuple[tuple[float, ...], ...]
    step_times_s: tuple[tuple[float, ...], ...]

    def duration_s(self, node: int, steps: float, start_s: float) -> float:
        """Return the seconds that `steps` steps (whole or not) take a node that starts them at `start_s`."""
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
    """Base class of every entry of DEVICES."""

    @property
    def measures(self) -> bool:
        """Whether a run measures step times on its own machine when it starts. Default: false."""
        return False

    @property
    def scales(self) -> bool:
        """Whether `draw` returns factors of `base_step_s` instead of seconds. Default: false."""
        return False

    def base_step_s(self, architecture: str, work: StepWork) -> float:
        """Return seconds per local step of an architecture, which `draw`'s factors multiply; called if `scales` is
        true.

        Raises:
            ScenarioError: if they are not known.
        """
        raise NotImplementedError

    @property
    def source(self) -> tuple[str | None, str]:
        """The device's name (None: the part's own) and the source of step times: given, estimated or measured."""
        return None, "given"

    @property
    def watts(self) -> float | None:
        """Power of a node's device while it computes, W, unless the section `energy` sets it. Default: unknown."""
        return None

    counts_tokens: ClassVar[bool] = False
    """Whether runs report compute utilization, tokens per second and bandwidth."""

    def step_work(self, architecture: str, work: StepWork) -> StepWork:
        """Return the work of a local step on these devices, from that on a mini-batch. Default: the same."""
        return work

    @abstractmethod
    def draw(self, num_nodes: int, seed: int) -> np.ndarray | StepTimeTrace:
        """Draw seconds per local step, float64 [num_nodes], or a StepTimeTrace for changing speeds.

        Raises:
            ScenarioError: if they do not fit this many nodes.
        """

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the problems found by drawing. Override if drawing is slow and cannot fail."""
        self.draw(num_nodes, seed)
        return iter(())


@dataclass(frozen=True, kw_only=True)
class Trace(Devices):
    """Every node's speed over time, from a file.

    Args:
        path: CSV with the columns time_s,node,step_time_s: seconds per local step from that time on, the last value
            permanently; each node needs a row at time 0; nodes that the run does not have are skipped. Relative to the
            folder that the command is started in.
    """

    path: str

    def draw(self, num_nodes: int, seed: int) -> StepTimeTrace:
        """Return the trace of all nodes.

        Raises:
            ScenarioError: the file cannot be read, has wrong rows or a node twice at one time, or lacks a node at 0.
        """
        found: list[dict[float, float]] = [{} for _ in range(num_nodes)]
        columns = {"time_s": Column(), "node": NODE, "step_time_s": Column(below=MAX_STEP_S)}
        for line, row in read_rows(self.path, columns):
            if row["node"] >= num_nodes:
                continue
            changes = found[int(row["node"])]
            if row["time_s"] in changes:
                got = f"node {row['node']} at {row['time_s']:g} s again"
                raise ScenarioError(f"{self.path}:{line}: expected one row per node and time, got {got}")
            changes[row["time_s"]] = row["step_time_s"]
        from_start = [node for node, changes in enumerate(found) if 0 in changes]
        require_nodes(self.path, from_start, num_nodes, "a row at time 0")
        times_s = [sorted(changes) for changes in found]
        step_times_s = (tuple(changes[time] for time in times) for changes, times in zip(found, times_s, strict=True))
        return StepTimeTrace(tuple(map(tuple, times_s)), tuple(step_times_s))


TRAINING_OVER_INFERENCE = 3
"""Duration of a training step as a multiple of a forward pass."""


@dataclass(frozen=True, kw_only=True)
class FedScale(Devices):
    """Nodes compute as phones of FedScale's capacity trace; each node draws its phone.

    Args:
        path: FedScale's pickle; read without running any code in it. Relative to the folder that the command is started
            in.
        samples_per_step: samples of a local step, each of which takes the phone's time: training.batch_size.
        time_factor: duration of this model as a multiple of FedScale's.
    """

    path: str
    samples_per_step: Count
    time_factor: Annotated[float, Gt(0)] = 1.0

    def draw(self, num_nodes: int, seed: int) -> np.ndarray:
        """Draw seconds per step, float64 [num_nodes].

        Raises:
            ScenarioError: the file cannot be read, or does not have FedScale's format; a step is too long.
        """
        ms = drawn_phones(self.path, num_nodes, seed)[0]
        found = TRAINING_OVER_INFERENCE * ms / 1e3 * self.samples_per_step * self.time_factor
        if found.max(initial=0.0) >= MAX_STEP_S:
            raise ScenarioError(f"devices.time_factor: expected steps below {MAX_STEP_S:g} s, got {found.max():g} s")
        return found


class Capacity(TypedDict):
    """A phone's milliseconds of computation and kbit/s of communication."""

    computation: Annotated[float, Strict(), Gt(0), Lt(1e12)]
    communication: Annotated[float, Strict(), Gt(0), Lt(1e12)]


def drawn_phones(path: str, num_nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the milliseconds of computation and kbit/s of communication of each node's phone, float64 [num_nodes]
    each.
    """
    table = _read_capacities(path, state_of(path))
    rows = [int(stream(seed, "fedscale phone", node).integers(len(table))) for node in range(num_nodes)]
    return table[rows, 0], table[rows, 1]


@lru_cache(maxsize=1)
def _read_capacities(path: str, state: tuple[int, int, int] | None) -> np.ndarray:
    """Read computation (ms) and communication (kbit/s) of every device, float64 [devices, 2], in the file's order.

    They are cached while the file is unchanged.

    Raises:
        ScenarioError: it cannot be read, does not have FedScale's format, or contains more than data.
    """
    devices = read_devices(path, "expected FedScale's pickle of capacities", Capacity)
    return np.array([[phone["computation"], phone["communication"]] for phone in devices.values()], dtype=float)
