"""Epsilon of every node so far, from what it has released."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ddlsim.privacy.accounting import Accountant, Releases, epsilon

if TYPE_CHECKING:
    from ddlsim.evaluation.monitor import Records


class PrivacyMeter:
    """All nodes of a run; a server has no data.

    Args:
        releases: what each node has released until now.
        delta, accountant: see privacy/accounting.py.
        now_s: the simulated time.
    """

    def __init__(
        self,
        releases: Callable[[], Sequence[Releases]],
        delta: float,
        accountant: Accountant,
        now_s: Callable[[], float],
    ):
        self._releases, self._delta, self._accountant, self._now_s = releases, delta, accountant, now_s

    def epsilons(self) -> list[float]:
        """Per node; infinity without noise."""
        return [epsilon((one,), self._delta, self._accountant) for one in self._releases()]

    def write(self, records: "Records", completed: int) -> None:
        """Rows of every node's epsilon, at an evaluation; none where there is no guarantee."""
        now_s = self._now_s()
        for node, value in enumerate(self.epsilons()):
            if math.isfinite(value):
                records.row(now_s, node, completed, "epsilon", value)
