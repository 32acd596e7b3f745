"""Jobs on parameter rows alone, on any device: copies, merges, robust aggregation, attacks, compression and
comparisons."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.kernels.transfers import downloaded
from ddlsim.learning.backends.base import OTHER_KIND, Backend
from ddlsim.learning.bank import by_bank
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
from ddlsim.learning.row_operations import Values, aggregate, attack, compare, compress, values_of_jobs


class RowArithmetic(Backend):
    """The backend of these kinds."""

    name = "rows"

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        return ["" if kind in _RUNNERS else OTHER_KIND] * len(jobs)

    def run(self, kind: str, jobs: Sequence[JobSpec]) -> Sequence[Any]:
        return _RUNNERS[kind](jobs) or [None] * len(jobs)


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


def _class_cosines(jobs: Sequence[ClassCosineSpec]) -> list[Any]:
    """Compute all jobs whose classifiers are in one matrix in one call, so that a device receives their pairs once;
    values are `LazyValue` if a device computes them.
    """
    alike: dict[tuple, list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        alike[job.own.bank, job.num_classes].append(place)
    groups: list[tuple[list[int], Values]] = []
    for (bank, num_classes), places in alike.items():
        slots = [(jobs[place].own.slot, other.slot) for place in places for other in jobs[place].others]
        rows, pairs = np.unique(np.array(slots, dtype=np.int64), return_inverse=True)
        cosines = kernels.class_cosine(bank.matrix, num_classes, (0, bank.size), pairs.reshape(-1, 2), rows=rows)
        groups.append((places, downloaded(torch.as_tensor(cosines))))
    return values_of_jobs([len(job.others) for job in jobs], groups, jobs[0].own.bank.device)


_RUNNERS: dict[str, Callable[[Sequence[Any]], list | None]] = {
    CopySpec.kind: _copy,
    MergeSpec.kind: _merge,
    AggregateSpec.kind: aggregate,
    AttackSpec.kind: attack,
    CompressSpec.kind: compress,
    ClassCosineSpec.kind: _class_cosines,
    SimilaritySpec.kind: compare,
}
