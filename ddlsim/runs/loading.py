"""What a run needs before it has a directory: its data, or its fallback's, and a device.

How a run is carried out: what may be another each time and changes nothing that is computed.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import DataMissing, ScenarioError
from ddlsim.runs.callbacks import Callback, Callbacks, Mode
from ddlsim.runs.checkpoint import DEFAULT, Every
from ddlsim.runs.cluster.cluster import LOCAL, Executor

if TYPE_CHECKING:
    from ddlsim.data import DatasetSpec, PreparedData
    from ddlsim.data.dataset import Dataset
    from ddlsim.scenario import Scenario
    from ddlsim.tasks import Task


@dataclass(frozen=True)
class Loaded:
    """A scenario with the data it will really run on.

    Args:
        scenario: the scenario, or its fallback.
        dataset: what was loaded; for a network-only run its outline.
        missing: why the fallback is used; None when it is not.
    """

    scenario: "Scenario"
    dataset: "Dataset | DatasetSpec"
    missing: str | None = None


def load_data(
    scenario: "Scenario", data_dir: Path | None = None, fallback: bool = True, download: bool = True
) -> Loaded:
    """Finds the scenario's data set, or goes over to the scenario's fallback.

    Args:
        scenario: what to run.
        data_dir: where to look first; None: in the usual folders alone.
        fallback: whether the scenario's fallback may be used when its data is missing.
        download: whether torchvision may download.

    Raises:
        DataMissing: if the data is not there and there is no fallback, or it is not wanted.
    """
    from ddlsim.data import DataSearch, load_dataset, outline
    from ddlsim.scenario import with_fallback

    search = DataSearch(data_dir, download)

    def read(wanted: "Scenario") -> "Dataset | DatasetSpec":
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


def _read_as(data: Any, task: "Task | None") -> Any:
    """A data set with labels read as numbers, where the scenario's task takes such and the data set can give them."""
    takes_numbers = task is not None and task.label_dtype == "float32" and not task.has_classes
    keys = {field.name for field in dataclasses.fields(data)}
    if not takes_numbers or own_code.is_from_outside(data) or "task" not in keys or data.task == "regression":
        return data
    return dataclasses.replace(data, task="regression")


def choose_device(wanted: str) -> str:
    """The device that learning computes on: cpu or cuda.

    Args:
        wanted: auto (a GPU when there is one), cpu or cuda.

    Raises:
        DataMissing: if CUDA is wanted and torch sees none.
        ScenarioError: if torch is set so that nothing can be trained in float32.
    """
    import torch

    from ddlsim.foundation.torch_state import one_thread_if_forked

    one_thread_if_forked()
    if torch.get_default_dtype() != torch.float32:
        raise ScenarioError(
            f"torch's default type is {torch.get_default_dtype()}, and models are trained in float32: call "
            "torch.set_default_dtype(torch.float32) first."
        )
    if torch.is_inference_mode_enabled():
        raise ScenarioError(
            "torch is in inference mode, in which nothing is trained: leave torch.inference_mode() first."
        )
    if torch.get_default_device().type != "cpu":
        raise ScenarioError(
            f"torch's default device is {torch.get_default_device()}, and data and models are made on the CPU: call "
            "torch.set_default_device('cpu') first. compute_device says where a run computes."
        )
    if wanted == "cuda" and not torch.cuda.is_available():
        raise DataMissing("compute_device: cuda is wanted, but torch sees no CUDA device. Use --device auto or cpu.")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"


def device_of(scenario: "Scenario", wanted: str | None) -> str:
    """Where a run computes: what is wanted, else what its scenario says; `none` where nothing is learned.

    Raises:
        DataMissing: see `choose_device`.
    """
    return "none" if scenario.learning == "none" else choose_device(wanted or scenario.compute_device)


def prepare(loaded: Loaded) -> "PreparedData | DatasetSpec":
    """The data of every node and cluster; see ddlsim.data.prepare. Of a network-only run: the outline."""
    from ddlsim.data import DatasetSpec
    from ddlsim.data import prepare as prepare_data
    from ddlsim.data.images import check_augmentation
    from ddlsim.foundation.augmentation import BUILT_IN

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


@dataclass(frozen=True, kw_only=True)
class Options:
    """See `run`, `resume`: their further arguments.

    Args:
        data_dir: where to look for data first.
        download: whether torchvision may download.
        device: auto, cpu or cuda; by default the scenario's `compute_device`.
        profile: keep where wall time went (`profile` in the summary).
        progress: auto, bar, plain or none, see progress.py.
        checkpoint_every: how often a checkpoint is made and how many are kept, see checkpoint.py; none are made where
            nothing is learned.
        command: for the manifest; None: that of the process.
        callbacks: what is called while it runs; none of a run that is there already.
        executor: what computes.
        threads: of a wave in this process; None: as many as it may use cores.
        fewer_workers: make do with fewer workers than the executor says: some have been lost.
    """

    data_dir: Path | None = None
    download: bool = True
    device: str | None = None
    profile: bool = False
    progress: Mode = "none"
    checkpoint_every: Every = DEFAULT
    command: Sequence[str] | None = None
    callbacks: Sequence[Callback] = ()
    executor: Executor = LOCAL
    threads: int | None = None
    fewer_workers: bool = False

    def __post_init__(self) -> None:
        Callbacks(self.callbacks)  # refuses what is none
