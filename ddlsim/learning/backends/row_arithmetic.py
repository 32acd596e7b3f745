"""Jobs on parameter rows alone, on any device: copies, merges, robust aggregation, functions, attacks, compression and
comparisons."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.kernels.matrices import downloaded, uploaded
from ddlsim.learning import job_types
from ddlsim.learning.backends.base import OTHER_KIND, Backend
from ddlsim.learning.backends.row_similarities import Values, compare, values_of_jobs
from ddlsim.learning.bank import by_bank, stacked_rows
from ddlsim.learning.job_spec import JobSpec
from ddlsim.learning.row_operations import aggregate, apply, attack, compress

MOST_VALUES = 1 << 22
"""Number of parameters that a step of a consensus distance copies."""


class RowArithmetic(Backend):
    """The backend of these kinds."""

    name = "rows"

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        return ["" if kind in _RUNNERS else OTHER_KIND] * len(jobs)

    def run(self, kind: str, jobs: Sequence[JobSpec]) -> Sequence[Any]:
        return _RUNNERS[kind](jobs) or [None] * len(jobs)


def _copy(jobs: Sequence[job_types.CopySpec]) -> None:
    for job in jobs:
        job.target.allocate()
        source, target, puts = job.source.values(), job.target.values(), job.into is not None
        if job.into is not None:
            target.copy_(job.into.values())
        if isinstance(job.columns, np.ndarray):
            places = uploaded(job.columns, target.device)
            if puts:
                target.index_copy_(0, places, source)
            else:
                torch.index_select(source, 0, places, out=target)
            continue
        at = 0
        for start, stop in job.columns:
            packed = slice(at, at + stop - start)
            if puts:
                target[start:stop].copy_(source[packed])
            else:
                target[packed].copy_(source[start:stop])
            at = packed.stop


def _merge(jobs: Sequence[job_types.MergeSpec]) -> None:
    for bank, places in by_bank([job.target for job in jobs]).items():
        some = [jobs[place] for place in places]
        bank.merge(
            [job.target for job in some], [list(job.sources) for job in some], [list(job.weights) for job in some]
        )


def _class_cosines(jobs: Sequence[job_types.ClassCosineSpec]) -> list[Any]:
    """Compute all jobs whose classifiers are in one bank in one call, so that a device receives their pairs once;
    values are `LazyValue` if a device computes them.
    """
    alike: dict[tuple, list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        alike[job.own.bank, job.num_classes].append(place)
    groups: list[tuple[list[int], Values]] = []
    for (bank, num_classes), places in alike.items():
        slots = [(jobs[place].own.slot, other.slot) for place in places for other in jobs[place].others]
        rows, pairs = np.unique(np.array(slots, dtype=np.int64), return_inverse=True)
        matrix, rows = bank.in_one_matrix(rows)
        cosines = kernels.class_cosine(matrix, num_classes, (0, bank.size), pairs.reshape(-1, 2), rows=rows)
        groups.append((places, downloaded(torch.as_tensor(cosines))))
    return values_of_jobs([len(job.others) for job in jobs], groups, jobs[0].own.bank.device)


def _read(jobs: Sequence[job_types.ReadSpec]) -> list[Any]:
    groups = [((place,), downloaded(stacked_rows(job.sources).flatten())) for place, job in enumerate(jobs)]
    return values_of_jobs([len(job.sources) for job in jobs], groups, jobs[0].sources[0].bank.device)


def _distances(jobs: Sequence[job_types.ConsensusSpec]) -> list[Any]:
    """Sum in double precision, some rows at a time, so that no second copy of all models is needed."""
    groups = []
    for place, job in enumerate(jobs):
        few, count = max(1, MOST_VALUES // job.sources[0].size), len(job.sources)
        pieces = [job.sources[first : first + few] for first in range(0, count, few)]
        sums = [stacked_rows(rows).sum(0, dtype=torch.float64) for rows in pieces]
        mean = (torch.stack(sums).sum(0) / count).float()
        squares = [(stacked_rows(rows) - mean).square().sum(1, dtype=torch.float64) for rows in pieces]
        groups.append(((place,), downloaded(torch.cat(squares))))
    return values_of_jobs([len(job.sources) for job in jobs], groups, jobs[0].sources[0].bank.device)


_RUNNERS: dict[str, Callable[[Sequence[Any]], list | None]] = {
    job_types.CopySpec.kind: _copy,
    job_types.MergeSpec.kind: _merge,
    job_types.AggregateSpec.kind: aggregate,
    job_types.ApplySpec.kind: apply,
    job_types.AttackSpec.kind: attack,
    job_types.CompressSpec.kind: compress,
    job_types.ClassCosineSpec.kind: _class_cosines,
    job_types.SimilaritySpec.kind: compare,
    job_types.ReadSpec.kind: _read,
    job_types.ConsensusSpec.kind: _distances,
}
