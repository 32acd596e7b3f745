"""Nodes that leave and return: what becomes of their work, their messages and their state.

A node that leaves at an instant leaves before anything else that happens at it: a training that ends just then is lost.
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
    """What churn does to a run; the simulation is one."""

    def leave(self, member: "Member", returns_s: float) -> None:
        """A node goes away, to return at that time."""

    def stays_away(self, member: "Member", returns_s: float) -> None:
        """A node is away, or goes away now, to return at that time."""

    def come(self, member: "Member") -> None:
        """A node returns, or joins for the first time."""


class ChurnProcess:
    """A SimPy process for each node that is ever away.

    Args:
        env: SimPy's environment.
        members: all nodes.
        absences: per node its absences, see churn/schedule.py; taken one by one, as time comes.
        state_lost: whether a node comes back without its state and starts afresh.

    Attributes:
        newcomers: nodes whose first absence begins with the run.
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
        """Starts the processes; the nodes' lives have begun."""
        self._processes = [
            self._env.process(self._come_and_go(population, member, stays_away)) for member, stays_away in self._planned
        ]

    def replace(
        self, population: Population, members: "list[Member]", absences: Absences, state_lost: bool = False
    ) -> None:
        """From now on nodes come and go by other absences: those that these have here come at once, others leave."""
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
                if end_s > END_OF_TIME_S:  # a time that the run cannot reach
                    return
                yield env.timeout(max(0.0, end_s - env.now))
                population.come(member)
        except simpy.Interrupt:  # other absences hold from now on
            return
