"""Rules that limit how far another model can pull a node's own: ClippedGossip and self-centered clipping.

Sources: He, Karimireddy, Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022; Karimireddy, He,
Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021 (centered clipping, Algorithm 2). With
clip(z) = z min(1, tau / |z|) and the weights w of the algorithm's average a step is

    v := v + sum_j w_j clip(x_j - v),  from v = x_own.

ClippedGossip takes one such step. Without a fixed radius, tau is the second largest distance of a neighbor's model from
the node's own, as in the code of its authors (epfml/byzantine-robust-decentralized-optimizer, SelfCenteredClipping with
tau None); `byzantine` sets how many of the largest distances are passed over (1 there). The radius of the paper's
analysis needs to know the attackers, so neither their code nor ours uses it.
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
        byzantine: attackers among the neighbors: a number, or a share of the rows. The radius is the largest distance
            of the other neighbors.
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
        others = np.sort(np.delete(lengths, own))
        passed_over = tolerated(self.byzantine, rows.count, len(others))
        trusted = others[: len(others) - passed_over]
        return weighted_sum(_step(weights, lengths, trusted[-1] if len(trusted) else 0.0, own))


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
