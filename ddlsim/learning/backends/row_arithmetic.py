"""Jobs on parameter rows alone, on any device: copies, merges, robust aggregation, attacks, compression and
comparisons."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ddlsim import kernels
from ddlsim.learning.aggregating import aggregate
from ddlsim.learning.attacking import attack
from ddlsim.learning.backends.base import OTHER_KIND
from ddlsim.learning.bank import by_bank
from ddlsim.learning.comparing import compare
from ddlsim.learning.compressing import compress
from ddlsim.learning.job_types import (
    AggregateSpec,
    AttackSpec,
    ClassCosineSpec,
    CompressSpec,
    CopySpec,
    JobSpec,
    MergeSpec,
    SimilaritySpec,
)


class RowArithmetic:
    """The backend of these kinds; see base.py: Backend."""

    name = "rows"

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        """See Backend."""
        return ["" if kind in _RUNNERS else OTHER_KIND] * len(jobs)

    def run(self, kind: str, jobs: Sequence[JobSpec]) -> Sequence[Any]:
        """See Backend."""
        return _RUNNERS[kind](jobs) or [None] * len(jobs)

    def use_training(self, training: Any) -> None:
        """Nothing is trained here."""

    def close(self) -> None:
        """Nothing to do: this backend holds no threads and no memory."""


def _copy(jobs: Sequence[CopySpec]) -> None:
    for job in jobs:
        job.target.allocate()
        offset = 0
        for source, (start, stop) in zip(job.sources, job.columns, strict=True):
            job.target.values()[offset : offset + stop - start].copy_(source.values()[start:stop])
            offset += stop - start


def _merge(jobs: Sequence[MergeSpec]) -> None:
    for bank, places in by_bank([job.target for job in jobs]).items():
        some = [jobs[place] for place in places]
        bank.merge(
            [job.target for job in some], [list(job.sources) for job in some], [list(job.weights) for job in some]
        )


def _class_cosines(jobs: Sequence[ClassCosineSpec]) -> list[list[float]]:
    found = []
    for job in jobs:
        slots = np.array([row.slot for row in (job.own, *job.others)], dtype=np.int64)
        pairs = np.stack([np.zeros(len(slots) - 1, np.int64), np.arange(1, len(slots))], axis=1)
        columns = (0, job.own.size)
        values = kernels.class_cosine(job.own.bank.matrix, job.num_classes, columns, pairs, rows=slots)
        found.append([float(value) for value in values])
    return found


_RUNNERS: dict[str, Callable[[Sequence[Any]], list | None]] = {
    CopySpec.kind: _copy,
    MergeSpec.kind: _merge,
    AggregateSpec.kind: aggregate,
    AttackSpec.kind: attack,
    CompressSpec.kind: compress,
    ClassCosineSpec.kind: _class_cosines,
    SimilaritySpec.kind: compare,
}
