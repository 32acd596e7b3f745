"""Time of a local step on a real device: measured here with PyTorch, or read from a file.

A step is computed as in a deployment in plain PyTorch: pick a mini-batch, forward, loss, backward, update of the
optimizer. ddlsim's waves and compiled plans are not used: they make the simulator fast, not the devices.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from ddlsim.assembly import builders_of
from ddlsim.data.dataset_spec import DatasetSpec
from ddlsim.data.prepared import PreparedData
from ddlsim.devices.step_times import Calibrated
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.input_files import Column, read_rows
from ddlsim.foundation.units import MAX_STEP_S
from ddlsim.runs.directory import same_scenario
from ddlsim.scenario import Scenario, load
from ddlsim.scenario.per_node import of_node

LEAST_TRAININGS = 10
WARM_UP_TRAININGS = 3


@dataclass(frozen=True)
class StepTimes:
    """Seconds per local step, one value per measured training.

    Args:
        seconds: float64 [trainings].
    """

    seconds: np.ndarray

    @property
    def median_s(self) -> float:
        """Median over trainings."""
        return float(np.median(self.seconds))

    def __str__(self) -> str:
        low_s, high_s = np.percentile(self.seconds, [5, 95])
        count = f"{len(self.seconds)} measurement" + "s" * (len(self.seconds) != 1)
        return f"median {self.median_s:.3g} s per step (5 % {low_s:.3g}, 95 % {high_s:.3g}; {count})"


def measure(scenario: Scenario, prepared: PreparedData, threads: int = 1, seconds: float = 3.0) -> dict[str, StepTimes]:
    """Measure step times of every architecture of a scenario on this machine's CPU.

    Args:
        scenario: has the model, batches, optimizer and task.
        prepared: its data.
        threads: of PyTorch.
        seconds: duration of the measurement of each architecture, at least 10 trainings after 3 to warm up.
    """
    import torch

    from ddlsim.learning.datasets import NodeDatasets
    from ddlsim.learning.layout import hidden_matrices
    from ddlsim.learning.optimizing.updates import training_loss

    data = NodeDatasets(prepared, torch.device("cpu"))
    training = scenario.node_training
    batch_size = of_node(training.batch_size, 0)
    loss_of = training_loss(data.loss, training.label_smoothing)
    inputs, labels = data.local("train", 0)
    steps = training.steps(0, -(-len(labels) // batch_size))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = {}
        for name, build in builders_of(scenario, prepared).items():
            module = build().train()
            parameters = [each for each in module.parameters() if each.requires_grad]
            rate = of_node(training.learning_rate, 0)
            optimizer = training.optimizer.make(parameters, rate, hidden_matrices(module))

            def train(module: Any = module, optimizer: Any = optimizer) -> float:
                begin_s = time.perf_counter()
                for _ in range(steps):
                    places = torch.randint(len(labels), (min(batch_size, len(labels)),))
                    optimizer.zero_grad()
                    loss_of(module(inputs[places]), labels[places]).backward()
                    optimizer.step()
                return (time.perf_counter() - begin_s) / steps

            found[name] = StepTimes(_repeated(train, seconds))
        return found
    finally:
        torch.set_num_threads(before)


def with_measured_steps(scenario: Scenario, prepared: PreparedData | DatasetSpec) -> Scenario:
    """Return the scenario with measured step times, if its devices ask for a measurement."""
    if not scenario.devices.measures:
        return scenario
    measured = measure(scenario, cast("PreparedData", prepared))
    found = {name: _rounded(times.median_s) for name, times in measured.items()}
    return scenario.model_copy(update={"devices": replace(scenario.devices, step_times_s=found)})


def with_earlier_steps(scenario: Scenario, directory: Path) -> Scenario:
    """Return the scenario with the step times of the run in this directory, if that has the same scenario."""
    if not scenario.devices.measures:
        return scenario
    try:
        earlier = scenario.model_copy(update={"devices": load(directory / "scenario.yaml").devices})
    except (ScenarioError, OSError):
        return scenario
    is_measured = isinstance(earlier.devices, Calibrated) and same_scenario(directory, earlier)
    return earlier if is_measured else scenario


def _repeated(train: Any, seconds: float) -> np.ndarray:
    for _ in range(WARM_UP_TRAININGS):
        train()
    found: list[float] = []
    end_s = time.perf_counter() + seconds
    while len(found) < LEAST_TRAININGS or time.perf_counter() < end_s:
        found.append(train())
    return np.array(found)


class _Name(Column):
    """A column of names."""

    def read(self, text: str) -> Any:
        return text or None

    def __str__(self) -> str:
        return "a name"


def read_measurements(path: str | Path) -> dict[str, StepTimes]:
    """Read step times of devices from a CSV with the columns device,step_time_s; rows of one device are repetitions.

    Raises:
        ScenarioError: if it cannot be read, has other columns, or a value is not a step time.
    """
    found: dict[str, list[float]] = {}
    columns = {"device": _Name(), "step_time_s": Column(below=MAX_STEP_S)}
    for number, row in read_rows(path, columns):
        if row["step_time_s"] == 0:
            raise ScenarioError(f"{path}:{number}: step_time_s: expected seconds above 0, got 0")
        found.setdefault(row["device"], []).append(row["step_time_s"])
    if not found:
        raise ScenarioError(f"{path}: expected at least one measurement, got only the columns")
    return {device: StepTimes(np.array(values)) for device, values in found.items()}


def devices_section(times: Mapping[str, StepTimes], assigned: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the scenario section `devices`.

    Args:
        times: by device, or by architecture.
        assigned: the device or architecture of each node; None: the only one.
    """
    if assigned is None:
        (only,) = times.values()
        return {"name": "constant", "step_time_s": _rounded(only.median_s)}
    return {"name": "per_node", "step_times_s": [_rounded(times[each].median_s) for each in assigned]}


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")
