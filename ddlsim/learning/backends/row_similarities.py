"""Similarities of models that nodes hold, computed a wave at a time: one list of pairs of rows per native call.

Only trained parameters count, never buffers; if they occupy several column ranges or parts, the sums of the ranges are
added. The native kernels sum in float64 (see kernels/similarity.py), and so does this file.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.kernels.matrices import downloaded
from ddlsim.kernels.similarity import DISTANCE_OFFSET, SMALLEST_NORM
from ddlsim.learning.bank import Row, lazy_values
from ddlsim.learning.job_types import SimilaritySpec

RowsOfModel = tuple[Row, ...]
PairOfModels = tuple[RowsOfModel, RowsOfModel, RowsOfModel | None, RowsOfModel | None]
"""Two models, and the rows to subtract from each first (None to subtract nothing)."""
Values = Callable[[], np.ndarray]
"""Function that waits for values [E] of pairs, float64."""


def compare(jobs: Sequence[SimilaritySpec]) -> list[Any]:
    """Return per job, which is bound to rows, its similarities in the order of its peers; `LazyValue` if a device
    computes them.
    """
    alike: dict[tuple, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        alike[job.metric, job.alpha, tuple((p.part.name, p.part.signature) for p in job.own)].append(index)
    groups = [
        (indices, _METRICS[metric]([jobs[index] for index in indices], alpha))
        for (metric, alpha, _), indices in alike.items()
    ]
    return values_of_jobs([len(job.peers) for job in jobs], groups, jobs[0].own[0].bank.device)


def values_of_jobs(
    sizes: Sequence[int], groups: Sequence[tuple[Sequence[int], Values]], device: torch.device
) -> list[Any]:
    """Return a list of floats per job; `LazyValue` if a device computes them.

    Args:
        sizes: number of values of each job.
        groups: numbers of some jobs, and a function that waits for the values of all of them.
        device: computes the values.
    """

    def get() -> list[list[float]]:
        found: list[list[float]] = [[] for _ in sizes]
        for jobs, wait in groups:
            values = iter(wait().tolist())
            for job in jobs:
                found[job] = list(islice(values, sizes[job]))
        return found

    return get() if device.type == "cpu" else lazy_values(get, len(sizes))


def _cosine_weights(jobs: list[SimilaritySpec], alpha: float) -> Values:
    return _cosines([(job.own, peer, None, None) for job in jobs for peer in job.peers])


def _cosine_gradients(jobs: list[SimilaritySpec], alpha: float) -> Values:
    """alpha * cosine of the last updates + (1 - alpha) * cosine of the updates since the start."""
    terms: list[tuple[float, Values]] = []
    if alpha > 0:
        last = [
            (job.own, peer, job.own_last, peer_last)
            for job in jobs
            for peer, peer_last in zip(job.peers, job.peers_last, strict=True)
        ]
        terms.append((alpha, _cosines(last)))
    if alpha < 1:
        since_start = [(job.own, peer, job.start, job.start) for job in jobs for peer in job.peers]
        terms.append((1 - alpha, _cosines(since_start)))
    return lambda: np.asarray(sum(weight * cosines() for weight, cosines in terms))


def _inverse_l2(jobs: list[SimilaritySpec], alpha: float) -> Values:
    pairs = [(job.own, peer, None, None) for job in jobs for peer in job.peers]
    squares = _products(pairs, kernels.sqdist)
    return lambda: 1 / (np.sqrt(squares()) + DISTANCE_OFFSET)


_METRICS = {"cosine_weights": _cosine_weights, "cosine_gradients": _cosine_gradients, "inverse_l2": _inverse_l2}


def _cosines(pairs: Sequence[PairOfModels]) -> Values:
    """Cosines [E]; a vector of zeros has cosine 0 with everything."""
    count = len(pairs)
    selves: dict[tuple[int | None, ...], int] = {}
    own: list[PairOfModels] = []
    norms_of = []
    for a, b, minus_a, minus_b in pairs:
        for model, minus in ((a, minus_a), (b, minus_b)):
            key = (*(params.slot for params in model), *(params.slot for params in minus or ()))
            if key not in selves:
                selves[key] = len(own)
                own.append((model, model, minus, minus))
            norms_of.append(selves[key])
    dots = _products([*pairs, *own], kernels.dots)

    def get() -> np.ndarray:
        products = dots()
        norms = np.sqrt(products[count:]).clip(SMALLEST_NORM)[np.array(norms_of, dtype=int)].reshape(-1, 2)
        with np.errstate(invalid="ignore"):  # models with infinite values: infinity / infinity is NaN, as it should be
            return (products[:count] / norms.prod(axis=1)).clip(-1, 1)

    return get


def _products(pairs: Sequence[PairOfModels], kernel: Callable[..., Any]) -> Values:
    """Dot products or squared distances [E] float64, summed over parts and over their trained columns."""
    terms: list[Values] = []
    for index, params in enumerate(pairs[0][0]):
        *places, positions = _rows_of(pairs, index)
        matrix, rows, minus = params.bank.in_one_matrix(*places)
        references = None if minus[0] < 0 else minus
        for columns in params.part.trainable_columns:
            found = kernel(matrix, pairs=positions, columns=columns, rows=rows, reference_rows=references)
            terms.append(downloaded(found) if isinstance(found, torch.Tensor) else partial(np.asarray, found))
    count = len(pairs)  # the waiting function holds no rows
    return lambda: sum((term() for term in terms), np.zeros(count))


def _rows_of(pairs: Sequence[PairOfModels], part: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of one part of the different models, the rows to subtract from them (-1 for nothing), and the pairs."""
    place: dict[tuple[int | None, int | None], int] = {}
    positions = []
    for a, b, minus_a, minus_b in pairs:
        for model, minus in ((a, minus_a), (b, minus_b)):
            key = (model[part].slot, -1 if minus is None else minus[part].slot)
            positions.append(place.setdefault(key, len(place)))
    rows, references = np.array(list(place), dtype=np.int64).T
    return rows, references, np.array(positions).reshape(-1, 2)
