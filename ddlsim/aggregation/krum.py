"""Krum and multi-Krum: the rows that lie nearest to most others.

Source: Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries: Byzantine tolerant gradient
descent", NeurIPS 2017. The score of a row is the sum of its squared distances from its n - f - 2 nearest others; the
lowest scores win. Of equal scores the node's own row comes first, then the lowest node id. With fewer than f + 3 rows,
for which the paper's score is not defined, f is as large as it can be.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge

from ddlsim.aggregation.base import Aggregation, Combination, Rows, Tolerated, tolerated, weighted_sum


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
