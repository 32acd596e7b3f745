"""Nodes that leave and return, and the effects on their work, their messages and their state.

A node that leaves at an instant leaves before all other events of that instant: a training that ends at the same
instant is lost.
"""

from collections.abc import Callable, Generator, Iterator
from itertools import chain, dropwhile

import simpy
from simpy.events import URGENT

from ddlsim.churn.schedule import Absences
from ddlsim.engine.membership import Member, Membership
from ddlsim.engine.monitor import Records
from ddlsim.engine.transport import EnginePorts
from ddlsim.foundation.errors import DdlsimError
from ddlsim.foundation.units import END_OF_TIME_S
from ddlsim.node.node import Node


class Presence:
    """Absences of nodes: a SimPy process for each node that is ever offline.

    A node whose first absence starts with the run is a newcomer, see membership.py.

    Args:
        env: SimPy's environment.
        ports: ports of the nodes.
        members: all nodes.
        membership: counts of online nodes.
        records: destination of rows.
        absences: per node its absences, see churn/schedule.py; read one by one, as time passes.
        state_lost: whether a node returns without its state and restarts.
        start: gives a node a new state.
        departed: called when a node with rounds left has left, to abort its work.

    Attributes:
        changed: whether a node with rounds left has left or returned, so that a model may change after an evaluation.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ports: EnginePorts,
        members: list[Member],
        membership: Membership,
        records: Records,
        absences: Absences,
        state_lost: bool,
        start: Callable[[Member], None],
        departed: Callable[[Member], None],
    ):
        self._env, self._ports, self._members, self._membership = env, ports, members, membership
        self._transport, self._meter, self._records = ports.transport, ports.clock.meter, records
        self.state_lost, self.changed = state_lost, False
        self._start, self._departed = start, departed
        self._processes: list[simpy.Process] = []
        self._returned: dict[int, simpy.Event] = {}
        self._anyone = env.event()  # for a server that waits until a node is online
        self._planned: dict[int, Iterator[tuple[float, float]]] = {}
        for node, absent in absences.items():
            stays_away = iter(absent)
            first = next(stays_away, None)
            if first is None:
                continue
            self._planned[node] = chain([first], stays_away)
            if first[0] <= 0:
                self._leave_network(members[node])
                membership.absent_from_start(members[node])

    def begin(self) -> None:
        """Start the processes of absences; the nodes' lives have started."""
        self._processes = [
            self._env.process(self._run_absences(self._members[node], stays)) for node, stays in self._planned.items()
        ]

    def replace(self, absences: Absences, state_lost: bool) -> None:
        """Replace the absences from now on: nodes that the new absences have online join at once, the others leave."""
        for process in self._processes:
            if process.is_alive:
                process.interrupt()
        self.state_lost = state_lost
        now_s, self._planned = self._env.now, {}
        for node, absent in absences.items():
            member = self._members[node]
            to_come = dropwhile(lambda stay: stay[1] <= now_s, iter(absent))
            first = next(to_come, None)
            if first is not None:
                self._planned[node] = chain([first], to_come)
            if first is None or first[0] > now_s:
                if not member.online:
                    self._bring_online(member)
            elif member.online:
                self._leave(member, first[1])
            else:
                self._membership.returns_at(member, first[1])
        for member in self._members:
            if member.id not in absences and not member.online:
                self._bring_online(member)
        self.begin()

    def until_returned(self, member: Member) -> Generator[simpy.Event, None, None]:
        """Wait until a node is online; it may leave again at the instant of its return."""
        while True:
            try:
                yield self._returned[member.id]
                return
            except simpy.Interrupt:
                continue

    def until_anyone_returns(self) -> simpy.Event:
        """Return an event that happens when a node returns or joins; the server waits for it."""
        self._anyone = self._env.event()
        return self._anyone

    def _run_absences(
        self, member: Member, stays_away: Iterator[tuple[float, float]]
    ) -> Generator[simpy.Event, None, None]:
        env = self._env
        try:
            for start_s, end_s in stays_away:
                if member.online:
                    if start_s > END_OF_TIME_S:
                        return
                    leaves = env.event()
                    leaves._ok, leaves._value = True, None
                    env.schedule(leaves, URGENT, max(0.0, start_s - env.now))
                    yield leaves
                    self._leave(member, end_s)
                if end_s > END_OF_TIME_S:  # a time beyond the end of the run
                    return
                yield env.timeout(max(0.0, end_s - env.now))
                self._bring_online(member)
        except simpy.Interrupt:  # other absences apply from now on
            return

    def _leave(self, member: Member, returns_s: float) -> None:
        """Take a node offline: its flows are aborted, its received messages are lost; its state is kept."""
        self._membership.left(member, returns_s)
        if self._membership.hopeless:
            raise DdlsimError(self._hopeless_text())
        self._leave_network(member)
        self._transport.abandons_round(member.id)
        self.changed = self.changed or not member.finished
        self._departed(member)

    def _leave_network(self, member: Member) -> None:
        self._row(member, "online", 0)
        self._returned[member.id] = self._env.event()
        if self._meter is not None:
            self._meter.devices[member.id].left(self._env.now)
        self._transport.times.left(member.id)
        aborted = self._transport.leaves(member.id)
        if aborted:
            self._row(member, "aborted", aborted)

    def _bring_online(self, member: Member) -> None:
        """Bring a node back with its old or a new state, or let a newcomer join. A finished node starts no round."""
        if member.finished:
            self._return_to_network(member)
            if self.state_lost:
                self._transport.forget(member.id)
            return
        self.changed = True
        member.late = False
        member.round_num = self._membership.first_round_of(member)
        if self._ports.run.in_step or not member.joined:
            member.first_round = member.round_num
            self._transport.opens(member.id, max(member.first_round, member.completed_rounds))
        self._return_to_network(member)
        if self._meter is not None:
            self._meter.devices[member.id].returned(self._env.now)
        if self.state_lost and member.joined:
            self._lose_state(member)
        if self.state_lost or not member.joined:
            self._start(member)
        member.joined = True
        self._returned[member.id].succeed()
        if not self._anyone.triggered:
            self._anyone.succeed()

    def _return_to_network(self, member: Member) -> None:
        self._membership.returned(member)
        self._transport.network.return_node(member.id)
        self._transport.times.came(member.id)
        self._row(member, "online", 1)

    def _lose_state(self, member: Member) -> None:
        """Forget a node's publications and sent parameters; its next models are drawn again."""
        self._transport.forget(member.id)
        if member.best is not None:
            member.best.forget()
        member.times_lost += 1
        member.node = Node(member.id, self._ports, member.best, member.times_lost)

    def _row(self, member: Member, name: str, value: int) -> None:
        self._records.row(self._env.now, member.id, member.completed_rounds, name, value)

    def _hopeless_text(self) -> str:
        run, times = self._ports.run, self._membership.departures_in_vain
        return (
            f"churn: at {self._env.now:.3f} simulated seconds nodes have left {times} times in a row before any of "
            f"them completed a round (furthest: {run.completed_by_all} of {run.rounds} rounds), so the run never ends. "
            "Lengthen the stays (churn) or shorten the rounds (training.local_steps, devices, network.links)."
        )
