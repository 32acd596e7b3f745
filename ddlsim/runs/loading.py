"""Data and device of a run, before it has a directory."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlsim.data import DataSearch, DatasetSpec, PreparedData, load_dataset, outline
from ddlsim.data import prepare as prepare_data
from ddlsim.data.dataset import Dataset
from ddlsim.data.images import check_augmentation
from ddlsim.foundation import own_code
from ddlsim.foundation.augmentation import BUILT_IN
from ddlsim.foundation.errors import DataMissing, ScenarioError
from ddlsim.scenario import Scenario, with_fallback
from ddlsim.tasks import Task


@dataclass(frozen=True)
class Loaded:
    """A scenario with its data, or its fallback with the data of that.

    Args:
        scenario: the scenario, or its fallback.
        dataset: its data; for a network-only run its outline.
        missing: the reason for the fallback; None without it.
    """

    scenario: Scenario
    dataset: Dataset | DatasetSpec
    missing: str | None = None


def load_data(scenario: Scenario, data_dir: Path | None = None, fallback: bool = True, download: bool = True) -> Loaded:
    """Find the data set of a scenario, or else of its fallback.

    Args:
        scenario: of the run.
        data_dir: where to look first; None: only in the usual folders.
        fallback: whether the scenario's fallback may replace it if its data is missing.
        download: whether torchvision may download.

    Raises:
        DataMissing: if the data is missing, and there is no fallback or it may not be used.
    """
    search = DataSearch(data_dir, download)

    def read(wanted: Scenario) -> Dataset | DatasetSpec:
        if wanted.learning == "none":
            data = _read_as(wanted.data, wanted.task)
            sections = data, wanted.nodes, wanted.validation, wanted.seed
            return outline(*sections, search, wanted.task, wanted.partition)
        dataset = load_dataset(_read_as(wanted.data, wanted.task), wanted.nodes, wanted.seed, search)
        return dataset if wanted.task is None else dataclasses.replace(dataset, task=wanted.task)

    try:
        return Loaded(scenario, read(scenario))
    except DataMissing as error:
        other = with_fallback(scenario) if fallback else None
        if other is None:
            raise
        return Loaded(other, read(other), str(error))


def _read_as(data: Any, task: Task | None) -> Any:
    """Return a data set that reads labels as numbers, if the task takes numbers and the data set supports them."""
    takes_numbers = task is not None and task.label_dtype == "float32" and not task.has_classes
    keys = {field.name for field in dataclasses.fields(data)}
    if not takes_numbers or own_code.is_from_outside(data) or "task" not in keys or data.task == "regression":
        return data
    return dataclasses.replace(data, task="regression")


def choose_device(wanted: str) -> str:
    """Return the device that learning computes on: cpu or cuda.

    Args:
        wanted: auto (a GPU if there is one), cpu or cuda.

    Raises:
        DataMissing: if CUDA is wanted and torch sees no device.
        ScenarioError: if torch's defaults do not allow training in float32 from models on the CPU.
    """
    import torch

    from ddlsim.foundation.torch_state import one_thread_if_forked

    one_thread_if_forked()
    for setting, found, expected, cure in (
        ("default type", torch.get_default_dtype(), torch.float32, "torch.set_default_dtype(torch.float32)"),
        ("inference mode", torch.is_inference_mode_enabled(), False, "run() outside torch.inference_mode()"),
        ("default device", torch.get_default_device().type, "cpu", "torch.set_default_device('cpu')"),
    ):
        if found != expected:
            raise ScenarioError(f"torch's {setting}: expected {expected}, got {found}. Call {cure} first.")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise DataMissing("compute_device: cuda is wanted, but torch sees no CUDA device. Use --device auto or cpu.")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def prepare(loaded: Loaded) -> PreparedData | DatasetSpec:
    """Deal the data to nodes and clusters, see ddlsim.data.prepare; return the outline of a network-only run."""
    scenario, dataset = loaded.scenario, loaded.dataset
    if isinstance(dataset, DatasetSpec):
        return dataset
    check_augmentation(dataset, scenario.training.augmentation)
    if scenario.training.augmentation not in BUILT_IN:
        from ddlsim.learning.augmenting import Transforms

        Transforms(scenario.training.augmentation, dataset.sample_shape)
    return prepare_data(
        dataset,
        scenario.partition,
        scenario.shift,
        scenario.validation,
        scenario.nodes,
        scenario.seed,
        scenario.evaluation.samples,
    )
