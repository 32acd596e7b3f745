"""What nodes do that costs energy, counted as it happens: steps, seconds of computing and of waiting.

Counted here and not from records, because only the engine knows what was begun and not finished: a training that a
departure cuts short has cost its device the time until then, and of its steps the same share.

A device that computes several things at once (it scores a peer's model while it trains) computes during their union,
and does the steps of all. Idle is a node that is online, has rounds to go, and computes nothing; after its rounds it
may still compute what others ask for.

Epsilon of every node so far, from what it has released.

A training releases something when it ends, a message when it is sent. Nodes that complete a round at one instant may
have started the next round at the same instant, depending on the order of events. So an evaluation counts all earlier
releases, and of those at its own instant the ones of rounds that it evaluates.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.devices.joules import Costs, Work, joules, total
from ddlsim.learning.accounting import Accountant, Releases, epsilon

if TYPE_CHECKING:
    from ddlsim.engine.evaluation.monitor import Records
    from ddlsim.network.flows import Traffic
    from ddlsim.network.network import Network


class DeviceMeter:
    """One node's device; times are simulated seconds, and never earlier than those of a call before."""

    __slots__ = ("_begun", "_busy_before_s", "_busy_s", "_busy_until_s", "_idle_s", "_online_since_s", "_steps")

    def __init__(self) -> None:
        self._steps, self._busy_s, self._busy_until_s = 0.0, 0.0, 0.0
        self._begun: list[tuple[float, float, float]] = []  # start, end, steps of what has not ended
        self._idle_s, self._busy_before_s = 0.0, 0.0  # of earlier stays
        self._online_since_s: float | None = 0.0

    def computes(self, steps: float, start_s: float, duration_s: float) -> None:
        """The device begins with so many steps, which take so long."""
        self._settle(start_s)
        if duration_s <= 0:
            self._steps += steps
            return
        end_s = start_s + duration_s
        self._begun.append((start_s, end_s, steps))
        self._busy_s += max(0.0, end_s - max(start_s, self._busy_until_s))
        self._busy_until_s = max(end_s, self._busy_until_s)

    def left(self, now_s: float) -> None:
        """The node has left: what its device computes is aborted."""
        self._steps, self._busy_s = self.steps(now_s), self.computing_s(now_s)
        self._begun.clear()
        self._busy_until_s = now_s
        self.through(now_s)

    def through(self, now_s: float) -> None:
        """The node has no rounds left, or has left: it is idle no more."""
        self._idle_s, self._online_since_s = self.idle_s(now_s), None

    def came(self, now_s: float) -> None:
        """The node is there again."""
        self._online_since_s, self._busy_before_s = now_s, self.computing_s(now_s)

    def steps(self, now_s: float) -> float:
        """Steps until now; of what has not ended the share that has passed."""
        begun = ((start_s, min(end_s, now_s), end_s, steps) for start_s, end_s, steps in self._begun)
        return self._steps + sum(
            steps * (until_s - start_s) / (end_s - start_s) for start_s, until_s, end_s, steps in begun
        )

    def computing_s(self, now_s: float) -> float:
        """Seconds of computing until now."""
        return self._busy_s - max(0.0, self._busy_until_s - now_s)

    def idle_s(self, now_s: float) -> float:
        """Seconds until now in which the node was online, had rounds to go and computed nothing; what it computes for
        others after its rounds takes none of them away."""
        if self._online_since_s is None:
            return self._idle_s
        busy_s = self.computing_s(now_s) - self._busy_before_s
        return self._idle_s + max(0.0, now_s - self._online_since_s - busy_s)

    def _settle(self, now_s: float) -> None:
        """What has ended is only a number."""
        if self._begun and self._begun[0][1] <= now_s:
            self._steps += sum(steps for _, end_s, steps in self._begun if end_s <= now_s)
            self._begun = [one for one in self._begun if one[1] > now_s]


class EnergyMeter:
    """All nodes of a run.

    Args:
        num_nodes: with the server.
        server: its number; None: there is none.
        costs: of a unit of each.
        now_s: the simulated time.
        network: what counts bytes.
    """

    def __init__(
        self, num_nodes: int, server: int | None, costs: Costs, now_s: Callable[[], float], network: "Network"
    ):
        self.devices = [DeviceMeter() for _ in range(num_nodes)]
        self._server, self._costs, self._now_s, self._network = server, costs, now_s, network

    def computes(self, node: int, steps: float, start_s: float, duration_s: float) -> None:
        """A device begins with so many steps, see clock.py."""
        self.devices[node].computes(steps, start_s, duration_s)

    def left(self, node: int) -> None:
        """A node has left, or is not there at the start."""
        self.devices[node].left(self._now_s())

    def came(self, node: int) -> None:
        """A node is there again, or for the first time."""
        self.devices[node].came(self._now_s())

    def finished(self, node: int) -> None:
        """A node has no rounds left."""
        self.devices[node].through(self._now_s())

    def work(self, traffic: "Traffic | None" = None) -> Work:
        """What all have done until now.

        Args:
            traffic: that of this moment, if the caller has it already.
        """
        now_s, count = self._now_s(), len(self.devices)
        traffic = self._network.traffic if traffic is None else traffic
        computing_s = np.array([device.computing_s(now_s) for device in self.devices])
        idle_s = np.array([device.idle_s(now_s) for device in self.devices])
        sent, received = (
            np.bincount(nodes, traffic.on_the_wire, count).astype(np.int64) for nodes in (traffic.src, traffic.dst)
        )
        steps = np.array([device.steps(now_s) for device in self.devices])
        return Work(steps, computing_s, idle_s, sent, received)

    def joules(self, work: Work) -> dict[str, np.ndarray]:
        """By what they were spent on, see devices/joules.py."""
        return joules(work, self._costs, self._server)

    def write(self, records: "Records", completed: int) -> None:
        """Rows of all joules of every node until now, at an evaluation."""
        now_s = self._now_s()
        for node, value in enumerate(total(self.joules(self.work())).tolist()):
            records.row(now_s, node, completed, "joules", value)

    def rows(self, traffic: "Traffic | None" = None) -> list[dict[str, Any]]:
        """One per node, of plain numbers: what it did, and the joules of each."""
        work = self.work(traffic)
        arrays = {name: getattr(work, name) for name in Work.__dataclass_fields__} | self.joules(work)
        plain = {name: values.tolist() for name, values in arrays.items()}
        return [
            {"node": node, **{name: values[node] for name, values in plain.items()}}
            for node in range(len(self.devices))
        ]


class PrivacyMeter:
    """All nodes of a run; a server has no data.

    Args:
        num_nodes: N.
        one_release: node -> one of its releases, or None if it sends parameters without noise.
        delta, accountant: see learning/accounting.py.
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
