"""What computes a run: its learner, in this process or with workers of a cluster."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ddlsim.foundation.errors import DataMissing, DdlsimError, ScenarioError
from ddlsim.runs.loading import Options, device_of, load_data, prepare
from ddlsim.runs.manifest import file_digests, other_inputs

if TYPE_CHECKING:
    from ddlsim.data import DatasetSpec, PreparedData
    from ddlsim.learning.learner import Learner
    from ddlsim.learning.size_learner import SizeLearner
    from ddlsim.runs.cluster.ray_workers import RayWorkers
    from ddlsim.scenario import Scenario


def computes_on(scenario: "Scenario", options: Options) -> str:
    """The device of a run, or of its workers: cpu, cuda, or none where nothing is learned.

    Raises:
        ScenarioError: if workers have no GPU and one is wanted, or there is nothing for them to do.
        DataMissing: see loading.py: device_of.
    """
    executor = options.executor
    if executor.is_local:
        return device_of(scenario, options.device)
    if scenario.learning == "none":
        raise ScenarioError("--executor ray: nothing is learned in this run (learning: none). Leave the option out.")
    wanted = options.device or scenario.compute_device
    if wanted == "cuda" and executor.device == "cpu":
        raise ScenarioError("--device cuda: Ray's workers have GPUs if they are asked for: --gpus-per-worker 1.")
    return cast("str", executor.device)


def make_learner(
    scenario: "Scenario",
    prepared: "PreparedData | DatasetSpec",
    device: str,
    options: Options,
    tell: Callable[[str], None] = lambda _: None,
) -> "Learner | SizeLearner":
    """What computes; to be closed.

    Args:
        scenario: what is run.
        prepared: its data.
        device: see `computes_on`.
        options: how the run is carried out.
        tell: takes sentences on what is unusual.
    """
    from ddlsim.assembly import build_learner

    if options.executor.is_local:
        return build_learner(scenario, prepared, device, tell, options.threads)
    from ddlsim.runs.cluster.ray_workers import RayWorkers

    workers = RayWorkers(options.executor, options.fewer_workers)
    try:
        return _with_workers(scenario, cast("PreparedData", prepared), device, options, tell, workers)
    except BaseException:
        workers.close()
        raise


def _with_workers(
    scenario: "Scenario",
    prepared: "PreparedData",
    device: str,
    options: Options,
    tell: Callable[[str], None],
    workers: "RayWorkers",
) -> "Learner | SizeLearner":
    from ddlsim.assembly import build_learner
    from ddlsim.learning.remote.waves import RemoteWaves
    from ddlsim.runs.cluster.ray_workers import Assignment, deal

    worker_of = deal(
        options.executor.shards, workers.count, np.asarray(prepared.node_cluster), partial(_neighbors, scenario)
    )
    nodes = [tuple(node for node, own in enumerate(worker_of[:-1]) if own == worker) for worker in range(workers.count)]
    files = {name: digest for name, digest in file_digests(scenario).items() if name.startswith("model.")}
    other = partial(other_inputs, {"data": dict(prepared.about), "files_read": files})
    assigned = [Assignment(scenario, read_data, options.data_dir, other, own, device, 1) for own in nodes]
    workers.start(assigned, prepared)
    about = {
        "name": options.executor.name,
        "address": options.executor.address,
        "shards": options.executor.shards,
        "data_shipped": workers.data_shipped,
        "workers": [
            {**about, "device": found, "threads": place.threads, "nodes": len(own)}
            for about, found, place, own in zip(workers.about, workers.devices, workers.places, nodes, strict=True)
        ],
    }
    cpus = sorted({one["cpu"] for one in workers.about})
    if len(cpus) > 1:
        tell(f"WARNING: workers have different processors ({'; '.join(cpus)}); the last bits of results may differ.")
    return build_learner(scenario, prepared, device, tell, elsewhere=RemoteWaves(workers, worker_of, about))


def _neighbors(scenario: "Scenario") -> list[list[int]]:
    """Of every node in the first round's graph; with a server, none."""
    from ddlsim.topologies.base import neighbors

    count = scenario.nodes.count
    if not scenario.algorithm.uses_topology:
        return [[] for _ in range(count)]
    found = neighbors(scenario.topology, count, round_num=0, seed=scenario.seed)
    return [list(own) for own in found]


def read_data(scenario: "Scenario", data_dir: Path | None) -> "PreparedData":
    """A run's data from this host's disk, in a worker.

    Raises:
        DdlsimError: if it is not there.
    """
    try:
        return cast("PreparedData", prepare(load_data(scenario, data_dir, fallback=False, download=False)))
    except (DdlsimError, OSError) as error:
        raise DataMissing(str(error)) from error


def about_executor(learner: "Learner | SizeLearner") -> dict[str, Any]:
    """What the manifest says of what computes."""
    return {"name": "local"} if learner.backends is None else dict(learner.backends.about)
