"""Similarities of models that nodes hold, a wave at a time: one list of pairs over the bank's rows per native call.

Only trained parameters count, never buffers; where they lie in several column ranges, or in several parts, the sums of
the ranges add up. The native kernels sum in float64 (see kernels/products.py), and so does everything here.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ddlsim import kernels
from ddlsim.kernels.similarity import DISTANCE_OFFSET, SMALLEST_NORM
from ddlsim.learning.bank import Row
from ddlsim.learning.job_types import SimilaritySpec

Model = tuple[Row, ...]
Pair = tuple[Model, Model, Model | None, Model | None]
"""Two models, and what to subtract from each first (None: nothing)."""


def compare(jobs: Sequence[SimilaritySpec]) -> list[list[float]]:
    """The values of jobs that are bound to rows: per job its similarities, in the order of its peers."""
    alike: dict[tuple, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        alike[job.metric, job.alpha, tuple((p.part.name, p.part.signature) for p in job.own)].append(index)
    found: list[list[float]] = [[] for _ in jobs]
    for (metric, alpha, _), indices in alike.items():
        group = [jobs[index] for index in indices]
        values = iter(_METRICS[metric](group, alpha).tolist())
        for index, job in zip(indices, group, strict=True):
            found[index] = [next(values) for _ in job.peers]
    return found


def _cosine_weights(jobs: list[SimilaritySpec], alpha: float) -> np.ndarray:
    return _cosines([(job.own, peer, None, None) for job in jobs for peer in job.peers])


def _cosine_gradients(jobs: list[SimilaritySpec], alpha: float) -> np.ndarray:
    """alpha * cosine of the last updates + (1 - alpha) * cosine of the updates since the start."""
    mixed: np.ndarray | float = 0.0
    if alpha > 0:
        last = [
            (job.own, peer, job.own_last, peer_last)
            for job in jobs
            for peer, peer_last in zip(job.peers, job.peers_last, strict=True)
        ]
        mixed = mixed + alpha * _cosines(last)
    if alpha < 1:
        since_start = [(job.own, peer, job.start, job.start) for job in jobs for peer in job.peers]
        mixed = mixed + (1 - alpha) * _cosines(since_start)
    return np.asarray(mixed)


def _inverse_l2(jobs: list[SimilaritySpec], alpha: float) -> np.ndarray:
    pairs = [(job.own, peer, None, None) for job in jobs for peer in job.peers]
    return 1 / (np.sqrt(_products(pairs, kernels.sqdist)) + DISTANCE_OFFSET)


_METRICS = {"cosine_weights": _cosine_weights, "cosine_gradients": _cosine_gradients, "inverse_l2": _inverse_l2}


def _cosines(pairs: Sequence[Pair]) -> np.ndarray:
    """Cosines [E]; a vector of zeros has cosine 0 with everything."""
    selves: dict[tuple[int | None, ...], int] = {}
    own: list[Pair] = []
    norms_of = []
    for a, b, minus_a, minus_b in pairs:
        for model, minus in ((a, minus_a), (b, minus_b)):
            key = (*(params.slot for params in model), *(params.slot for params in minus or ()))
            if key not in selves:
                selves[key] = len(own)
                own.append((model, model, minus, minus))
            norms_of.append(selves[key])
    products = _products([*pairs, *own], kernels.dots)
    norms = np.sqrt(products[len(pairs) :]).clip(SMALLEST_NORM)[np.array(norms_of, dtype=int)].reshape(-1, 2)
    with np.errstate(invalid="ignore"):  # models with infinite values: infinity / infinity is NaN, as it should be
        return (products[: len(pairs)] / norms.prod(axis=1)).clip(-1, 1)


def _products(pairs: Sequence[Pair], kernel: Callable[..., Any]) -> np.ndarray:
    """Dot products or squared distances [E] float64, summed over parts and over their trained columns."""
    total = np.zeros(len(pairs))
    for index, params in enumerate(pairs[0][0]):
        matrix = params.bank.matrix
        rows, references, positions = _rows_of(pairs, index)
        for columns in params.part.trainable_columns:
            found = kernel(matrix, pairs=positions, columns=columns, rows=rows, reference_rows=references)
            total += found.cpu().numpy() if hasattr(found, "cpu") else found
    return total


def _rows_of(pairs: Sequence[Pair], part: int) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Rows of one part of the different models, the rows to subtract from them (None: nothing), and the pairs."""
    place: dict[tuple[int | None, int | None], int] = {}
    positions = []
    for a, b, minus_a, minus_b in pairs:
        for model, minus in ((a, minus_a), (b, minus_b)):
            key = (model[part].slot, -1 if minus is None else minus[part].slot)
            positions.append(place.setdefault(key, len(place)))
    both = np.array(list(place), dtype=np.int64)
    nothing = both[0, 1] < 0
    return both[:, 0].copy(), None if nothing else both[:, 1].copy(), np.array(positions).reshape(-1, 2)
