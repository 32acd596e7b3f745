"""The members of a run: which nodes take part now, where nodes begin that come late, and when the run is over.

A node whose first absence begins at time 0 is a newcomer: until that ends it does not exist. It has no state, no node
waits for it and it is not evaluated; when it joins it starts afresh (and may ask others first, see Algorithm.join, as
may one that returns without its state).

Where there is a server, nodes do their rounds together in either mode, and where an algorithm waits for nobody, in
neither: what follows says `synchronous` where they do, see Run.in_step.

Where late comers begin. Synchronous: in the round after the one that the others are in, whether they return or join.
Asynchronous: a node that returns goes on where it left; a newcomer begins at the median of the rounds that the others
have completed, so that the run does not last longer for it. A server whose nodes are all away does its round again once
one of them is there, which begins with it. A node whose round the server has closed without it (protocol.deadline_s, a
lost message) ends its training, then joins the round that the server is in, as it does after an absence.

When a run is over. It waits for every node that is online, and ends once a node has finished and no online node is
mid-round. Nodes that are late when the server has done its last round are not waited for. Synchronous: nodes that are
away when one has done the last round have missed it, and there is nothing left for them to do. Asynchronous, or where
only nodes have finished that were stopped early or came too late for the last round: they have rounds of their own to
go, so they are waited for, and for those that have gone again, until the run has taken twice as long as to the moment
when the first wait began. What is away then is cut off, and recorded so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddlsim.node.candidates import BestModel, Snapshot
    from ddlsim.node.node import Node

WAIT_FACTOR = 2.0

HOPELESS_DEPARTURES, AND_PER_NODE = 10_000, 200
"""So many departures in a row, without one completed round among them, and the run would practically never end: a
round that as few as one stay in a hundred is long enough for is completed long before."""

IDLE_DEPARTURES = 1_000_000
"""So many departures of nodes that have finished, and nothing else among them, and the others wait for ever."""


@dataclass(slots=True, eq=False)
class Member:
    """What the engine knows of one node.

    Args:
        id: 0 .. num_nodes-1; the server, if there is one, is num_nodes.
        is_server: whether it is the server.
        node: what its algorithm sees; the simulation makes it.
        state: what its algorithm remembers.
        best: its best model by validation loss; None: nothing is validated.
        online: whether it is there.
        joined: whether it has ever been there.
        finished: whether it has no round left to do.
        stopped: whether early stopping has ended its rounds.
        at_stop: what it had then; None: it has not stopped.
        first_round: of its present stay; peers wait for it from this round on.
        round_num: the round that it is in.
        completed_rounds: rounds that it has completed, counted from the run's first.
        late: whether the server has closed the node's round without it; the node then joins the server's current round.
        stay: number of its present stay; what was begun in an earlier one is void.
        times_lost: how often it has lost its state.
    """

    id: int
    is_server: bool = False
    node: "Node" = field(init=False, repr=False)
    state: Any = None
    best: "BestModel | None" = None
    online: bool = True
    joined: bool = True
    finished: bool = False
    stopped: bool = False
    at_stop: "Snapshot | None" = None
    first_round: int = 0
    round_num: int = 0
    completed_rounds: int = 0
    late: bool = False
    stay: int = 0
    times_lost: int = 0

    def on_the_way_to(self, completed: int) -> bool:
        """Whether it takes part and has not yet completed so many rounds."""
        takes_part = self.online and not self.finished and not self.late
        return takes_part and self.completed_rounds < completed and self.first_round < completed


class Membership:
    """Counts of members by what they are doing.

    A node that has finished comes and goes as the others do, since others may still ask it, but nothing waits for it.

    Args:
        members: all nodes.
        synchronous: whether rounds wait for each other, see Run.in_step.

    Attributes:
        server_waits: whether there is a server that waits until a node is there.
        reached: rounds that the furthest member has completed.
        departures_in_vain: departures since a node last completed a round; 0 once a node has finished.
    """

    def __init__(self, members: Sequence[Member], synchronous: bool):
        self._members = members
        self._server = next((member for member in members if member.is_server), None)
        self._synchronous = synchronous
        self._num_busy = len(members)  # online and not finished
        self._online_at = {0: len(members)}  # rounds completed -> members online
        self.reached = 0
        self._any_finished = self._any_through = False
        self.server_waits = False
        self._returns_s: dict[int, float] = {}
        self._wait_until_s: float | None = None
        self._found: dict[int, Member] = {}
        self.departures_in_vain = 0
        self._idle_departures = 0  # of finished nodes, in a row, while no other came, left or did a round

    def absent_from_start(self, member: Member) -> None:
        """A newcomer: it has never been there."""
        member.joined = member.online = False
        self._count(member, -1)
        self._num_busy -= 1

    def left(self, member: Member, returns_s: float) -> None:
        """A node has left, to return at that time."""
        member.online = False
        member.stay += 1
        self._count(member, -1)
        if member.finished:  # nothing waits for it
            self._idle_departures += 1
            return
        self._idle_departures = 0
        self.departures_in_vain += not self._any_finished
        self._num_busy -= 1
        self._returns_s[member.id] = returns_s

    def returns_at(self, member: Member, returns_s: float) -> None:
        """A node that is away will return at that time."""
        if not member.finished:
            self._returns_s[member.id] = returns_s

    def came(self, member: Member) -> None:
        """A node has returned or joined."""
        member.online = True
        self._count(member, 1)
        if not member.finished:
            self._num_busy += 1
            self._idle_departures = 0
        self._returns_s.pop(member.id, None)

    def completed(self, member: Member, rounds: int) -> None:
        """A node has completed so many rounds."""
        self._idle_departures = 0
        if member is not self._server:
            self.departures_in_vain = 0
        counts, before = self._online_at, self._stands_at(member)
        counts[before] -= 1
        if not counts[before]:
            del counts[before]
        counts[rounds] = counts.get(rounds, 0) + 1
        member.completed_rounds = rounds
        if rounds > self.reached:
            self.reached = rounds

    def finished(self, member: Member, through: bool) -> None:
        """A node has no round left to do; `through`: it has done the last one."""
        member.finished = True
        self._num_busy -= 1
        self._any_finished = True
        self._any_through |= through and member is not self._server
        self.departures_in_vain = 0

    def num_training(self) -> int:
        """Nodes that are online and have rounds to go, the server not counted."""
        server = self._server
        return self._num_busy - (server is not None and server.online and not server.finished)

    def anyone_in(self, round_num: int) -> bool:
        """Whether a node that is there takes part in a round of a server, or may have done it."""
        return any(one.online and one.first_round <= round_num for one in self._members if not one.is_server)

    def serves_nobody(self, member: Member) -> bool:
        """Whether it is the server, and no node is there that has rounds to go."""
        return member is self._server and not self.num_training() and not self._any_through

    @property
    def hopeless(self) -> bool:
        """Whether so many nodes have left since one last completed a round that the run would not end."""
        return self.departures_in_vain > HOPELESS_DEPARTURES + AND_PER_NODE * len(self._members)

    @property
    def only_finished_move(self) -> bool:
        """Whether nodes that have finished have left so often that nothing else can happen any more."""
        return self._idle_departures > IDLE_DEPARTURES

    def over(self, now_s: float) -> bool:
        """Whether the run ends now."""
        server_ended = self._server is not None and self._server.finished
        too_late = sum(one.late and one.online for one in self._members) if server_ended else 0
        if self._num_busy - self.server_waits - too_late or not self._any_finished:
            return False
        if self._synchronous and self._any_through:
            return True
        if self._wait_until_s is None:
            self._wait_until_s = WAIT_FACTOR * now_s
        return all(returns_s > self._wait_until_s for returns_s in self._returns_s.values())

    def cut_off(self) -> list[Member]:
        """Members that joined, are away when the run is over, and had rounds to go."""
        if self._synchronous and self._any_through:
            return []
        return [one for one in self._members if one.joined and not one.finished and not one.is_server]

    def any_on_the_way_to(self, completed: int) -> bool:
        """Whether a node that takes part has not yet completed so many rounds.

        Asked after every completion, it looks at each member only once or twice per round: it starts at the one that it
        found last.
        """
        found = self._found.get(completed)
        if found is not None and found.on_the_way_to(completed):
            return True
        members = self._members
        start = 0 if found is None else found.id
        for at in chain(range(start, len(members)), range(start)):
            if members[at].on_the_way_to(completed):
                self._found[completed] = members[at]
                return True
        self._found.pop(completed, None)
        return False

    def first_round_of(self, member: Member) -> int:
        """The round in which a node begins that returns or joins now.

        In synchronous runs members that have themselves just come do not count, or every return would push the run a
        round further; and no round is done again by late comers that all members that did it have left.
        """
        if self._synchronous:
            if self._server is not None and self.server_waits:
                return max(member.round_num, self._server.round_num)
            return max(member.round_num, self.reached, max(self._online_at, default=-1) + 1)
        return member.round_num if member.joined else self._median()

    def _median(self) -> int:
        """Of the rounds that the members online have completed, the lower one of two; 0 without any."""
        below = 0
        for rounds in sorted(self._online_at):
            below += self._online_at[rounds]
            if 2 * below >= sum(self._online_at.values()):
                return rounds
        return 0

    def _stands_at(self, member: Member) -> int:
        """Rounds that it has completed, or has missed as a newcomer of an asynchronous run."""
        return member.completed_rounds if self._synchronous else max(member.completed_rounds, member.first_round)

    def _count(self, member: Member, change: int) -> None:
        rounds = self._stands_at(member)
        count = self._online_at.get(rounds, 0) + change
        if count:
            self._online_at[rounds] = count
        else:
            del self._online_at[rounds]
