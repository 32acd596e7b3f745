"""Waves of training that begin before a value needs them, where another device or process computes meanwhile.

A wave of training is full when every node that takes part has one pending: no further training can join it before one
of these is over. It is launched at once, and the simulation goes on. What never becomes full (a server that asks some
clients only, nodes that keep no common time) runs when a value needs it, or at a flush (jobs.py).

That simulated time has passed a submission does not make a wave full: in asynchronous runs the nodes begin one after
the other, and each would train alone.
"""

from collections.abc import Callable, Iterable

from ddlsim.learning.job_types import TrainSpec
from ddlsim.learning.jobs import Job, Jobs


class FullWaves:
    """Launches full waves of training. What is launched, and when, depends on simulated events alone.

    Args:
        jobs: the queue.
        num_training: how many nodes there are now that train.
    """

    def __init__(self, jobs: Jobs, num_training: Callable[[], int]):
        self._jobs = jobs
        self._num_training = num_training
        self._pending: dict[int, list[Job]] = {}  # per node its trainings, the oldest first

    def submitted(self, node: int, job: Job) -> None:
        """A node's training has been enqueued, one that ran in an earlier process (replay.py) perhaps."""
        if job.done:
            return
        self._pending.setdefault(node, []).append(job)
        if self._jobs.past is not None or not self._full():
            return
        self._forget_over()
        if self._full():
            self._jobs.force(_first_trainings(self._pending.values()))
            self._forget_over()

    def _full(self) -> bool:
        return len(self._pending) >= max(1, self._num_training())

    def _forget_over(self) -> None:
        """Leaves out trainings that have run, or that nothing wants because their node has left."""
        kept = {node: [job for job in own if job.wanted and not job.done] for node, own in self._pending.items()}
        self._pending = {node: own for node, own in kept.items() if own}


def _first_trainings(of_nodes: Iterable[list[Job]]) -> list[Job]:
    """The trainings that wait for no other training: a node's second one belongs to the next wave."""
    return [job for own in of_nodes for job in own if not _waits_for_training(job)]


def _waits_for_training(job: Job) -> bool:
    """Whether a row that it reads, or that one of the jobs before it reads, is still to be trained."""
    seen: set[Job] = set()
    stack = [job]
    while stack:
        for row in stack.pop().inputs:
            if row.slot is None and row.job not in seen:
                if row.job.kind == TrainSpec.kind:
                    return True
                seen.add(row.job)
                stack.append(row.job)
    return False
