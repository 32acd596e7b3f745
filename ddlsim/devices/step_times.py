"""Computing time of simulated devices: seconds per local SGD step and node, set or estimated from the model.

The operations of a training step are counted once per architecture (learning/model_sizes.py). A device's effective rate
is its peak in single precision times a utilization: the share of the peak that training reaches. A step takes its
operations over this rate, and LAUNCH_S. All of this is an estimate: `ddlsim calibrate` measures a step on your device.

Peaks are of single precision (32 bit, without tensor cores). Sources:

- phone: 15 to 30 GFLOP/s on CPUs of Snapdragon 8 phones, measured by Das, Kwon, Chauhan, Mascolo, "Enabling On-Device
  Smartphone GPU based Training: Lessons Learned" (PerCom workshops 2022, arXiv:2202.10100).
- raspberry_pi_5, laptop_cpu: High-Performance Linpack in double precision, measured by Geerling
  (github.com/geerlingguy/top500-benchmark): 30.2 GFLOP/s on a Raspberry Pi 5, 104.7 on a MacBook Air with M2. Single
  precision is assumed to be twice as fast.
- rtx_4090, a100, h100: the makers' data sheets as TechPowerUp, Lockwood and HPC Tech list them: 82.6 TFLOP/s, 19.5 and
  67 (SXM).
- t4: 8.1 TFLOP/s (NVIDIA's announcement, 2018).

The utilizations are estimated: 0.15 of Linpack's rate on CPUs, 0.3 of the data sheet on GPUs.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from ddlsim.devices.base import Devices, StepWork
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.input_files import Column, rows_by_node
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import MAX_STEP_S

LAUNCH_S = 3e-4
"""Seconds of a step in which PyTorch starts operations and updates parameters, whatever the model's size. Measured on a
server core: 0.28 ms for smoke's MLP, whose operations would take a tenth of that (docs/trust.md). A slower processor
takes longer.
"""

Device = Literal["phone", "raspberry_pi_5", "laptop_cpu", "t4", "rtx_4090", "a100", "h100"]


@dataclass(frozen=True)
class Preset:
    """A device's speed.

    Args:
        peak_flops_per_s: floating-point operations per second in single precision.
        utilization: share of the peak that training reaches.
    """

    peak_flops_per_s: float
    utilization: float

    def step_s(self, flops: float) -> float:
        """Return the seconds of a training step of this number of operations."""
        return LAUNCH_S + flops / (self.peak_flops_per_s * self.utilization)


PRESETS: Mapping[str, Preset] = {
    "phone": Preset(30e9, 0.5),
    "raspberry_pi_5": Preset(2 * 30.2e9, 0.15),
    "laptop_cpu": Preset(2 * 104.7e9, 0.15),
    "t4": Preset(8.1e12, 0.3),
    "rtx_4090": Preset(82.6e12, 0.3),
    "a100": Preset(19.5e12, 0.3),
    "h100": Preset(67e12, 0.3),
}


class ModelWork(Devices):
    """Base of devices that are equal for all nodes, with a step time by the model."""

    scales: ClassVar[bool] = True

    def draw(self, num_nodes: int, seed: int) -> np.ndarray:
        return np.ones(num_nodes)


@dataclass(frozen=True, kw_only=True)
class Estimated(ModelWork):
    """Every node's step takes the model's own floating-point operations over the device's effective rate, and 0.3 ms.

    A forward pass takes the share of a step that its operations have.

    Args:
        device: device of every node. Effective rates in GFLOP/s: phone 15, raspberry_pi_5 9, laptop_cpu 31, t4 2,400,
            rtx_4090 25,000, a100 5,900, h100 20,000 (sources: ddlsim/devices/step_times.py).
    """

    device: Device = "laptop_cpu"

    @property
    def source(self) -> tuple[str | None, str]:
        return self.device, "estimated"

    def base_step_s(self, architecture: str, work: StepWork) -> float:
        return PRESETS[self.device].step_s(work.training_flops)


@dataclass(frozen=True, kw_only=True)
class Calibrated(ModelWork):
    """Every node's step takes as long as on this machine's CPU, measured when the run starts.

    The run's scenario.yaml stores the measured times, so a resumed or repeated run uses the same ones.

    Args:
        step_times_s: measured seconds per local step of each architecture; null: they are measured when the run starts.
    """

    source: ClassVar[tuple[str | None, str]] = "calibrated", "measured"
    step_times_s: dict[str, Annotated[float, Gt(0), Lt(MAX_STEP_S)]] | None = None

    @property
    def measures(self) -> bool:
        return self.step_times_s is None

    def base_step_s(self, architecture: str, work: StepWork) -> float:
        if not self.step_times_s or architecture not in self.step_times_s:
            text = f"expected a measured step time of {architecture}, got none"
            raise ScenarioError(f"devices.step_times_s: {text}. Start a run, or copy the output of `ddlsim calibrate`.")
        return self.step_times_s[architecture]


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
            text = f"expected {num_nodes} values, one per node, got {len(self.step_times_s)}"
            raise ScenarioError(f"devices.step_times_s: {text}")
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

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        """Return the device as unused if the median is set."""
        if not self.scales:
            yield "device", "median_step_time_s is given"

    def draw(self, num_nodes: int, seed: int) -> np.ndarray:
        """Draw seconds per step, float64 [num_nodes], or factors of the base.

        Raises:
            ScenarioError: a node's step time exceeds the representable range.
        """
        factors = normal_draws(num_nodes, seed)
        median = 1.0 if self.median_step_time_s is None else self.median_step_time_s
        logarithms = np.log(median) + self.sigma * factors
        if max(logarithms, default=0.0) >= np.log(MAX_STEP_S):
            text = f"expected steps below {MAX_STEP_S:g} s, got one of e^{max(logarithms):.0f} s by {self.sigma:g}"
            raise ScenarioError(f"devices.sigma: {text}. 0.5 is usual.")
        return median * np.exp(self.sigma * factors)


@functools.lru_cache(maxsize=1)
def normal_draws(num_nodes: int, seed: int) -> np.ndarray:
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
