"""Meters of energy and privacy.

The energy meter counts steps, and seconds of computing and waiting, as they occur. It does not use records, because
only the engine knows unfinished work: a training that a departure cuts short has cost its device the time until then,
and the same share of its steps.

A device that computes several things at once (it scores a peer's model while it trains) computes during their union,
and does the steps of all. A node is idle if it is online, has rounds left, and computes nothing; after its rounds it
may still compute for others.

The privacy meter computes every node's epsilon from its releases so far.

A training counts as a release when it ends, a message when it is sent. Nodes that complete a round at one instant may
have started the next round at the same instant, depending on the order of events. So an evaluation counts all earlier
releases, and of the releases at its own instant only releases of rounds that it evaluates.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ddlsim.devices.energy import Costs, Work, joules, total
from ddlsim.engine.monitor import Records
from ddlsim.foundation.accounting import Accountant, Releases, epsilon
from ddlsim.network.link_use import Traffic
from ddlsim.network.network import Network


class DeviceMeter:
    """One node's device; times are simulated seconds that never decrease between calls."""

    __slots__ = ("_busy_before_s", "_busy_s", "_busy_until_s", "_idle_s", "_online_since_s", "_steps", "_unfinished")

    def __init__(self) -> None:
        self._steps, self._busy_s, self._busy_until_s = 0.0, 0.0, 0.0
        self._unfinished: list[tuple[float, float, float]] = []  # start, end, steps of unfinished work
        self._idle_s, self._busy_before_s = 0.0, 0.0  # of earlier stays
        self._online_since_s: float | None = 0.0

    def computes(self, steps: float, start_s: float, duration_s: float) -> None:
        """Start this number of steps, of this duration."""
        self._settle(start_s)
        if duration_s <= 0:
            self._steps += steps
            return
        end_s = start_s + duration_s
        self._unfinished.append((start_s, end_s, steps))
        self._busy_s += max(0.0, end_s - max(start_s, self._busy_until_s))
        self._busy_until_s = max(end_s, self._busy_until_s)

    def left(self, now_s: float) -> None:
        """Abort the device's work, because the node has left."""
        self._steps, self._busy_s = self.steps(now_s), self.computing_s(now_s)
        self._unfinished.clear()
        self._busy_until_s = now_s
        self.end_idle(now_s)

    def end_idle(self, now_s: float) -> None:
        """End the node's idle time, because it has no rounds left or has left."""
        self._idle_s, self._online_since_s = self.idle_s(now_s), None

    def returned(self, now_s: float) -> None:
        """Register the node's return."""
        self._online_since_s, self._busy_before_s = now_s, self.computing_s(now_s)

    def steps(self, now_s: float) -> float:
        """Steps until now, including the completed share of unfinished work."""
        return self._steps + sum(
            steps * (min(end_s, now_s) - start_s) / (end_s - start_s) for start_s, end_s, steps in self._unfinished
        )

    def computing_s(self, now_s: float) -> float:
        """Seconds of computing until now."""
        return self._busy_s - max(0.0, self._busy_until_s - now_s)

    def idle_s(self, now_s: float) -> float:
        """Seconds until now in which the node was online, had rounds left and computed nothing; computing for others
        after its rounds does not reduce them.
        """
        if self._online_since_s is None:
            return self._idle_s
        busy_s = self.computing_s(now_s) - self._busy_before_s
        return self._idle_s + max(0.0, now_s - self._online_since_s - busy_s)

    def _settle(self, now_s: float) -> None:
        """Add finished work to the totals."""
        if self._unfinished and self._unfinished[0][1] <= now_s:
            self._steps += sum(steps for _, end_s, steps in self._unfinished if end_s <= now_s)
            self._unfinished = [one for one in self._unfinished if one[1] > now_s]


class EnergyMeter:
    """Energy meter of all nodes of a run.

    Args:
        num_nodes: number of nodes, including the server.
        server: the server's id; None if there is none.
        costs: energy per unit of each kind of work.
        now_s: the simulated time.
    """

    def __init__(self, num_nodes: int, server: int | None, costs: Costs, now_s: Callable[[], float], network: Network):
        self.devices = [DeviceMeter() for _ in range(num_nodes)]
        self._server, self._costs, self._now_s, self._network = server, costs, now_s, network

    def work(self, traffic: Traffic | None = None) -> Work:
        """Return the work of all nodes until now.

        Args:
            traffic: current traffic, if the caller already has it.
        """
        now_s = self._now_s()
        traffic = self._network.traffic if traffic is None else traffic
        computing_s = np.array([device.computing_s(now_s) for device in self.devices])
        idle_s = np.array([device.idle_s(now_s) for device in self.devices])
        steps = np.array([device.steps(now_s) for device in self.devices])
        return Work(steps, computing_s, idle_s, *traffic.carried_bytes(len(self.devices)))

    def joules(self, work: Work) -> dict[str, np.ndarray]:
        """Return joules by use, see devices/energy.py."""
        return joules(work, self._costs, self._server)

    def write(self, records: Records, completed: int) -> None:
        """Write rows of all joules of every node until now, at an evaluation."""
        now_s = self._now_s()
        for node, value in enumerate(total(self.joules(self.work())).tolist()):
            records.row(now_s, node, completed, "joules", value)

    def rows(self, traffic: Traffic | None = None) -> list[dict[str, Any]]:
        """Return one row per node, of plain numbers: its work, and the joules of each kind."""
        work = self.work(traffic)
        columns = {"node": np.arange(len(self.devices)), **vars(work), **self.joules(work)}
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]


@dataclass(eq=False)
class PrivacyMeter:
    """Privacy meter of all nodes of a run; a server has no data.

    Args:
        num_nodes: N.
        one_release: node -> one of its releases, or None if it sends parameters without noise.
        delta, accountant: see foundation/accounting.py.
        now_s: the simulated time.
    """

    num_nodes: int
    one_release: Callable[[int], Releases | None]
    delta: float
    accountant: Accountant
    now_s: Callable[[], float]

    def __post_init__(self) -> None:
        self._earlier = [0] * self.num_nodes
        self._newest: list[Counter[int]] = [Counter() for _ in self._earlier]  # round -> releases, at `_newest_s`
        self._newest_s = [0.0] * self.num_nodes

    def released(self, node: int, round_num: int, count: int = 1) -> None:
        """Count a node's releases at this instant, in its round."""
        now_s = self.now_s()
        if now_s > self._newest_s[node]:
            self._earlier[node] += self._newest[node].total()
            self._newest[node], self._newest_s[node] = Counter(), now_s
        self._newest[node][round_num] += count

    def epsilons(self, completed: int) -> list[float]:
        """Return epsilon per node when this number of rounds is completed; infinity without noise."""
        counted = [(self.one_release(node), self._count(node, completed)) for node in range(self.num_nodes)]
        return [
            math.inf if one is None else epsilon((replace(one, count=count),), self.delta, self.accountant)
            for one, count in counted
        ]

    def write(self, records: Records, completed: int) -> None:
        """Write rows of every node's epsilon, at an evaluation; none if there is no guarantee."""
        now_s = self.now_s()
        for node, value in enumerate(self.epsilons(completed)):
            if math.isfinite(value):
                records.row(now_s, node, completed, "epsilon", value)

    def _count(self, node: int, completed: int) -> int:
        newest, is_over = self._newest[node], self._newest_s[node] < self.now_s()
        return self._earlier[node] + sum(n for round_num, n in newest.items() if is_over or round_num < completed)
