"""Waves of several runs that one process computes as one wave, so that on a GPU their nodes are one stack.

Nodes and clusters of the runs are numbered one run after the other, and rows keep the numbers of their runs in common
matrices. On the CPU each job is computed alone, so its bits do not depend on the other runs.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from ddlsim.learning.backends.base import Dispatcher
from ddlsim.learning.datasets import JoinedDatasets
from ddlsim.learning.learner import Learner
from ddlsim.learning.remote.rows import Wave
from ddlsim.learning.remote.shard import known_values


class JoinedRuns:
    """Runs whose waves can be computed together. A run joins before it has rows.

    Args:
        first: the first of them.
    """

    def __init__(self, first: Learner):
        self._learners = [first]
        self._backends: Dispatcher | None = None

    def add(self, other: Learner) -> bool:
        """Let another run of the same model and data set join, if it trains likewise; return whether it does."""
        first = self._learners[0]
        joins = (
            first.training == other.training
            and first.data.joins(other.data)
            and first.architectures.keys() == other.architectures.keys()
            and all(one.has_same_constants(other.architectures[name]) for name, one in first.architectures.items())
        )
        if joins:
            other.rows.share_banks(first.rows)
            self._learners.append(other)
        return joins

    def run(self, waves: Sequence[tuple[Learner, Wave]]) -> list[list[Any] | None]:
        """Compute waves of one kind, of different runs, as one; return the values of each, see Shard.compute."""
        if self._backends is None:
            self._backends = self._make_backends()
        first = {learner: number * len(learner.data.train) for number, learner in enumerate(self._learners)}
        jobs = [spec.bound(learner.rows, first[learner]) for learner, wave in waves for spec in wave.specs]
        values = iter(self._backends.run_distinct(waves[0][1].kind, jobs))
        return [known_values(wave, list(islice(values, len(wave.specs)))) for _, wave in waves]

    def _make_backends(self) -> Dispatcher:
        found = self._learners[0].backends_on(data=JoinedDatasets([learner.data for learner in self._learners]))
        for learner in self._learners:
            found.know(learner.backends.reasons)
            assert isinstance(learner.backends, Dispatcher)
            learner.backends.reasons = found.reasons  # each run's checkpoints hold what all have found
        return found
