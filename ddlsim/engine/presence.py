"""Who is there, where nodes begin that come late, and when a run is over.

A node whose first absence begins at time 0 is a newcomer: until that ends it does not exist. It has no state, nobody
waits for it and it is not evaluated; when it joins it starts afresh (and may ask others first, see Algorithm.join).

Where late comers begin. Synchronous: in the round after the one that the others are in, whether they return or join.
Asynchronous: who returns goes on where it left; a newcomer begins at the median of the rounds that the others have
completed, since what it sent in earlier ones would be too stale for them.

When a run is over. It waits for every node that is online, and ends when somebody is through and nobody online is still
on its way. Synchronous: nodes that are away then have missed the last round, and there is nothing left for them to do.
Asynchronous: they have rounds of their own to go, so they are waited for, and for those who have gone again, until the
run has taken twice as long as to the moment when the first wait began. What is away then is cut off, and recorded so.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddlsim.engine.node import Node

WAIT_FACTOR = 2.0


class Presence:
    """Counts of nodes by what they are doing.

    Args:
        nodes: all nodes; newcomers are marked as not joined and offline already.
        synchronous: whether rounds wait for each other.

    Attributes:
        num_online: nodes that are there.
        completions: rounds completed, of all nodes together.
        anybody_through: whether a node has no round left to do.
    """

    def __init__(self, nodes: "Sequence[Node]", synchronous: bool):
        self._nodes = nodes
        self._synchronous = synchronous
        self.num_online = self._num_busy = sum(node.online for node in nodes)  # busy: online and not through
        self._online_at = Counter(node.completed_rounds for node in nodes if node.online)  # rounds completed -> nodes
        self._reached = 0
        self.anybody_through = False
        self.completions = 0
        self._returns_s: dict[int, float] = {}
        self._wait_until_s: float | None = None

    def left(self, node: "Node", returns_s: float) -> None:
        """A node has left, to return at that time."""
        node.online = False
        self._count(node, -1)
        self.num_online -= 1
        self._num_busy -= 1
        self._returns_s[node.id] = returns_s

    def came(self, node: "Node") -> None:
        """A node has returned or joined."""
        node.online = True
        self._count(node, 1)
        self.num_online += 1
        self._num_busy += 1
        self._returns_s.pop(node.id, None)

    def completed(self, node: "Node", rounds: int) -> None:
        """A node has completed so many rounds."""
        self.completions += 1
        self._count(node, -1)
        node.completed_rounds = rounds
        self._count(node, 1)
        self._reached = max(self._reached, rounds)

    def through(self, node: "Node") -> None:
        """A node has no round left to do."""
        node.done = True
        self._num_busy -= 1
        self.anybody_through = True

    def over(self, now_s: float) -> bool:
        """Whether the run ends now."""
        if self._num_busy or not self.anybody_through:
            return False
        if self._synchronous:
            return True
        if self._wait_until_s is None:
            self._wait_until_s = WAIT_FACTOR * now_s
        return all(returns_s > self._wait_until_s for returns_s in self._returns_s.values())

    def cut_off(self) -> list["Node"]:
        """Those who were there once, are away when the run is over, and had rounds to go; none in synchronous runs."""
        return [] if self._synchronous else [node for node in self._nodes if node.joined and not node.done]

    def first_round_of(self, node: "Node") -> int:
        """The round in which a node begins that returns or joins now.

        In synchronous runs those who have themselves just come are not asked, or every return would push the run a
        round further; and no round is done again by late comers that everybody who did it has left.
        """
        if self._synchronous:
            return max(node.round_num, self._reached, max(self._online_at, default=-1) + 1)
        return node.round_num if node.joined else self._median()

    def _median(self) -> int:
        """Of the rounds that the nodes online have completed, the lower one of two; 0 without any."""
        below = 0
        for rounds in sorted(self._online_at):
            below += self._online_at[rounds]
            if 2 * below >= self._online_at.total():
                return rounds
        return 0

    def _count(self, node: "Node", change: int) -> None:
        self._online_at[node.completed_rounds] += change
        if not self._online_at[node.completed_rounds]:
            del self._online_at[node.completed_rounds]
