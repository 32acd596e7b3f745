"""Krum and multi-Krum: the rows that lie nearest to most others.

Source: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries: Byzantine tolerant gradient
descent", NeurIPS 2017. The score of a row is the sum of its squared distances from its n - f - 2 nearest others; the
lowest scores win. Of equal scores the node's own row comes first, then the lowest node id. With fewer than f + 3 rows,
for which the paper's score is not defined, f is as large as it can be.

Rules that look at every coordinate alone: median, trimmed mean, and BRIDGE.

Sources: Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates",
ICML 2018 (median, trimmed mean); Fang, Yang, Bajwa, "BRIDGE: Byzantine-resilient decentralized gradient descent", IEEE
Transactions on Signal and Information Processing over Networks 2022 (variants T, M and K; its variant B, Bulyan, is not
here). The weights of the algorithm's average play no part: order statistics count every row once.

Where a node has fewer rows than twice the trim and one, the trim is as large as it can be, which is the median.

The geometric median: the point whose distances to all rows, weighted, have the smallest sum.

Sources: Weiszfeld's iteration as in Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning" (RFA),
IEEE Transactions on Signal Processing 2022, Algorithm 1 with its smoothing. Every iterate is a weighted sum of the
rows, so its distances follow from those between the rows, and the rows themselves are read once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from ddlsim.aggregation.base import Aggregation, Combination, Rows, Tolerated, tolerated, weighted_sum
from ddlsim.foundation.units import Count


@dataclass(frozen=True)
class Ranked:
    """Places of rows, the one of the lowest score first.

    Args:
        places: all of them.
    """

    places: np.ndarray

    def first(self, count: int) -> Combination:
        """The mean of the first ones."""
        weights = np.zeros(len(self.places))
        weights[self.places[:count]] = 1 / count
        return weighted_sum(weights)


def krum_order(rows: Rows, byzantine: int | float) -> Ranked:
    """The rows by their scores."""
    n = rows.count
    f = tolerated(byzantine, n, max(0, n - 3))
    others = np.sort(rows.sqdist[:n, :n] + np.diag(np.full(n, np.inf)), axis=1)
    scores = others[:, : max(1, n - f - 2)].sum(axis=1) if n > 1 else np.zeros(1)
    not_own = np.arange(n) != (-1 if rows.own is None else rows.own)
    return Ranked(np.lexsort((np.arange(n), not_own, scores)))


@dataclass(frozen=True, kw_only=True)
class Krum(Aggregation):
    """The one row that lies nearest to most others.

    Args:
        byzantine: attackers among the rows: a number, or a share of them.
    """

    needs_distances: ClassVar[bool] = True
    byzantine: Tolerated = 1

    def combine(self, rows: Rows) -> Combination:
        return krum_order(rows, self.byzantine).first(1)


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Aggregation):
    """The mean of the rows that lie nearest to most others.

    Args:
        byzantine: attackers among the rows: a number, or a share of them.
        selected: how many rows are averaged; null: all but so many as may be attackers'.
    """

    needs_distances: ClassVar[bool] = True
    byzantine: Tolerated = 1
    selected: Annotated[int, Ge(1)] | None = None

    def combine(self, rows: Rows) -> Combination:
        f = tolerated(self.byzantine, rows.count, rows.count - 1)
        return krum_order(rows, self.byzantine).first(min(rows.count, self.selected or rows.count - f))


@dataclass(frozen=True, kw_only=True)
class Median(Aggregation):
    """In every coordinate the median of all rows, the node's own among them."""

    def combine(self, rows: Rows) -> Combination:
        return Combination(cut=(rows.count - 1) // 2)


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Aggregation):
    """In every coordinate the mean without the lowest and the highest values.

    Args:
        trim: how many values are left out at each end: a number, or a share of the rows.
    """

    trim: Tolerated = 1

    def combine(self, rows: Rows) -> Combination:
        return Combination(cut=tolerated(self.trim, rows.count, (rows.count - 1) // 2))


@dataclass(frozen=True, kw_only=True)
class Bridge(Aggregation):
    """BRIDGE: screens what the neighbors have sent, and keeps the node's own model.

    Args:
        variant: T: the trimmed mean of the neighbors' values, into which the node's own goes untrimmed; M: the median
            of all; K: the one that Krum selects.
        byzantine: attackers among the neighbors: a number, or a share of the rows.
    """

    needs_own: ClassVar[bool] = True
    needs_distances: ClassVar[bool] = True  # of K alone
    variant: Literal["T", "M", "K"] = "T"
    byzantine: Tolerated = 1

    def idle(self, rounds: int) -> Iterator[tuple[str, str]]:
        """See Part."""
        if self.variant == "M":
            yield "byzantine", "variant M is the median of all"

    def combine(self, rows: Rows) -> Combination:
        if self.variant == "M":
            return Combination(cut=(rows.count - 1) // 2)
        if self.variant == "K":
            return krum_order(rows, self.byzantine).first(1)
        cut = tolerated(self.byzantine, rows.count, (rows.count - 2) // 2)
        return Combination(cut=cut, kept=rows.own)


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Aggregation):
    """The point whose distances to all rows have the smallest sum, each weighted as in the algorithm's average.

    Args:
        iterations: at most so many of Weiszfeld's steps.
        smoothing: distances below this share of the rows' usual one count as so long. The usual one is the median over
            rows of the median of their distances to the others, which a minority of attackers cannot set.
    """

    needs_distances: ClassVar[bool] = True
    iterations: Count = 1000
    smoothing: Annotated[float, Gt(0)] = 1e-7

    def combine(self, rows: Rows) -> Combination:
        distances = rows.sqdist[: rows.count, : rows.count]
        return weighted_sum(_weiszfeld(distances, rows.weights, self.iterations, self.smoothing))


def _weiszfeld(distances: np.ndarray, masses: np.ndarray, iterations: int, smoothing: float) -> np.ndarray:
    """Weights of the rows in their geometric median, [n].

    The squared distance of sum_j w_j x_j from x_i is sum_j w_j d_ij - sum_jk w_j w_k d_jk / 2, for weights of sum 1.
    """
    if not masses.sum() > 0:
        masses = np.ones_like(masses)
    weights = masses / masses.sum()
    apart = distances[distances > 0]
    if not len(apart):
        return weights
    shortest = smoothing * np.sqrt(_usual(distances) or apart.min())
    for _ in range(iterations):
        to_rows = distances @ weights
        lengths = np.sqrt(np.maximum(to_rows - weights @ to_rows / 2, 0))
        new = masses / np.maximum(lengths, shortest)
        new /= new.sum()
        moved, weights = np.abs(new - weights).max(), new
        if moved < 1e-12:
            break
    return weights


def _usual(distances: np.ndarray) -> float:
    """The median over rows of the median of their squared distances to the others; the lower one of two each time."""
    count = len(distances)
    of_rows = np.sort(distances, axis=1)[:, count // 2]  # behind a row's own, which is 0
    return float(np.sort(of_rows)[(count - 1) // 2])
