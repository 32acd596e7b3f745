"""The geometric median: the point whose distances to all rows, weighted, have the smallest sum.

Sources: Weiszfeld's iteration as in Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning" (RFA),
IEEE Transactions on Signal Processing 2022, Algorithm 1 with its smoothing. Every iterate is a weighted sum of the
rows, so its distances follow from those between the rows, and the rows themselves are read once.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Gt

from ddlsim.aggregation.base import Aggregation, Combination, Rows, weighted_sum
from ddlsim.units import Count


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
