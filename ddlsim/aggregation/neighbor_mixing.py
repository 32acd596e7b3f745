"""Nearest-neighbor mixing: every row becomes the mean of those nearest to it, and another rule takes these means.

Source: Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, "Fixing by mixing: a recipe for optimal Byzantine ML
under heterogeneity", AISTATS 2023, Algorithm 2: y_i is the mean of the n - f rows nearest to x_i, x_i among them.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ddlsim.aggregation.base import Aggregation, Combination, Rows, Tolerated, tolerated
from ddlsim.aggregation.coordinates import Median, TrimmedMean
from ddlsim.aggregation.geometric_median import GeometricMedian
from ddlsim.aggregation.krum import Krum
from ddlsim.aggregation.mean import Mean


@dataclass(frozen=True, kw_only=True)
class NearestNeighborMixing(Aggregation):
    """Means of nearest rows, then another rule.

    Args:
        byzantine: attackers among the rows: a number, or a share of them; also of the rule that follows.
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
    """Squared distances of weighted means of rows, [m, m], from those of the rows; weights sum to 1.

    Symmetric, and 0 between equal means, so that what is equally far ties.
    """
    cross = mixing @ distances @ mixing.T
    spread = np.diag(cross) / 2
    found = np.maximum((cross + cross.T) / 2 - (spread[:, None] + spread[None, :]), 0)
    found[(mixing[:, None] == mixing[None]).all(axis=2)] = 0
    return found
