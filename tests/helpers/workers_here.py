"""Workers as objects of the test's process, with the messages and results of Ray's actors."""

import pickle
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import WorkerLost
from ddlsim.runs.cluster import ray_workers
from ddlsim.runs.cluster.ray_workers import Worker


class InProcess:
    """Workers that are objects of this process, called one after the other; a reference is the result itself.

    Args:
        shards: one per worker.
    """

    block_bytes = 2**28

    def __init__(self, shards):
        self._shards = shards
        self.count = len(shards)

    def call(self, worker, method, *arguments):
        return getattr(self._shards[worker], method)(*arguments)

    def calls(self, worker, method, results, *arguments):
        found = self.call(worker, method, *arguments)
        return [found] if results == 1 else list(found)

    def wait(self, ref):
        return ref

    def packed(self, value):
        return pickle.dumps(value)

    def close(self):
        for shard in self._shards:
            shard.close()


class WorkersHere(InProcess):
    """Replaces RayWorkers.

    Attributes:
        made: workers of all runs, the newest last.
        lost_at: numbers of the calls at which a worker is lost, counted over all runs.
    """

    made: list = []  # noqa: RUF012
    lost_at: tuple = ()
    num_calls = 0

    def __init__(self, executor, fewer=False):
        self.count = executor.workers - (1 if fewer and executor.workers > 1 else 0)
        self.places = [SimpleNamespace(threads=1) for _ in range(self.count)]
        self.about = [{"host": "here", "pid": worker, "cpu": "one"} for worker in range(self.count)]
        self.devices, self.data_shipped = ["cpu"] * self.count, False
        WorkersHere.made.append(self)

    def start(self, assigned, prepared):
        workers = [Worker() for _ in assigned]
        for worker, own in zip(workers, assigned, strict=True):
            worker.start(own_code.texts(), pickle.dumps(replace(own, threads=1)))
        self._shards = [worker._shard for worker in workers]

    def call(self, worker, method, *arguments):
        WorkersHere.num_calls += 1
        if WorkersHere.num_calls in WorkersHere.lost_at:
            raise WorkerLost("a worker was lost (this is a test).")
        return super().call(worker, method, *arguments)

    def close(self):
        if hasattr(self, "_shards"):
            super().close()


@contextmanager
def workers_here(monkeypatch, lost_at=()):
    """Give runs with the executor ray such workers; return the list of workers made."""
    with monkeypatch.context() as patched:
        patched.setattr(ray_workers, "RayWorkers", WorkersHere)
        WorkersHere.made, WorkersHere.lost_at, WorkersHere.num_calls = [], lost_at, 0
        yield WorkersHere.made
