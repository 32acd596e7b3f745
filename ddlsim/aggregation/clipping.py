"""Rules that limit how far another model can pull a node's own: ClippedGossip and self-centered clipping.

Sources: He, Karimireddy, Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022; Karimireddy, He,
Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021 (centered clipping, Algorithm 2). With
clip(z) = z min(1, tau / |z|) and the weights w of the algorithm's average a step is

    v := v + sum_j w_j clip(x_j - v),  from v = x_own.

ClippedGossip takes one such step, with a radius of its own for every node and round (adaptive): the rule of its authors
needs to know the attackers; here, as in their experiments, the neighbors that are furthest away stand in for them, so
many that they weigh as much as attackers may (`byzantine`): tau^2 = sum over the other neighbors of w_j |x_j -
x_own|^2 / delta, delta being the weight of those left out. With a fixed radius it takes that.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt

from ddlsim.aggregation.base import Aggregation, Combination, Rows, Tolerated, tolerated, weighted_sum
from ddlsim.units import Count


@dataclass(frozen=True, kw_only=True)
class ClippedGossip(Aggregation):
    """Neighbors pull by at most a radius that follows from their distances.

    Args:
        byzantine: attackers among the neighbors: a number, or a share of the rows.
        radius: how far one pulls at most, as an L2 norm; null: it adapts.
    """

    needs_own: ClassVar[bool] = True
    needs_distances: ClassVar[bool] = True
    byzantine: Tolerated = 1
    radius: Annotated[float, Gt(0)] | None = None

    def idle(self, rounds: int) -> Iterator[tuple[str, str]]:
        """See Part."""
        if self.radius is not None:
            yield "byzantine", "radius is given, and does not adapt"

    def combine(self, rows: Rows) -> Combination:
        own, weights = rows.own, rows.weights
        lengths = np.sqrt(rows.sqdist[own, : rows.count])
        if self.radius is not None:
            return weighted_sum(_step(weights, lengths, self.radius, own))
        others = [place for place in range(rows.count) if place != own]
        others.sort(key=lambda place: (lengths[place], place))
        left_out = tolerated(self.byzantine, rows.count, len(others))
        if not left_out:
            return weighted_sum(_step(weights, lengths, np.inf, own))
        trusted, suspects = others[: len(others) - left_out], others[len(others) - left_out :]
        delta = weights[suspects].sum()
        squared = (weights[trusted] * lengths[trusted] ** 2).sum() / delta if delta > 0 else 0.0
        return weighted_sum(_step(weights, lengths, np.sqrt(squared), own))


@dataclass(frozen=True, kw_only=True)
class SelfCenteredClipping(Aggregation):
    """Neighbors pull by at most a fixed radius, around the node's own model.

    Args:
        radius: tau: how far one pulls at most, as an L2 norm.
        iterations: steps, each around the outcome of the one before.
    """

    needs_own: ClassVar[bool] = True
    needs_distances: ClassVar[bool] = True
    radius: Annotated[float, Gt(0)] = 1.0
    iterations: Count = 1

    def combine(self, rows: Rows) -> Combination:
        distances = rows.sqdist[: rows.count, : rows.count]
        center = np.zeros(rows.count)
        center[rows.own] = 1.0
        for _ in range(self.iterations):
            to_rows = distances @ center
            lengths = np.sqrt(np.maximum(to_rows - center @ to_rows / 2, 0))
            center = _step(rows.weights, lengths, self.radius, center)
        return weighted_sum(center)


def _step(weights: np.ndarray, lengths: np.ndarray, radius: float, center: "np.ndarray | int | None") -> np.ndarray:
    """Weights of the rows in v + sum_j w_j clip(x_j - v).

    Args:
        weights: w, [n].
        lengths: |x_j - v|, [n].
        radius: tau.
        center: weights of the rows in v, [n], or the place of the row that it is.
    """
    if not isinstance(center, np.ndarray):
        place, center = center, np.zeros(len(weights))
        center[place] = 1.0
    within = lengths <= radius
    shares = weights * np.where(within, 1.0, radius / np.where(within | (lengths == 0), 1.0, lengths))
    return center * (1 - shares.sum()) + shares
