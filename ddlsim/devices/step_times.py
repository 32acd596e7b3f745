"""Computing time of simulated devices: seconds per local SGD step, per node, as set by a scenario."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Lt

from ddlsim.devices.base import Devices, StepWork
from ddlsim.devices.model_work import PRESETS, Device
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.input_files import Column, rows_by_node
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import MAX_STEP_S


@dataclass(frozen=True, kw_only=True)
class Constant(Devices):
    """Every node computes at the same speed.

    Args:
        step_time_s: seconds per local step.
    """

    step_time_s: Annotated[float, Ge(0), Lt(MAX_STEP_S)] = 0.05

    def draw(self, num_nodes: int, seed: int) -> np.ndarray:
        """Return seconds per step, float64 [num_nodes]."""
        return np.full(num_nodes, self.step_time_s)


@dataclass(frozen=True, kw_only=True)
class PerNode(Devices):
    """Every node's speed, as a list.

    Args:
        step_times_s: seconds per local step, one per node.
    """

    step_times_s: tuple[Annotated[float, Ge(0), Lt(MAX_STEP_S)], ...]

    def draw(self, num_nodes: int, seed: int) -> np.ndarray:
        if len(self.step_times_s) != num_nodes:
            raise ScenarioError(
                f"devices.step_times_s: expected {num_nodes} values, one per node, got {len(self.step_times_s)}"
            )
        return np.array(self.step_times_s, dtype=float)


@dataclass(frozen=True, kw_only=True)
class LogNormal(Devices):
    """Speeds differ from node to node by a log-normal factor.

    Args:
        median_step_time_s: median seconds per local step; null: the model's own work on `device`, as with devices
            estimated.
        device: device of the median node; see devices estimated.
        sigma: standard deviation of the logarithm; 0.5 makes the slowest of a hundred about three times the median.
    """

    median_step_time_s: Annotated[float, Gt(0), Lt(MAX_STEP_S)] | None = None
    device: Device = "laptop_cpu"
    sigma: Annotated[float, Ge(0)] = 0.5

    @property
    def scales(self) -> bool:
        return self.median_step_time_s is None

    @property
    def source(self) -> tuple[str | None, str]:
        return (f"{self.device}, log-normal", "estimated") if self.scales else super().source

    def base_step_s(self, architecture: str, work: StepWork) -> float:
        return PRESETS[self.device].step_s(work.training_flops)

    def idle(self, rounds: int) -> Iterator[tuple[str, str]]:
        """Return the device as unused if the median is set."""
        if not self.scales:
            yield "device", "median_step_time_s is given"

    def draw(self, num_nodes: int, seed: int) -> np.ndarray:
        """Draw seconds per step, float64 [num_nodes], or factors of the base.

        Raises:
            ScenarioError: a node's step time exceeds the representable range.
        """
        factors = _normal(num_nodes, seed)
        median = 1.0 if self.median_step_time_s is None else self.median_step_time_s
        logarithms = np.log(median) + self.sigma * factors
        if max(logarithms, default=0.0) >= np.log(MAX_STEP_S):
            raise ScenarioError(
                f"devices.sigma: expected steps below {MAX_STEP_S:g} s on every node, but {self.sigma:g} makes one "
                f"of e^{max(logarithms):.0f} s. 0.5 is usual."
            )
        return median * np.exp(self.sigma * factors)


@functools.lru_cache(maxsize=1)
def _normal(num_nodes: int, seed: int) -> np.ndarray:
    """Return standard normal numbers, one of each node's own stream [N]; cached from the check of a scenario to its
    run.
    """
    return np.array([stream(seed, "device", node).normal() for node in range(num_nodes)])


@dataclass(frozen=True, kw_only=True)
class Table(Devices):
    """Every node's speed, from a file.

    Args:
        path: CSV with the columns node,step_time_s, one row per node; nodes that the run does not have are skipped.
            Relative to the folder that the command is started in.
    """

    path: str

    def draw(self, num_nodes: int, seed: int) -> np.ndarray:
        """Read seconds per step, float64 [num_nodes].

        Raises:
            ScenarioError: the file cannot be read, has wrong rows or a node twice, or lacks a node.
        """
        rows = rows_by_node(self.path, {"step_time_s": Column(below=MAX_STEP_S)}, num_nodes)
        return np.array([rows[node]["step_time_s"] for node in range(num_nodes)], dtype=float)
