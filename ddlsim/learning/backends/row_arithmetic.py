"""Jobs on parameter rows alone, on any device: copies, merges, robust aggregation, attacks, compression and
comparisons."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.kernels.transfers import downloaded
from ddlsim.learning.backends.base import OTHER_KIND, Backend
from ddlsim.learning.bank import by_bank, laters
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
from ddlsim.learning.row_operations import aggregate, attack, compare, compress


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
    """Compute all jobs whose classifiers lie in one matrix in one call, so that a device receives their pairs once;
    values are `LazyValue` if a device computes them.
    """
    alike: dict[tuple, list[int]] = defaultdict(list)
    for place, job in enumerate(jobs):
        alike[job.own.bank, job.num_classes].append(place)
    count = len(jobs)
    asked: list[tuple[list[int], list[np.ndarray], Callable[[], np.ndarray]]] = []
    for (bank, num_classes), places in alike.items():
        slots = [[row.slot for row in (jobs[place].own, *jobs[place].others)] for place in places]
        rows, inverse = np.unique(np.concatenate(slots), return_inverse=True)
        numbers = np.split(inverse, np.cumsum([len(each) for each in slots])[:-1])
        pairs = np.concatenate([np.stack([np.full(len(own) - 1, own[0]), own[1:]], axis=1) for own in numbers])
        cosines = kernels.class_cosine(bank.matrix, num_classes, (0, bank.size), pairs, rows=rows)
        asked.append((places, numbers, downloaded(torch.as_tensor(cosines))))

    def get() -> list[list[float]]:
        found: list[list[float]] = [[] for _ in range(count)]
        for places, numbers, cosines in asked:
            values = iter(cosines().tolist())
            for place, own in zip(places, numbers, strict=True):
                found[place] = list(islice(values, len(own) - 1))
        return found

    return get() if jobs[0].own.bank.device.type == "cpu" else laters(get, count)


_RUNNERS: dict[str, Callable[[Sequence[Any]], list | None]] = {
    CopySpec.kind: _copy,
    MergeSpec.kind: _merge,
    AggregateSpec.kind: aggregate,
    AttackSpec.kind: attack,
    CompressSpec.kind: compress,
    ClassCosineSpec.kind: _class_cosines,
    SimilaritySpec.kind: compare,
}
