"""Jobs on parameter rows alone, on any device: copies, merges, robust aggregation, functions, attacks, compression and
comparisons."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.kernels.matrices import downloaded
from ddlsim.learning import job_types
from ddlsim.learning.backends.base import OTHER_KIND, Backend
from ddlsim.learning.bank import by_bank
from ddlsim.learning.row_operations import Values, aggregate, apply, attack, compare, compress, values_of_jobs


class RowArithmetic(Backend):
    """The backend of these kinds."""

    name = "rows"

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        return ["" if kind in _RUNNERS else OTHER_KIND] * len(jobs)

    def run(self, kind: str, jobs: Sequence[job_types.JobSpec]) -> Sequence[Any]:
        return _RUNNERS[kind](jobs) or [None] * len(jobs)


def _copy(jobs: Sequence[job_types.CopySpec]) -> None:
    for job in jobs:
        job.target.allocate()
        offset = 0
        for source, (start, stop) in zip(job.sources, job.columns, strict=True):
            job.target.values()[offset : offset + stop - start].copy_(source.values()[start:stop])
            offset += stop - start


def _merge(jobs: Sequence[job_types.MergeSpec]) -> None:
    for bank, places in by_bank([job.target for job in jobs]).items():
        some = [jobs[place] for place in places]
        bank.merge(
            [job.target for job in some], [list(job.sources) for job in some], [list(job.weights) for job in some]
        )


def _class_cosines(jobs: Sequence[job_types.ClassCosineSpec]) -> list[Any]:
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
    job_types.CopySpec.kind: _copy,
    job_types.MergeSpec.kind: _merge,
    job_types.AggregateSpec.kind: aggregate,
    job_types.ApplySpec.kind: apply,
    job_types.AttackSpec.kind: attack,
    job_types.CompressSpec.kind: compress,
    job_types.ClassCosineSpec.kind: _class_cosines,
    job_types.SimilaritySpec.kind: compare,
}
