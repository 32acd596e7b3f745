"""Robust aggregation: Krum, coordinate-wise rules, geometric median, clipping, nearest-neighbor mixing.

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

ClippedGossip and self-centered clipping limit the influence of other models.

Sources: He, Karimireddy, Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022; Karimireddy, He,
Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021 (centered clipping, Algorithm 2). With
clip(z) = z min(1, tau / |z|) and the weights w of the algorithm's average a step is

    v := v + sum_j w_j clip(x_j - v),  from v = x_own.

ClippedGossip takes one such step. Without a fixed radius, tau is the second largest distance of a neighbor's model from
the node's own, as in the code of its authors (epfml/byzantine-robust-decentralized-optimizer, SelfCenteredClipping with
tau None); `byzantine` sets the number of largest distances that are skipped (1 there). The radius of the paper's
analysis depends on the attackers, so neither the authors' code nor ddlsim uses it.

Cosine clipping: a neighbor's update counts by its cosine with the node's own update, and is scaled to its length.

Source: Cao, Fang, Liu, Gong, "FLTrust: Byzantine-robust federated learning via trust bootstrapping", NDSS 2021, without
a server: the node's own samples replace the server's root data set, and its own update replaces the server's. With g_j
= x_j - s, s being the start of the node's last training, and the node's own trust 1:

    trust_j = max(0, cos(g_j, g_own)),   x := s + sum_j trust_j (|g_own| / |g_j|) g_j / sum_j trust_j.

If the node has not trained the averaged parameters (such as another head of FACADE) there is no update to compare: its
own parameters then replace g_own, and the received ones g_j (s = 0).

Nearest-neighbor mixing: every row becomes the mean of its nearest rows, and another rule combines these means.

Source: Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, "Fixing by mixing: a recipe for optimal Byzantine ML
under heterogeneity", AISTATS 2023, Algorithm 2: y_i is the mean of the n - f rows nearest to x_i, x_i among them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt

from ddlsim.aggregation.base import Aggregation, Combination, Mean, Rows, Tolerated, tolerated, weighted_sum
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

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
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


@dataclass(frozen=True, kw_only=True)
class ClippedGossip(Aggregation):
    """Clips the neighbors' pull to a radius that follows from their distances.

    Args:
        byzantine: attackers among the neighbors: a number, or a share of the rows. The radius is the largest distance
            of the other neighbors.
        radius: maximum pull of a neighbor, as an L2 norm; null: adaptive.
    """

    needs_own: ClassVar[bool] = True
    needs_distances: ClassVar[bool] = True
    byzantine: Tolerated = 1
    radius: Annotated[float, Gt(0)] | None = None

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.radius is not None:
            yield "byzantine", "radius is given, and does not adapt"

    def combine(self, rows: Rows) -> Combination:
        assert rows.own is not None
        lengths, radius = np.sqrt(rows.sqdist[rows.own, : rows.count]), self.radius
        if radius is None:
            others = np.sort(np.delete(lengths, rows.own))
            trusted = others[: len(others) - tolerated(self.byzantine, rows.count, len(others))]
            radius = trusted[-1] if len(trusted) else 0.0
        return weighted_sum(_step(rows.weights, lengths, radius, np.eye(rows.count)[rows.own]))


@dataclass(frozen=True, kw_only=True)
class SelfCenteredClipping(Aggregation):
    """Clips the neighbors' pull to a fixed radius, around the node's own model.

    Args:
        radius: tau: maximum pull of a neighbor, as an L2 norm.
        iterations: number of steps, each around the result of the previous one.
    """

    needs_own: ClassVar[bool] = True
    needs_distances: ClassVar[bool] = True
    radius: Annotated[float, Gt(0)] = 1.0
    iterations: Count = 1

    def combine(self, rows: Rows) -> Combination:
        distances = rows.sqdist[: rows.count, : rows.count]
        center = np.eye(rows.count)[rows.own]
        for _ in range(self.iterations):
            to_rows = distances @ center
            lengths = np.sqrt(np.maximum(to_rows - center @ to_rows / 2, 0))
            center = _step(rows.weights, lengths, self.radius, center)
        return weighted_sum(center)


def _step(weights: np.ndarray, lengths: np.ndarray, radius: float, center: np.ndarray) -> np.ndarray:
    """Return the weights of the rows in v + sum_j w_j clip(x_j - v).

    Args:
        weights: w, [n].
        lengths: |x_j - v|, [n].
        radius: tau.
        center: weights of the rows in v, [n].
    """
    within = lengths <= radius
    shares = weights * np.where(within, 1.0, radius / np.where(within | (lengths == 0), 1.0, lengths))
    return center * (1 - shares.sum()) + shares


@dataclass(frozen=True, kw_only=True)
class CosineClipping(Aggregation):
    """FLTrust without a server: updates count by their cosine with the node's own, scaled to its length."""

    needs_own: ClassVar[bool] = True
    needs_distances: ClassVar[bool] = True
    needs_start: ClassVar[bool] = True

    def combine(self, rows: Rows) -> Combination:
        n, own = rows.count, rows.own
        squared = rows.sqdist[n, :n]  # |g_j|^2
        norms = np.sqrt(squared)
        products = (squared + squared[own] - rows.sqdist[own, :n]) / 2
        lengths = norms * norms[own]
        trust = np.clip(products / np.where(lengths > 0, lengths, np.inf), 0, 1)
        trust[own] = 1.0
        scale = norms[own] / np.where(norms > 0, norms, 1.0)
        scale[own] = 1.0
        shares = trust * scale / trust.sum()
        return weighted_sum([*shares, 1 - shares.sum()])


@dataclass(frozen=True, kw_only=True)
class NearestNeighborMixing(Aggregation):
    """Means of nearest rows, then another rule.

    Args:
        byzantine: attackers among the rows: a number, or a share of them; also for the rule that follows.
        then: the rule that combines the means.
    """

    needs_distances: ClassVar[bool] = True
    byzantine: Tolerated = 1
    then: Literal["trimmed_mean", "median", "krum", "geometric_median", "mean"] = "trimmed_mean"

    def combine(self, rows: Rows) -> Combination:
        n = rows.count
        distances = rows.sqdist[:n, :n]
        nearest = n - tolerated(self.byzantine, n, n - 1)
        order = np.argsort(distances, axis=1, kind="stable")[:, :nearest]
        mixing = np.zeros((n, n))
        mixing[np.arange(n)[:, None], order] = 1 / nearest
        mixed = Rows(rows.weights, rows.own, _distances_of(mixing, distances))
        found = self._then().combine(mixed)
        assert isinstance(found, Combination)
        if found.mixing is None:
            return Combination(mixing, found.cut)
        return Combination(found.mixing @ mixing)

    def _then(self) -> Aggregation:
        if self.then == "trimmed_mean":
            return TrimmedMean(trim=self.byzantine)
        if self.then == "krum":
            return Krum(byzantine=self.byzantine)
        return {"median": Median, "geometric_median": GeometricMedian, "mean": Mean}[self.then]()


def _distances_of(mixing: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Return squared distances between weighted means of rows, [m, m], from distances between rows; weights sum to 1.

    Symmetric, and 0 between equal means, so equal distances tie.
    """
    cross = mixing @ distances @ mixing.T
    spread = np.diag(cross) / 2
    found = np.maximum((cross + cross.T) / 2 - (spread[:, None] + spread[None, :]), 0)
    found[(mixing[:, None] == mixing[None]).all(axis=2)] = 0
    return found
