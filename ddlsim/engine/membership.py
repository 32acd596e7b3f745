"""The members of a run: which nodes take part now, where late nodes start, and when the run is over.

A node whose first absence starts at time 0 is a newcomer: until the absence ends the node does not exist. It has no
state, no node waits for it and it is not evaluated; when it joins it starts with a new state (and may ask others first,
see Algorithm.join, like a node that returns without its state).

With a server, nodes do their rounds together in either mode; with an algorithm that waits for no node, in neither.
Below, `synchronous` means that they do, see Run.in_step.

First round of late nodes. Synchronous: the round after the others' current round, whether the node returns or joins.
Asynchronous: a node that returns continues where it left; a newcomer starts at the median of the rounds that the others
have completed, so that the run does not last longer for it. A server whose nodes are all offline repeats its round once
one of them is online, and that node starts with it. A node whose round the server has closed without it
(protocol.deadline_s, a lost message) ends its training, then joins the server's current round, as it does after an
absence.

End of a run. The run waits for every node that is online, and ends once a node has finished and no online node is
mid-round. Nodes that are late when the server has done its last round are not waited for. Synchronous: nodes that are
offline when one node has done the last round have missed it, and have no rounds left. Asynchronous, or if only nodes
have finished that were stopped early or came too late for the last round: offline nodes have rounds left, so the run
waits for them, also if they leave again, until it has taken twice the time at which the first wait started. Nodes that
are offline then are cut off, and recorded as such.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from ddlsim.node.candidates import BestModel, Snapshot
from ddlsim.node.node import Node

WAIT_FACTOR = 2.0

HOPELESS_DEPARTURES, AND_PER_NODE = 10_000, 200
"""Number of departures in a row, without a completed round, after which the run would practically never end: a round
for which only one stay in a hundred is long enough is completed long before.
"""

IDLE_DEPARTURES = 1_000_000
"""Number of departures of finished nodes in a row, without other events, after which the others would wait forever."""


@dataclass(slots=True, eq=False)
class Member:
    """The engine's record of one node.

    Args:
        id: 0 .. num_nodes-1; the server, if there is one, is num_nodes.
        is_server: whether it is the server.
        node: the node as its algorithm sees it; the simulation makes it.
        state: its algorithm's memory.
        best: its best model by validation loss; None: nothing is validated.
        online: whether it is online.
        joined: whether it has ever been online.
        finished: whether it has no round left to do.
        stopped: whether early stopping has ended its rounds.
        at_stop: its snapshot at the stop; None: it has not stopped.
        first_round: first round of its current stay; peers wait for it from this round on.
        round_num: its current round.
        completed_rounds: rounds that it has completed, counted from the run's first.
        sits_out: whether it is idle in a round that it does not join, see Run.takes_part.
        late: whether the server has closed the node's round without it; the node then joins the server's current round.
        stay: number of its current stay; work started in an earlier stay is void.
        times_lost: number of times that it has lost its state.
    """

    id: int
    is_server: bool = False
    node: Node = field(init=False, repr=False)
    state: Any = None
    best: BestModel | None = None
    online: bool = True
    joined: bool = True
    finished: bool = False
    stopped: bool = False
    at_stop: Snapshot | None = None
    first_round: int = 0
    round_num: int = 0
    completed_rounds: int = 0
    sits_out: bool = False
    late: bool = False
    stay: int = 0
    times_lost: int = 0

    def has_yet_to_do(self, round_num: int) -> bool:
        """Whether the node is at work and may still do this round."""
        at_work = self.online and not self.finished and not self.stopped
        return at_work and max(self.round_num, self.first_round) <= round_num

    def on_the_way_to(self, completed: int) -> bool:
        """Whether it takes part and has not yet completed this number of rounds."""
        takes_part = self.online and not self.finished and not self.late
        return takes_part and self.completed_rounds < completed and self.first_round < completed


class Membership:
    """Counts of members by their activity.

    A finished node still leaves and returns, since others may ask it, but nothing waits for it.

    Args:
        members: all nodes.
        synchronous: whether rounds wait for each other, see Run.in_step.

    Attributes:
        server_waits: whether there is a server that waits until a node is online.
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
        self._any_finished = self._any_did_last_round = False
        self.server_waits = False
        self._returns_s: dict[int, float] = {}
        self._wait_until_s: float | None = None
        self._found: dict[int, Member] = {}
        self.departures_in_vain = 0
        self._idle_departures = 0  # of finished nodes, in a row, while no other node joined, left or did a round

    def absent_from_start(self, member: Member) -> None:
        """Register a newcomer, which has never been online."""
        member.joined = member.online = False
        self._count(member, -1)
        self._num_busy -= 1

    def left(self, member: Member, returns_s: float) -> None:
        """Register a departure until that time."""
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
        """Change the return time of an offline node."""
        if not member.finished:
            self._returns_s[member.id] = returns_s

    def returned(self, member: Member) -> None:
        """Register a node that has returned or joined."""
        member.online = True
        self._count(member, 1)
        if not member.finished:
            self._num_busy += 1
            self._idle_departures = 0
        self._returns_s.pop(member.id, None)

    def completed(self, member: Member, rounds: int) -> None:
        """Register the number of rounds that a node has completed."""
        self._idle_departures = 0
        if member is not self._server:
            self.departures_in_vain = 0
        self._count(member, -1)
        member.completed_rounds = rounds
        self._count(member, 1)
        if rounds > self.reached:
            self.reached = rounds

    def finished(self, member: Member, did_last_round: bool) -> None:
        """Register a node without rounds left; `did_last_round`: it has completed the last one."""
        member.finished = True
        self._num_busy -= 1
        self._any_finished = True
        self._any_did_last_round |= did_last_round and member is not self._server
        self.departures_in_vain = 0

    def only_answers(self, server: Member) -> None:
        """Register a server without rounds, which only answers nodes."""
        self._count(server, -1)
        server.finished = True
        self._num_busy -= 1

    def available(self) -> list[int]:
        """Return the nodes that are online and can start a round of a server, ascending."""
        return [one.id for one in self._members if one.online and not (one.is_server or one.finished or one.late)]

    def num_training(self) -> int:
        """Number of nodes that are online and have rounds left, without the server."""
        server = self._server
        return self._num_busy - (server is not None and server.online and not server.finished)

    def has_node_in(self, round_num: int) -> bool:
        """Whether an online node takes part in a round of a server, or may have done it."""
        return any(one.online and one.first_round <= round_num for one in self._members if not one.is_server)

    def serves_no_node(self, member: Member) -> bool:
        """Whether it is the server, and no online node has rounds left."""
        return member is self._server and not self.num_training() and not self._any_did_last_round

    @property
    def hopeless(self) -> bool:
        """Whether the number of departures since the last completed round shows that the run would not end."""
        return self.departures_in_vain > HOPELESS_DEPARTURES + AND_PER_NODE * len(self._members)

    @property
    def only_finished_move(self) -> bool:
        """Whether finished nodes have left so often that no other event can follow."""
        return self._idle_departures > IDLE_DEPARTURES

    def over(self, now_s: float) -> bool:
        """Whether the run ends now."""
        server_ended = self._server is not None and self._server.finished
        too_late = sum(one.late and one.online for one in self._members) if server_ended else 0
        if self._num_busy - self.server_waits - too_late or not self._any_finished:
            return False
        if self._synchronous and self._any_did_last_round:
            return True
        if self._wait_until_s is None:
            self._wait_until_s = WAIT_FACTOR * now_s
        return all(returns_s > self._wait_until_s for returns_s in self._returns_s.values())

    def cut_off(self) -> list[Member]:
        """Return the members that joined, are offline when the run is over, and had rounds left."""
        if self._synchronous and self._any_did_last_round:
            return []
        return [one for one in self._members if one.joined and not one.finished and not one.is_server]

    def any_on_the_way_to(self, completed: int) -> bool:
        """Whether a node that takes part has not yet completed this number of rounds.

        Called after every completion, it checks each member only once or twice per round: it starts at the last member
        found.
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
        """Return the first round of a node that returns or joins now.

        In synchronous runs members that have just joined do not count, since otherwise every return would push the run
        a round further; and late nodes do not repeat a round that only departed members did.
        """
        if self._synchronous:
            if self._server is not None and self.server_waits:
                return max(member.round_num, self._server.round_num)
            return max(member.round_num, self.reached, max(self._online_at, default=-1) + 1)
        return member.round_num if member.joined else self._median()

    def _median(self) -> int:
        """Return the (lower) median of the rounds that online members have completed; 0 without online members."""
        below = 0
        for rounds in sorted(self._online_at):
            below += self._online_at[rounds]
            if 2 * below >= sum(self._online_at.values()):
                return rounds
        return 0

    def _count(self, member: Member, change: int) -> None:
        """Count a member at the rounds that it has completed, or has missed as a newcomer of an asynchronous run."""
        rounds = member.completed_rounds if self._synchronous else max(member.completed_rounds, member.first_round)
        count = self._online_at.get(rounds, 0) + change
        if count:
            self._online_at[rounds] = count
        else:
            del self._online_at[rounds]
