"""Krum, multi-Krum, coordinate-wise rules and the geometric median.

Krum and multi-Krum select the rows nearest to most others.

Source: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries: Byzantine tolerant gradient
descent", NeurIPS 2017. The score of a row is the sum of its squared distances from its n - f - 2 nearest others; the
lowest scores win. Of equal scores the node's own row comes first, then the lowest node id. With fewer than f + 3 rows,
for which the paper's score is not defined, f is as large as it can be.

Median, trimmed mean and BRIDGE treat every coordinate separately.

Sources: Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates",
ICML 2018 (median, trimmed mean); Fang, Yang, Bajwa, "BRIDGE: Byzantine-resilient decentralized gradient descent", IEEE
Transactions on Signal and Information Processing over Networks 2022 (variants T, M and K; its variant B, Bulyan, is not
here). The weights of the algorithm's average are not used: order statistics count every row once.

If a node has fewer than 2 * trim + 1 rows, the trim is as large as possible, which gives the median.

The geometric median is the point with the smallest weighted sum of distances to all rows.

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


def krum_mean(rows: Rows, byzantine: int | float, selected: int) -> Combination:
    """Return the mean of the `selected` rows of lowest score."""
    n = rows.count
    f = tolerated(byzantine, n, max(0, n - 3))
    others = np.sort(rows.sqdist[:n, :n] + np.diag(np.full(n, np.inf)), axis=1)
    scores = others[:, : max(1, n - f - 2)].sum(axis=1) if n > 1 else np.zeros(1)
    not_own = np.arange(n) != (-1 if rows.own is None else rows.own)
    weights = np.zeros(n)
    weights[np.lexsort((np.arange(n), not_own, scores))[:selected]] = 1 / selected
    return weighted_sum(weights)


@dataclass(frozen=True, kw_only=True)
class Krum(Aggregation):
    """The row nearest to most others.

    Args:
        byzantine: attackers among the rows: a number, or a share of them.
    """

    needs_distances: ClassVar[bool] = True
    byzantine: Tolerated = 1

    def combine(self, rows: Rows) -> Combination:
        return krum_mean(rows, self.byzantine, 1)


@dataclass(frozen=True, kw_only=True)
class MultiKrum(Aggregation):
    """The mean of the rows nearest to most others.

    Args:
        byzantine: attackers among the rows: a number, or a share of them.
        selected: number of averaged rows; null: all except the number of possible attackers' rows.
    """

    needs_distances: ClassVar[bool] = True
    byzantine: Tolerated = 1
    selected: Annotated[int, Ge(1)] | None = None

    def combine(self, rows: Rows) -> Combination:
        f = tolerated(self.byzantine, rows.count, rows.count - 1)
        return krum_mean(rows, self.byzantine, min(rows.count, self.selected or rows.count - f))


@dataclass(frozen=True, kw_only=True)
class Median(Aggregation):
    """In every coordinate the median of all rows, including the node's own."""

    def combine(self, rows: Rows) -> Combination:
        return Combination(cut=(rows.count - 1) // 2)


@dataclass(frozen=True, kw_only=True)
class TrimmedMean(Aggregation):
    """In every coordinate the mean without the lowest and the highest values.

    Args:
        trim: values left out at each end: a number, or a share of the rows.
    """

    trim: Tolerated = 1

    def combine(self, rows: Rows) -> Combination:
        return Combination(cut=tolerated(self.trim, rows.count, (rows.count - 1) // 2))


@dataclass(frozen=True, kw_only=True)
class Bridge(Aggregation):
    """BRIDGE: screens the neighbors' models, and keeps the node's own model.

    Args:
        variant: T: the trimmed mean of the neighbors' values, including the node's own untrimmed; M: the median of all;
            K: the row that Krum selects.
        byzantine: attackers among the neighbors: a number, or a share of the rows.
    """

    needs_own: ClassVar[bool] = True
    needs_distances: ClassVar[bool] = True  # of K only
    variant: Literal["T", "M", "K"] = "T"
    byzantine: Tolerated = 1

    def idle(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.variant == "M":
            yield "byzantine", "variant M is the median of all"

    def combine(self, rows: Rows) -> Combination:
        if self.variant == "M":
            return Combination(cut=(rows.count - 1) // 2)
        if self.variant == "K":
            return krum_mean(rows, self.byzantine, 1)
        cut = tolerated(self.byzantine, rows.count, (rows.count - 2) // 2)
        return Combination(cut=cut, kept=rows.own)


@dataclass(frozen=True, kw_only=True)
class GeometricMedian(Aggregation):
    """The point with the smallest sum of distances to all rows, weighted as in the algorithm's average.

    Args:
        iterations: maximum number of Weiszfeld's steps.
        smoothing: distances below this share of the rows' usual distance are raised to it. The usual distance is the
            median over rows of the median of their distances to the others, which a minority of attackers cannot set.
    """

    needs_distances: ClassVar[bool] = True
    iterations: Count = 1000
    smoothing: Annotated[float, Gt(0)] = 1e-7

    def combine(self, rows: Rows) -> Combination:
        distances = rows.sqdist[: rows.count, : rows.count]
        return weighted_sum(_weiszfeld(distances, rows.weights, self.iterations, self.smoothing))


def _weiszfeld(distances: np.ndarray, masses: np.ndarray, iterations: int, smoothing: float) -> np.ndarray:
    """Return the weights of the rows in their geometric median, [n].

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
        change, weights = np.abs(new - weights).max(), new
        if change < 1e-12:
            break
    return weights


def _usual(distances: np.ndarray) -> float:
    """Return the median over rows of the median of their squared distances to the others (the lower of two)."""
    count = len(distances)
    of_rows = np.sort(distances, axis=1)[:, count // 2]  # after a row's own, which is 0
    return float(np.sort(of_rows)[(count - 1) // 2])
