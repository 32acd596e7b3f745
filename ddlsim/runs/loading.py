"""Data, device and learner of a run, before it has a directory; the learner may use workers of a cluster."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ddlsim.assembly import build_learner
from ddlsim.data import DataSearch
from ddlsim.data.dataset import Dataset, load_dataset
from ddlsim.data.dataset_spec import DatasetSpec, outline
from ddlsim.data.images import check_augmentation
from ddlsim.data.prepared import PreparedData
from ddlsim.data.prepared import prepare as prepare_data
from ddlsim.foundation import own_code
from ddlsim.foundation.augmentation import BUILT_IN
from ddlsim.foundation.errors import DataMissing, DdlsimError, ScenarioError
from ddlsim.node.ports import Compute
from ddlsim.runs.branch_history import Stage
from ddlsim.runs.manifest import file_digests, other_inputs
from ddlsim.runs.options import Options
from ddlsim.scenario import Scenario, with_fallback
from ddlsim.tasks import Task
from ddlsim.topologies.base import neighbors

if TYPE_CHECKING:
    from ddlsim.runs.cluster.ray_workers import RayWorkers
    from ddlsim.runs.cluster.together import ComputingProcess


@dataclass(frozen=True)
class Loaded:
    """A scenario with its data, or its fallback with the fallback's data.

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
        raise DataMissing("compute_device: expected a CUDA device, torch sees none. Use --device auto or cpu.")
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


def load_same_data(
    scenario: Scenario, manifest: Mapping[str, Any], data_dir: Path | None, download: bool, stages: Sequence[Stage] = ()
) -> PreparedData | DatasetSpec:
    """Load the data of a run again; the scenario of a run on a fallback is the fallback.

    Args:
        scenario: of the run.
        manifest: of the run.
        data_dir, download: see Options.
        stages: of a branched run, before `scenario`.
    Raises:
        ScenarioError: if the data, the partition or a file that the scenario names has changed.
        DataMissing: if it is missing.
    """
    prepared = prepare(load_data(scenario, data_dir, fallback=False, download=download))
    other = other_inputs(manifest, scenario, prepared, [stage.scenario for stage in stages])
    if other:
        raise ScenarioError(f"{other}. Restore the inputs of the run; --data-dir names the folder of its data.")
    return prepared


def computes_on(scenario: Scenario, options: Options) -> str:
    """Return the device of a run, or of its workers: cpu, cuda, or none for a network-only run.

    Raises:
        ScenarioError: if a GPU is wanted and workers have none, or they have nothing to compute.
        DataMissing: see `choose_device`.
    """
    wanted, executor = options.device or scenario.compute_device, options.cluster
    if scenario.learning == "none" and not executor.is_local:
        option = "--executor ray" if executor.name == "ray" else "--together"
        raise ScenarioError(f"{option}: nothing is learned in this run (learning: none). Leave the option out.")
    if executor.device is None:
        return "none" if scenario.learning == "none" else choose_device(wanted)
    if wanted == "cuda" and executor.device == "cpu":
        raise ScenarioError("--device cuda: Ray's workers get no GPUs by default. Add --gpus-per-worker 1.")
    return executor.device


def make_learner(
    scenario: Scenario,
    prepared: PreparedData | DatasetSpec,
    device: str,
    options: Options,
    warn: Callable[[str], None] = lambda _: None,
    fewer: bool = False,
) -> Compute:
    """Make the learner of a run; the caller closes it.

    Args:
        scenario: of the run.
        prepared: its data.
        device: see `computes_on`.
        options: of the run.
        warn: prints warnings.
        fewer: accept fewer workers than requested, because some have been lost.
    """
    if options.cluster.is_local:
        return build_learner(scenario, prepared, device, warn, options.threads)
    from ddlsim.learning.remote.waves import RemoteWaves
    from ddlsim.runs.cluster.ray_workers import RayWorkers
    from ddlsim.runs.cluster.together import ComputingProcess

    if options.cluster.name == "ray":
        workers: RayWorkers | ComputingProcess = RayWorkers(options.cluster, fewer)
    else:
        workers = ComputingProcess(options.cluster)
    try:
        worker_of, about = _start_workers(workers, scenario, cast("PreparedData", prepared), device, options)
        cpus = sorted({one["cpu"] for one in workers.about})
        if len(cpus) > 1:
            warn(f"WARNING: workers have other processors ({'; '.join(cpus)}); the last bits of results may differ.")
        return build_learner(scenario, prepared, "cpu", warn, elsewhere=RemoteWaves(workers, worker_of, about))
    except BaseException:
        workers.close()
        raise


def _start_workers(
    workers: "RayWorkers | ComputingProcess", scenario: Scenario, prepared: PreparedData, device: str, options: Options
) -> tuple[list[int], dict[str, Any]]:
    """Give each worker its nodes; return the worker of each node, and the description of the executor."""
    from ddlsim.runs.cluster.ray_workers import Assignment, deal

    executor, clusters = options.cluster, np.asarray(prepared.node_cluster)
    worker_of = deal(executor.shards, workers.count, clusters, partial(_neighbors, scenario))
    nodes = [tuple(np.flatnonzero(np.equal(worker_of[:-1], worker)).tolist()) for worker in range(workers.count)]
    files = {name: digest for name, digest in file_digests(scenario).items() if name.startswith("model.")}
    other = partial(other_inputs, {"data": dict(prepared.about), "files_read": files})
    assigned = [Assignment(scenario, read_data, options.data_path, other, own, device, 1) for own in nodes]
    workers.start(assigned, prepared)
    each = zip(workers.about, workers.devices, workers.places, nodes, strict=True)
    about = {
        **{"name": executor.name, "address": executor.address, "shards": executor.shards},
        "data_shipped": workers.data_shipped,
        "workers": [
            {**about, "device": found, "threads": place.threads, "nodes": len(own)} for about, found, place, own in each
        ],
    }
    return worker_of, about


def _neighbors(scenario: Scenario) -> list[list[int]]:
    """Return the neighbors of every node in the graph of the first round; none with a server."""
    count = scenario.nodes.count
    if not scenario.algorithm.uses_topology:
        return [[] for _ in range(count)]
    found = neighbors(scenario.topology, count, round_num=0, seed=scenario.seed)
    return [list(own) for own in found]


def read_data(scenario: Scenario, data_dir: Path | None) -> PreparedData:
    """Read the data of a run from the disk of a worker's host.

    Raises:
        DdlsimError: if it is missing.
    """
    try:
        return cast("PreparedData", prepare(load_data(scenario, data_dir, fallback=False, download=False)))
    except (DdlsimError, OSError) as error:
        raise DataMissing(str(error)) from error


def about_executor(learner: Compute) -> dict[str, Any]:
    """Describe the executor for the manifest."""
    return {"name": "local"} if learner.backends is None else dict(learner.backends.about)
