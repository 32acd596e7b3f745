"""Workers as Ray actors; what they exchange goes through Ray's object store."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from ddlsim import own_code
from ddlsim.errors import DdlsimError, WorkerLost
from ddlsim.executors.cluster import Place, connect, hosts, import_ray, plan, threads_environment
from ddlsim.executors.options import Executor
from ddlsim.executors.versions import versions
from ddlsim.executors.worker import NEEDS_DATA, Assignment, Worker
from ddlsim.learning.remote.calls import Ref

if TYPE_CHECKING:
    from ddlsim.data.prepared import PreparedData

START_S = 180.0
"""How long a worker's process may take to start; reading its data is not counted."""


class RayWorkers:
    """See learning/remote/calls.py: Workers.

    Args:
        executor: what is wanted.
        fewer: make do with fewer workers than wanted, on the hosts that are left.
    Raises:
        DdlsimError: if no cluster can be reached, has room, or its hosts have other versions than this one.
    """

    def __init__(self, executor: Executor, fewer: bool = False):
        self._ray = import_ray()
        connect(executor)
        self._actors: list[Any] = []
        try:
            self.places = plan(executor, hosts(), fewer)
            self.count = len(self.places)
            self._actors = [self._actor(place, executor.gpus_per_worker) for place in self.places]
            self.about = self._meet()
            self.devices: list[str] = []
            store = min(host["Resources"].get("object_store_memory", 2e9) for host in hosts())
            self.block_bytes = int(store) // (4 * self.count)
        except BaseException:
            self.close()
            raise

    def start(self, assigned: Sequence[Assignment], prepared: "PreparedData") -> None:
        """Makes what computes at each worker.

        Args:
            assigned: per worker; threads are those of its place.
            prepared: the run's data, sent to hosts that have not got it.
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
            with _told(self._ray):
                shipped = self._ray.put(prepared)
            refs = [self._actors[worker].start.remote(code, packed[worker], shipped) for worker in lacking]
            for worker, ref in zip(lacking, refs, strict=True):
                answers[worker] = self.wait(ref)
        self.devices = answers
        self.data_shipped = bool(lacking)

    def call(self, worker: int, method: str, *arguments: Any) -> Ref:
        """See Workers."""
        with _told(self._ray):
            return self._actors[worker].do.remote(method, *arguments)

    def calls(self, worker: int, method: str, results: int, *arguments: Any) -> list[Ref]:
        """See Workers."""
        with _told(self._ray):
            found = self._actors[worker].do.options(num_returns=results).remote(method, *arguments)
        return [found] if results == 1 else found

    def wait(self, ref: Ref) -> Any:
        """See Workers."""
        with _told(self._ray):
            return self._ray.get(ref)

    def packed(self, value: Any) -> bytes:
        """See Workers; classes that are defined in a notebook travel with their code."""
        return self._ray.cloudpickle.dumps(value)

    def close(self) -> None:
        """See Workers."""
        for actor in self._actors:
            with suppress(Exception):  # whatever is left of a cluster that broke
                self._ray.kill(actor)
        self._actors = []

    def _actor(self, place: Place, gpus: int) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return (
            self._ray.remote(Worker)
            .options(
                num_cpus=place.threads,
                num_gpus=gpus,
                max_restarts=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.host, soft=False),
                runtime_env={"env_vars": threads_environment()},
            )
            .remote()
        )

    def _meet(self) -> list[dict[str, Any]]:
        """What each worker is, once all have started.

        Raises:
            DdlsimError: if one does not start, or is of another version.
        """
        refs = [actor.about.remote() for actor in self._actors]
        _, late = self._ray.wait(refs, num_returns=len(refs), timeout=START_S)
        if late:
            raise DdlsimError(
                f"--executor: {len(late)} of {len(refs)} workers have not started within {START_S:.0f} s; the cores or "
                "GPUs of the cluster are taken by other programs (`ray status`). Ask for fewer workers, or wait."
            )
        about = [self.wait(ref) for ref in refs]
        own = versions()
        for other in about:
            theirs = other.pop("versions")
            differ = [f"{key} {own.get(key)} here, {theirs.get(key)} there" for key in own if own[key] != theirs[key]]
            if differ:
                raise DdlsimError(
                    f"--executor: {other['host']} computes with something else: {'; '.join(differ)}. Install the same "
                    "on all hosts: bits depend on it."
                )
        return about


@contextmanager
def _told(ray: Any) -> Iterator[None]:
    """Turns errors of Ray, the module, into ours."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise _ours(ray.exceptions, error) from None


def _ours(errors: Any, error: Exception) -> Exception:
    """What a run is told instead of an error of Ray: the error of the call itself, if it has one."""
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
            return WorkerLost(f"a worker was lost ({_cause(found)}).")
    if isinstance(cause, Exception):
        return cause
    return DdlsimError(f"--executor: Ray reports: {_line(error)}")


@cache
def _lost(errors: Any) -> tuple[type[Exception], ...]:
    """Ray's errors that say that a process or a host is there no more."""
    names = (
        "RayActorError",
        "ObjectLostError",
        "OwnerDiedError",
        "WorkerCrashedError",
        "NodeDiedError",
        "TaskUnschedulableError",
        "ActorUnschedulableError",
    )
    return tuple(getattr(errors, name) for name in names if hasattr(errors, name))


def _line(error: BaseException) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return f"{type(error).__name__}: {' '.join(text.split()):.300}"


def _cause(error: BaseException) -> str:
    """Ray's reason in a few words."""
    text = " ".join(str(error).split())
    for sign, cause in (
        ("ActorUnavailable", "its process or its host does not answer"),
        ("OOM", "its host ran out of memory"),
        ("out of memory", "its host ran out of memory"),
        ("node", "its host is gone"),
        ("worker process has died", "its process has died"),
    ):
        if sign in text.partition("Some common causes")[0]:
            return cause
    return f"{type(error).__name__}: {text:.200}"
