"""Workers as Ray actors, which exchange data through Ray's object store, and the assignment of nodes to them.

A worker reads the data of a scenario, builds a learner, and then computes on request; see learning/remote.

Workers have equal numbers of nodes, within one. With `graph`, nodes in reverse Cuthill-McKee order (E. Cuthill and
J. McKee, "Reducing the bandwidth of sparse symmetric matrices", ACM 1969), in which neighbors are close, are cut into
blocks.
"""

import os
import pickle
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.assembly import build_learner
from ddlsim.data.prepared import PreparedData
from ddlsim.foundation import own_code
from ddlsim.foundation.environment import cpu_name
from ddlsim.foundation.errors import DdlsimError, WorkerLost
from ddlsim.learning.remote.rows import Ref
from ddlsim.runs.cluster import cluster
from ddlsim.scenario import Scenario

if TYPE_CHECKING:
    from ddlsim.learning.remote.shard import Shard


NEEDS_DATA = "data"
"""Answer of `Worker.start` if the host lacks the data."""


@dataclass(frozen=True)
class Assignment:
    """The task of a worker.

    Args:
        scenario: of the run.
        read: reads its data from the disk of the host: (scenario, data_dir) -> prepared.
        data_dir: where to look for data first.
        other: describes inputs on the host that differ from the run's; empty: none.
        nodes: of the worker.
        device: cpu or cuda.
        threads: of a wave.
    """

    scenario: Scenario
    read: Callable[[Scenario, Path | None], PreparedData]
    data_dir: Path | None
    other: Callable[[Scenario, PreparedData], str]
    nodes: tuple[int, ...]
    device: str
    threads: int


class Worker:
    """The actor; every call except `about` and `start` goes to a Shard (learning/remote/shard.py)."""

    def __init__(self) -> None:
        self._shard: Shard | None = None

    def about(self) -> dict[str, Any]:
        """Return host, process, processor and versions."""
        return {"host": socket.gethostname(), "pid": os.getpid(), "cpu": cpu_name(), "versions": cluster.versions()}

    def start(self, code: dict[str, bytes], packed: bytes, prepared: PreparedData | None = None) -> str | None:
        """Make the learner.

        Args:
            code: path -> text of the files that define parts of the scenario.
            packed: an Assignment.
            prepared: the data, if the host lacks it.
        Returns:
            NEEDS_DATA if `prepared` is needed, otherwise the name of the device.
        Raises:
            DdlsimError: if the host's inputs differ from the run's.
        """
        import torch

        from ddlsim.learning.learner import Learner
        from ddlsim.learning.remote.shard import Shard

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        for path, source in code.items():
            own_code.provide(Path(path), source)
        assigned: Assignment = pickle.loads(packed)
        if prepared is None:
            try:
                prepared = assigned.read(assigned.scenario, assigned.data_dir)
            except DdlsimError:
                return NEEDS_DATA
        other = assigned.other(assigned.scenario, prepared)
        if other:
            raise DdlsimError(
                f"on {socket.gethostname()} {other}. Put the same files there; a host without the data gets the run's."
            )
        nodes = frozenset(assigned.nodes)
        learner = build_learner(assigned.scenario, prepared, assigned.device, threads=assigned.threads, nodes=nodes)
        assert isinstance(learner, Learner), "a network-only run has no workers"
        self._shard = Shard(learner)
        return torch.cuda.get_device_name() if assigned.device == "cuda" else "cpu"

    def do(self, method: str, *arguments: Any) -> Any:
        """Call a method of the shard."""
        assert self._shard is not None, "called before start"
        return getattr(self._shard, method)(*arguments)


START_S = 180.0
"""Limit for the start of a worker's process, without reading data."""


class RayWorkers:
    """See learning/remote/rows.py: Workers.

    Args:
        executor: options of the cluster.
        fewer: accept fewer workers, on the remaining hosts.
    Raises:
        DdlsimError: if no cluster can be reached or has room, or a host has other versions.
    """

    def __init__(self, executor: cluster.Executor, fewer: bool = False):
        self._ray = cluster.import_ray()
        cluster.connect(executor)
        self._actors: list[Any] = []
        try:
            self.places = cluster.plan(executor, cluster.hosts(), fewer)
            self.count = len(self.places)
            self._actors = [self._actor(place, executor.gpus_per_worker) for place in self.places]
            self.about = self._meet()
            self.devices: list[str] = []
            store = min(host["Resources"].get("object_store_memory", 2e9) for host in cluster.hosts())
            self.block_bytes = int(store) // (4 * self.count)
        except BaseException:
            self.close()
            raise

    def start(self, assigned: Sequence[Assignment], prepared: PreparedData) -> None:
        """Make the learner of each worker.

        Args:
            assigned: the task of each worker, with the threads of its place.
            prepared: the run's data, sent to hosts that lack it.
        Raises:
            DdlsimError: see Worker.start.
        """
        code = own_code.texts()
        packed = [
            self.packed(replace(own, threads=place.threads)) for own, place in zip(assigned, self.places, strict=True)
        ]
        refs = [actor.start.remote(code, own) for actor, own in zip(self._actors, packed, strict=True)]
        answers = [self.wait(ref) for ref in refs]
        lacking = [worker for worker, answer in enumerate(answers) if answer == NEEDS_DATA]
        if lacking:
            with _ray_errors(self._ray):
                shipped = self._ray.put(prepared)
            refs = [self._actors[worker].start.remote(code, packed[worker], shipped) for worker in lacking]
            for worker, ref in zip(lacking, refs, strict=True):
                answers[worker] = self.wait(ref)
        self.devices = answers
        self.data_shipped = bool(lacking)

    def call(self, worker: int, method: str, *arguments: Any) -> Ref:
        with _ray_errors(self._ray):
            return self._actors[worker].do.remote(method, *arguments)

    def calls(self, worker: int, method: str, results: int, *arguments: Any) -> list[Ref]:
        with _ray_errors(self._ray):
            found = self._actors[worker].do.options(num_returns=results).remote(method, *arguments)
        return [found] if results == 1 else found

    def wait(self, ref: Ref) -> Any:
        with _ray_errors(self._ray):
            return self._ray.get(ref)

    def packed(self, value: Any) -> bytes:
        """Serialize a value, with the code of classes from a notebook."""
        return self._ray.cloudpickle.dumps(value)

    def close(self) -> None:
        for actor in self._actors:
            with suppress(Exception):  # whatever is left of a cluster that broke
                self._ray.kill(actor)
        self._actors = []

    def _actor(self, place: cluster.Place, gpus: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return (
            self._ray.remote(Worker)
            .options(
                num_cpus=place.threads,
                num_gpus=gpus,
                max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.host, soft=False),
                runtime_env={"env_vars": cluster.threads_environment()},
            )
            .remote()
        )

    def _meet(self) -> list[dict[str, Any]]:
        """Wait for the start of all workers, and return their descriptions.

        Raises:
            DdlsimError: if one does not start, or has another version.
        """
        refs = [actor.about.remote() for actor in self._actors]
        _, late = self._ray.wait(refs, num_returns=len(refs), timeout=START_S)
        if late:
            raise DdlsimError(
                f"--executor: {len(late)} of {len(refs)} workers have not started within {START_S:.0f} s; other "
                "programs use the cores or GPUs of the cluster (`ray status`). Ask for fewer workers, or wait."
            )
        about = [self.wait(ref) for ref in refs]
        own = cluster.versions()
        for other in about:
            theirs = other.pop("versions")
            differ = [f"{key} {own.get(key)} here, {theirs.get(key)} there" for key in own if own[key] != theirs[key]]
            if differ:
                raise DdlsimError(
                    f"--executor: {other['host']} has other versions: {'; '.join(differ)}. Install the same "
                    "on all hosts: bits depend on it."
                )
        return about


@contextmanager
def _ray_errors(ray: Any) -> Iterator[None]:
    """Convert errors of the module Ray."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise _converted(ray.exceptions, error) from None


def _converted(errors: Any, error: Exception) -> Exception:
    """Return ddlsim's error for an error of Ray, or the error that the call itself raised."""
    cause = getattr(error, "cause", None)
    for found in (error, cause):
        if isinstance(found, (errors.ObjectStoreFullError, errors.OutOfDiskError)):
            disk = ", and so is the disk that it spills to," if isinstance(found, errors.OutOfDiskError) else ""
            return DdlsimError(
                f"--executor: Ray's object store is full{disk} on a host of the run. Give it more memory "
                "(--object-store-gb, or `ray start --object-store-memory`), or use more hosts. `ddlsim resume` "
                "continues the run from its last checkpoint."
            )
        if isinstance(found, _lost(errors)):
            return WorkerLost(f"a worker was lost ({_line(found)}).")
    if isinstance(cause, Exception):
        return cause
    return DdlsimError(f"--executor: Ray reports: {_line(error)}")


@cache
def _lost(errors: Any) -> tuple[type[Exception], ...]:
    """Return Ray's errors for lost processes and hosts."""
    names = "RayActor ObjectLost OwnerDied WorkerCrashed NodeDied TaskUnschedulable ActorUnschedulable"
    return tuple(getattr(errors, f"{name}Error") for name in names.split())


def _line(error: BaseException) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return f"{type(error).__name__}: {' '.join(text.split()):.300}"


def deal(
    shards: cluster.Shards, workers: int, node_cluster: np.ndarray, neighbors: Callable[[], Sequence[Sequence[int]]]
) -> list[int]:
    """Return the worker of each node, and last the worker of a server and of computations without a node.

    Args:
        shards: contiguous: blocks of node ids; clusters: nodes of a cluster together; graph: neighbors together.
        workers: number of workers.
        node_cluster: int [N].
        neighbors: returns the neighbors of every node in the graph of the first round.
    """
    count = len(node_cluster)
    if shards == "clusters":
        order = np.argsort(node_cluster, kind="stable").tolist()
    elif shards == "graph" and workers > 1:
        return [*_cut(neighbors(), workers), 0]
    else:
        order = list(range(count))
    return [*_blocks(order, workers), 0]


def _blocks(order: Sequence[int], workers: int) -> list[int]:
    """Cut an order of all nodes into blocks; return the block of each node."""
    found = [0] * len(order)
    for place, node in enumerate(order):
        found[node] = place * workers // len(order)
    return found


def _cut(neighbors: Sequence[Sequence[int]], workers: int) -> list[int]:
    import networkx as nx
    from networkx.utils import reverse_cuthill_mckee_ordering

    graph: Any = nx.Graph()
    graph.add_nodes_from(range(len(neighbors)))
    graph.add_edges_from((node, peer) for node, own in enumerate(neighbors) for peer in own)
    return _blocks(list(reverse_cuthill_mckee_ordering(graph)), workers)
