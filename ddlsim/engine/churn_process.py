"""Nodes that leave and return, and the effects on their work, their messages and their state.

A node that leaves at an instant leaves before all other events of that instant: a training that ends at the same
instant is lost.
"""

from collections.abc import Generator, Iterator
from itertools import chain, dropwhile
from typing import TYPE_CHECKING, Protocol

import simpy
from simpy.events import URGENT

from ddlsim.churn.schedule import Absences
from ddlsim.foundation.units import END_OF_TIME_S

if TYPE_CHECKING:
    from ddlsim.engine.membership import Member


class Population(Protocol):
    """Interface through which churn acts on a run; the simulation implements it."""

    def leave(self, member: "Member", returns_s: float) -> None:
        """Take the node offline until `returns_s`."""

    def stays_away(self, member: "Member", returns_s: float) -> None:
        """Keep or take the node offline until that time."""

    def come(self, member: "Member") -> None:
        """Bring a node online, after an absence or for the first time."""


class ChurnProcess:
    """SimPy processes, one for each node that is ever offline.

    Args:
        env: SimPy's environment.
        members: all nodes.
        absences: per node its absences, see churn/schedule.py; read one by one, as time passes.
        state_lost: whether a node returns without its state and restarts.

    Attributes:
        newcomers: nodes whose first absence starts with the run.
    """

    def __init__(self, env: simpy.Environment, members: "list[Member]", absences: Absences, state_lost: bool = False):
        self.state_lost = state_lost
        self.newcomers: list[Member] = []
        self._env = env
        self._planned: list[tuple[Member, Iterator[tuple[float, float]]]] = []
        self._processes: list[simpy.Process] = []
        for node, absent in absences.items():
            stays_away = iter(absent)
            first = next(stays_away, None)
            if first is None:
                continue
            if first[0] <= 0:
                self.newcomers.append(members[node])
            self._planned.append((members[node], chain([first], stays_away)))

    def begin(self, population: Population) -> None:
        """Start the processes; the nodes' lives have started."""
        self._processes = [
            self._env.process(self._come_and_go(population, member, stays_away)) for member, stays_away in self._planned
        ]

    def replace(
        self, population: Population, members: "list[Member]", absences: Absences, state_lost: bool = False
    ) -> None:
        """Replace the absences from now on: nodes that the new absences have online join at once, the others leave."""
        for process in self._processes:
            if process.is_alive:
                process.interrupt()
        self.state_lost = state_lost
        now_s, still_away = self._env.now, {}
        for node, absent in absences.items():
            to_come = dropwhile(lambda stay: stay[1] <= now_s, iter(absent))
            first = next(to_come, None)
            if first is not None:
                still_away[node] = chain([first], to_come)
                if first[0] <= now_s:
                    population.stays_away(members[node], first[1])
                    continue
            if not members[node].online:
                population.come(members[node])
        for member in members:
            if member.id not in absences and not member.online:
                population.come(member)
        self._processes = [
            self._env.process(self._come_and_go(population, members[node], stays)) for node, stays in still_away.items()
        ]

    def _come_and_go(
        self, population: Population, member: "Member", stays_away: Iterator[tuple[float, float]]
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
                    population.leave(member, end_s)
                if end_s > END_OF_TIME_S:  # a time beyond the end of the run
                    return
                yield env.timeout(max(0.0, end_s - env.now))
                population.come(member)
        except simpy.Interrupt:  # other absences apply from now on
            return
