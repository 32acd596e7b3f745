"""The algorithm's own weighted average, which every model joins."""

from dataclasses import dataclass
from typing import ClassVar

from ddlsim.aggregation.base import Aggregation, Combination, Rows, weighted_sum


@dataclass(frozen=True, kw_only=True)
class Mean(Aggregation):
    """The algorithm's own weighted average: no defense."""

    is_plain: ClassVar[bool] = True

    def combine(self, rows: Rows) -> Combination:
        return weighted_sum(rows.weights)
