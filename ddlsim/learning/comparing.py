"""Similarities of models that nodes hold, a wave at a time: one list of pairs over the bank's rows per native call.

Only trained parameters count, never buffers; where they lie in several column ranges, or in several parts, the sums of
the ranges add up. The native kernels sum in float64 (see kernels/products.py), and so does everything here.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.kernels.similarity import DISTANCE_OFFSET, SMALLEST_NORM
from ddlsim.kernels.transfers import downloaded
from ddlsim.learning.bank import Row
from ddlsim.learning.job_types import SimilaritySpec
from ddlsim.learning.later import laters

Model = tuple[Row, ...]
Pair = tuple[Model, Model, Model | None, Model | None]
"""Two models, and what to subtract from each first (None: nothing)."""
Values = Callable[[], np.ndarray]
"""Waits for values [E] of pairs, float64."""


def compare(jobs: Sequence[SimilaritySpec]) -> list[Any]:
    """The values of jobs that are bound to rows: per job its similarities, in the order of its peers; later.py: Later
    where a device computes them.
    """
    alike: dict[tuple, list[int]] = defaultdict(list)
    for index, job in enumerate(jobs):
        alike[job.metric, job.alpha, tuple((p.part.name, p.part.signature) for p in job.own)].append(index)
    peers = [len(job.peers) for job in jobs]
    asked = [
        (indices, _METRICS[metric]([jobs[index] for index in indices], alpha))
        for (metric, alpha, _), indices in alike.items()
    ]

    def get() -> list[list[float]]:
        found: list[list[float]] = [[] for _ in peers]
        for indices, similarities in asked:
            values = iter(similarities().tolist())
            for index in indices:
                found[index] = list(islice(values, peers[index]))
        return found

    return get() if jobs[0].own[0].bank.device.type == "cpu" else laters(get, len(peers))


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


def _cosines(pairs: Sequence[Pair]) -> Values:
    """Cosines [E]; a vector of zeros has cosine 0 with everything."""
    count = len(pairs)
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
    dots = _products([*pairs, *own], kernels.dots)

    def get() -> np.ndarray:
        products = dots()
        norms = np.sqrt(products[count:]).clip(SMALLEST_NORM)[np.array(norms_of, dtype=int)].reshape(-1, 2)
        with np.errstate(invalid="ignore"):  # models with infinite values: infinity / infinity is NaN, as it should be
            return (products[:count] / norms.prod(axis=1)).clip(-1, 1)

    return get


def _products(pairs: Sequence[Pair], kernel: Callable[..., Any]) -> Values:
    """Dot products or squared distances [E] float64, summed over parts and over their trained columns."""
    terms: list[Values] = []
    for index, params in enumerate(pairs[0][0]):
        matrix = params.bank.matrix
        rows, references, positions = _rows_of(pairs, index)
        for columns in params.part.trainable_columns:
            found = kernel(matrix, pairs=positions, columns=columns, rows=rows, reference_rows=references)
            terms.append(downloaded(found) if isinstance(found, torch.Tensor) else partial(np.asarray, found))
    count = len(pairs)  # what waits holds no rows
    return lambda: sum((term() for term in terms), np.zeros(count))


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
