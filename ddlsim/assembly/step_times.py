"""Seconds per local step of all nodes, from their devices and the work of their models."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.assembly.learner import step_times_drawn
from ddlsim.devices import DEVICES
from ddlsim.devices.base import StepTimeTrace
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import MAX_STEP_S

if TYPE_CHECKING:
    from ddlsim.learning.learner import Learner
    from ddlsim.learning.size_learner import SizeLearner
    from ddlsim.scenario import Scenario


@dataclass(frozen=True)
class NodeStepTimes:
    """How long the devices of all nodes compute.

    Args:
        seconds: per local step, float64 [nodes] or over time.
        forward_share: what a forward pass costs of a local step, per node; None: FORWARD_SHARE.
        about: for the manifest: device, source, shortest and longest step, operations per architecture.
    """

    seconds: np.ndarray | StepTimeTrace
    forward_share: list[float] | None
    about: dict[str, Any]


def step_times_of(scenario: "Scenario", learner: "Learner | SizeLearner") -> NodeStepTimes:
    """Seconds per local step of all nodes.

    Raises:
        ScenarioError: if devices draw something else, or a step is too long.
    """
    devices, num_nodes = scenario.devices, scenario.nodes.count
    found = step_times_drawn(devices, num_nodes, scenario.seed)
    device, source = devices.source
    about: dict[str, Any] = {"device": device or DEVICES.label_of(devices), "source": source}
    if not devices.scales:
        every = [each for node in found.step_times_s for each in node] if isinstance(found, StepTimeTrace) else found
        return NodeStepTimes(found, None, {**about, "step_s": _range(np.asarray(every))})
    if isinstance(found, StepTimeTrace):
        raise ScenarioError("devices: draw: expected factors, one per node, got a StepTimeTrace. Set scales to false.")
    work = learner.step_work()
    names = scenario.model.assignment(num_nodes, scenario.seed) or list(work) * num_nodes
    base_s = {name: devices.base_step_s(name, each) for name, each in work.items()}
    seconds = found * [base_s[name] for name in names]
    if (seconds >= MAX_STEP_S).any():
        raise ScenarioError(
            f"devices: expected steps below {MAX_STEP_S:g} s, got {seconds.max():g} s. Choose another device."
        )
    about |= {
        "step_s": _range(seconds),
        "flops": {name: each.training_flops for name, each in work.items()},
        "counted": all(each.counted for each in work.values()),
    }
    return NodeStepTimes(seconds, [work[name].forward_share for name in names], about)


def _range(seconds: np.ndarray) -> list[float]:
    """Shortest and longest."""
    return [float(seconds.min(initial=np.inf)), float(seconds.max(initial=0.0))]
