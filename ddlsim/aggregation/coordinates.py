"""Rules that look at every coordinate alone: median, trimmed mean, and BRIDGE.

Sources: Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates",
ICML 2018 (median, trimmed mean); Fang, Yang, Bajwa, "BRIDGE: Byzantine-resilient decentralized gradient descent", IEEE
Transactions on Signal and Information Processing over Networks 2022 (variants T, M and K; its variant B, Bulyan, is not
here). The weights of the algorithm's average play no part: order statistics count every row once.

Where a node has fewer rows than twice the trim and one, the trim is as large as it can be, which is the median.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from ddlsim.aggregation.base import Aggregation, Combination, Rows, Tolerated, tolerated
from ddlsim.aggregation.krum import krum_order


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
