"""The learner of a run, in this process or with workers of a cluster."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ddlsim.assembly import build_learner
from ddlsim.data import DatasetSpec, PreparedData
from ddlsim.foundation.errors import DataMissing, DdlsimError, ScenarioError
from ddlsim.learning.size_learner import SizeLearner
from ddlsim.runs.loading import choose_device, load_data, prepare
from ddlsim.runs.manifest import file_digests, other_inputs
from ddlsim.runs.options import Options
from ddlsim.scenario import Scenario
from ddlsim.topologies.base import neighbors

if TYPE_CHECKING:
    from ddlsim.learning.learner import Learner
    from ddlsim.runs.cluster.ray_workers import RayWorkers


def computes_on(scenario: Scenario, options: Options) -> str:
    """Return the device of a run, or of its workers: cpu, cuda, or none for a network-only run.

    Raises:
        ScenarioError: if a GPU is wanted and workers have none, or they have nothing to compute.
        DataMissing: see `choose_device`.
    """
    wanted, executor = options.device or scenario.compute_device, options.cluster
    if executor.is_local:
        return "none" if scenario.learning == "none" else choose_device(wanted)
    if scenario.learning == "none":
        raise ScenarioError("--executor ray: nothing is learned in this run (learning: none). Leave the option out.")
    if wanted == "cuda" and executor.device == "cpu":
        raise ScenarioError("--device cuda: Ray's workers get no GPUs by default. Add --gpus-per-worker 1.")
    return cast("str", executor.device)


def make_learner(
    scenario: Scenario,
    prepared: PreparedData | DatasetSpec,
    device: str,
    options: Options,
    warn: Callable[[str], None] = lambda _: None,
    fewer: bool = False,
) -> "Learner | SizeLearner":
    """Make the learner of a run; the caller closes it.

    Args:
        scenario: of the run.
        prepared: its data.
        device: see `computes_on`.
        options: of the run.
        warn: prints warnings.
        fewer: accept fewer workers than the options name: some have been lost.
    """
    if options.cluster.is_local:
        return build_learner(scenario, prepared, device, warn, options.threads)
    from ddlsim.runs.cluster.ray_workers import RayWorkers

    workers = RayWorkers(options.cluster, fewer)
    try:
        return _with_workers(scenario, cast("PreparedData", prepared), device, options, warn, workers)
    except BaseException:
        workers.close()
        raise


def _with_workers(
    scenario: Scenario,
    prepared: PreparedData,
    device: str,
    options: Options,
    warn: Callable[[str], None],
    workers: "RayWorkers",
) -> "Learner | SizeLearner":
    from ddlsim.learning.remote.waves import RemoteWaves
    from ddlsim.runs.cluster.ray_workers import Assignment, deal

    executor, clusters = options.cluster, np.asarray(prepared.node_cluster)
    worker_of = deal(executor.shards, workers.count, clusters, partial(_neighbors, scenario))
    nodes = [tuple(np.flatnonzero(np.equal(worker_of[:-1], worker)).tolist()) for worker in range(workers.count)]
    files = {name: digest for name, digest in file_digests(scenario).items() if name.startswith("model.")}
    other = partial(other_inputs, {"data": dict(prepared.about), "files_read": files})
    workers.start(
        [Assignment(scenario, read_data, options.data_path, other, own, device, 1) for own in nodes], prepared
    )
    about = {
        "name": executor.name,
        "address": executor.address,
        "shards": executor.shards,
        "data_shipped": workers.data_shipped,
        "workers": [
            {**about, "device": found, "threads": place.threads, "nodes": len(own)}
            for about, found, place, own in zip(workers.about, workers.devices, workers.places, nodes, strict=True)
        ],
    }
    cpus = sorted({one["cpu"] for one in workers.about})
    if len(cpus) > 1:
        warn(f"WARNING: workers have different processors ({'; '.join(cpus)}); the last bits of results may differ.")
    return build_learner(scenario, prepared, device, warn, elsewhere=RemoteWaves(workers, worker_of, about))


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


def about_executor(learner: "Learner | SizeLearner") -> dict[str, Any]:
    """Describe the executor for the manifest."""
    return {"name": "local"} if learner.backends is None else dict(learner.backends.about)
