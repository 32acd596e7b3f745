"""Epsilon of every node so far, from what it has released.

A training releases something when it ends, a message when it is sent. Nodes that complete a round at one instant may
have started the next round at the same instant, depending on the order of events. So an evaluation counts all earlier
releases, and of those at its own instant the ones of rounds that it evaluates.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ddlsim.privacy.accounting import Accountant, Releases, epsilon

if TYPE_CHECKING:
    from ddlsim.evaluation.monitor import Records


class PrivacyMeter:
    """All nodes of a run; a server has no data.

    Args:
        num_nodes: N.
        one_release: node -> one of its releases, or None if it sends parameters without noise.
        delta, accountant: see privacy/accounting.py.
        now_s: the simulated time.
    """

    def __init__(
        self,
        num_nodes: int,
        one_release: Callable[[int], Releases | None],
        delta: float,
        accountant: Accountant,
        now_s: Callable[[], float],
    ):
        self._one_release, self._delta, self._accountant, self._now_s = one_release, delta, accountant, now_s
        self._num_nodes = num_nodes
        self._earlier = [0] * num_nodes
        self._newest: list[Counter[int]] = [Counter() for _ in range(num_nodes)]  # round -> releases, at `_newest_s`
        self._newest_s = [0.0] * num_nodes

    def released(self, node: int, round_num: int, count: int = 1) -> None:
        """Count releases of a node at this instant, in its round."""
        now_s = self._now_s()
        if now_s > self._newest_s[node]:
            self._earlier[node] += self._newest[node].total()
            self._newest[node], self._newest_s[node] = Counter(), now_s
        self._newest[node][round_num] += count

    def epsilons(self, completed: int) -> list[float]:
        """Epsilon per node when so many rounds are completed; infinity without noise."""
        return [self._epsilon(self._one_release(node), self._count(node, completed)) for node in range(self._num_nodes)]

    def write(self, records: "Records", completed: int) -> None:
        """Rows of every node's epsilon, at an evaluation; none where there is no guarantee."""
        now_s = self._now_s()
        for node, value in enumerate(self.epsilons(completed)):
            if math.isfinite(value):
                records.row(now_s, node, completed, "epsilon", value)

    def _epsilon(self, one: Releases | None, count: int) -> float:
        return math.inf if one is None else epsilon((replace(one, count=count),), self._delta, self._accountant)

    def _count(self, node: int, completed: int) -> int:
        newest, is_over = self._newest[node], self._newest_s[node] < self._now_s()
        return self._earlier[node] + sum(n for round_num, n in newest.items() if is_over or round_num < completed)
