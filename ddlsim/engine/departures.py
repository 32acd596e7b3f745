"""Nodes that leave and return: what becomes of their work, their messages and their state."""

from collections.abc import Generator, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import simpy

from ddlsim.engine.churn import Absences
from ddlsim.errors import DdlsimError
from ddlsim.units import END_OF_TIME_S

if TYPE_CHECKING:
    from ddlsim.engine.node import Node
    from ddlsim.engine.simulation import Simulation


HOPELESS_DEPARTURES, AND_PER_NODE = 10_000, 200
"""So many departures in a row, without one completed round among them, and the run would practically never end: a
round that as few as one stay in a hundred is long enough for is completed long before."""


class Departures:
    """A process for each node that is ever away.

    Args:
        sim: the simulation; its nodes and its network exist.
        absences: per node its absences, see churn.py; taken one by one, as time comes.
        state_lost: whether a node comes back without its state and starts afresh.

    Attributes:
        returned: per node that is away the event of its return.
    """

    def __init__(self, sim: "Simulation", absences: Absences, state_lost: bool):
        self.returned: dict[int, simpy.Event] = {}
        self._sim = sim
        self._state_lost = state_lost
        self._planned = self._plan(absences)
        self._in_vain = 0  # departures since a node has last completed a round
        self._completions = 0

    def begin(self) -> None:
        """Starts the processes; the nodes' lives have begun."""
        for node, stays_away in self._planned:
            self._sim.env.process(self._come_and_go(node, stays_away))

    def _plan(self, absences: Absences) -> "list[tuple[Node, Iterator[tuple[float, float]]]]":
        """The absences of nodes that have any; whose first one begins with the run is a newcomer, see presence.py."""
        sim, planned = self._sim, []
        for node_id, absent in absences.items():
            node, stays_away = sim.nodes[node_id], iter(absent)
            first = next(stays_away, None)
            if first is None:
                continue
            if first[0] <= 0:
                node.joined = node.online = False
                self.returned[node_id] = sim.env.event()
                sim.network.remove_node(node_id)
                sim.recorder.row(0.0, node_id, 0, "online", 0)
            planned.append((node, chain([first], stays_away)))
        return planned

    def _come_and_go(
        self, node: "Node", stays_away: Iterator[tuple[float, float]]
    ) -> Generator[simpy.Event, Any, None]:
        env = self._sim.env
        for start_s, end_s in stays_away:
            if node.joined:
                if start_s > END_OF_TIME_S:
                    return
                yield env.timeout(max(0.0, start_s - env.now))
                if node.done:
                    return
                self._leave(node, end_s)
            if end_s > END_OF_TIME_S:  # a time that the run cannot reach
                return
            yield env.timeout(max(0.0, end_s - env.now))
            self._return(node)

    def _leave(self, node: "Node", returns_s: float) -> None:
        """Its flows and its training are aborted, its mail is lost; its state stays, at least until it returns."""
        sim = self._sim
        self._count_departure()
        sim.presence.left(node, returns_s)
        sim.recorder.row(sim.env.now, node.id, node.completed_rounds, "online", 0)
        self.returned[node.id] = sim.env.event()
        sim.network.remove_node(node.id)
        for request in node.drop_requests():
            sim.network.unused(request)
            sim.fail(request)
        sim.mailboxes.clear(node.id)
        sim.abandon_round(node)

    def _count_departure(self) -> None:
        """Raises DdlsimError if nodes leave and leave again before any of them gets through a round."""
        sim, presence = self._sim, self._sim.presence
        if presence.completions != self._completions or presence.anybody_through:
            self._completions, self._in_vain = presence.completions, 0
        self._in_vain += 1
        if self._in_vain > HOPELESS_DEPARTURES + AND_PER_NODE * sim.num_nodes:
            raise DdlsimError(
                f"churn: at {sim.env.now:.3f} simulated seconds nodes have left {self._in_vain} times in a row before "
                f"any of them completed a round (furthest: {sim.completed_by_all} of {sim.rounds} rounds), so the run "
                "would never end. Nodes must stay longer, or rounds be shorter: see churn, training.local_steps, "
                "devices and network.links."
            )

    def _return(self, node: "Node") -> None:
        """It comes back stale, or afresh; a newcomer joins."""
        sim = self._sim
        node.round_num = sim.presence.first_round_of(node)
        if sim.synchronous or not node.joined:
            node.first_round = node.round_num
            sim.mailboxes.opens_at(node.id, max(node.first_round, node.completed_rounds))
        sim.presence.came(node)
        sim.network.return_node(node.id)
        if self._state_lost and node.joined:
            self._forget(node)
        if self._state_lost or not node.joined:
            sim.start_afresh(node)
        node.joined = True
        sim.recorder.row(sim.env.now, node.id, node.completed_rounds, "online", 1)
        self.returned[node.id].succeed()

    def _forget(self, node: "Node") -> None:
        node.forget()
        if self._sim.codec is not None:
            for other in self._sim.nodes:
                other.outbox.forget_receiver(node.id)
