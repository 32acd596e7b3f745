"""The flow network in plain Python, with all rates recomputed at every event: the reference for csrc/flow.

Same numbers as csrc/flow/flow_network.h: time in ns, rates in 2^-16 byte/s, work in rate unit x ns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RATE_UNITS_PER_BYTE_S = 2**16
WORK_PER_BYTE = RATE_UNITS_PER_BYTE_S * 10**9
NEVER_NS = 2**63 - 1


def fair_rates(routes: Mapping[int, Sequence[int]], capacities: Sequence[int]) -> dict[int, int]:
    """Max-min fair whole-number rates by progressive filling; links that fill at one level fill together.

    Args:
        routes: flow -> the links it crosses.
        capacities: per link.
    """
    left = list(capacities)
    open_flows: dict[int, set[int]] = {}
    for flow, links in routes.items():
        for link in links:
            open_flows.setdefault(link, set()).add(flow)
    rates: dict[int, int] = {}
    while open_flows:
        shares = {link: left[link] // len(flows) for link, flows in open_flows.items()}
        level = min(shares.values())
        fixed = set().union(*(open_flows[link] for link, share in shares.items() if share == level))
        for flow in fixed:
            rates[flow] = level
            for link in routes[flow]:
                left[link] -= level
                open_flows[link].discard(flow)
        open_flows = {link: flows for link, flows in open_flows.items() if flows}
    return rates


@dataclass
class _Flow:
    links: tuple[int, ...]
    total: int
    left: int
    begins_ns: int
    ends_at_once: bool
    deadline_ns: int


class ReferenceNetwork:
    """The interface of the core; flows are numbered in the order of sending."""

    def __init__(self):
        self.now = 0
        self.capacities: list[int] = []
        self._flows: dict[int, _Flow] = {}
        self._num_sent = 0

    def add_node(self, uplink: float, downlink: float) -> None:
        """Add a node with these capacities, bytes/s."""
        self.capacities += [round(uplink * RATE_UNITS_PER_BYTE_S), round(downlink * RATE_UNITS_PER_BYTE_S)]

    def add_link(self, capacity: float) -> int:
        """Add a shared link, bytes/s, after all nodes."""
        self.capacities.append(round(capacity * RATE_UNITS_PER_BYTE_S))
        return len(self.capacities) - 1

    def set_capacity(self, link: int, capacity: float) -> None:
        """Set a capacity; the uplink of node n is link 2n, its downlink 2n + 1."""
        self.capacities[link] = round(capacity * RATE_UNITS_PER_BYTE_S)

    def send(
        self,
        src: int,
        dst: int,
        num_bytes: int,
        latency_ns: int,
        links: Sequence[int] = (),
        deadline_ns: int = NEVER_NS,
    ) -> int:
        """Send a message now, aborted at its deadline; return its number."""
        work = num_bytes * WORK_PER_BYTE
        at_once = src == dst or num_bytes == 0
        begins_ns = self.now + (0 if src == dst else latency_ns)
        self._flows[self._num_sent] = _Flow((2 * src, 2 * dst + 1, *links), work, work, begins_ns, at_once, deadline_ns)
        self._num_sent += 1
        return self._num_sent - 1

    def rates(self) -> dict[int, int]:
        """Return the rates of flows that use bandwidth now."""
        sending = {
            number: flow.links
            for number, flow in self._flows.items()
            if flow.begins_ns <= self.now and not flow.ends_at_once
        }
        return fair_rates(sending, self.capacities)

    def next_time(self) -> int:
        """Return the time of the next end of a latency or message, or of the next deadline."""
        rates, times = self.rates(), [NEVER_NS]
        for number, flow in self._flows.items():
            times.append(flow.deadline_ns)
            if number not in rates:
                times.append(flow.begins_ns)
            elif flow.left == 0:
                times.append(self.now)
            elif rates[number] > 0:
                times.append(self.now + -(-flow.left // rates[number]))
        return min(times)

    def step(self, until_ns: int) -> tuple[list[int], list[tuple[int, int]]]:
        """Return completed and aborted messages of the first instant with any, up to until_ns.

        Messages aborted at their deadline come with the bytes sent so far.
        """
        while (time := self.next_time()) <= until_ns and time != NEVER_NS:
            self._advance(time)
            ended = [
                number
                for number, flow in self._flows.items()
                if flow.begins_ns <= time and (flow.ends_at_once or flow.left == 0)
            ]
            for number in ended:
                del self._flows[number]
            late = [number for number, flow in self._flows.items() if flow.deadline_ns <= time]
            overdue = [(number, self._abort(number)) for number in late]
            if ended or overdue:
                return ended, overdue
        self._advance(until_ns)
        return [], []

    def remove_node(self, node: int) -> list[tuple[int, int]]:
        """Remove a node; return its aborted messages and the bytes sent of each."""
        touched = [n for n, flow in self._flows.items() if flow.links[0] == 2 * node or flow.links[1] == 2 * node + 1]
        return [(number, self._abort(number)) for number in touched]

    def advance(self, now_ns: int) -> None:
        """Advance the time to an instant before which nothing ends."""
        while (time := self.next_time()) < now_ns:
            self._advance(time)
        self._advance(now_ns)

    def _abort(self, number: int) -> int:
        """Abort a message; return the bytes sent so far."""
        flow = self._flows.pop(number)
        return flow.total // WORK_PER_BYTE + -flow.left // WORK_PER_BYTE if not flow.ends_at_once else 0

    def _advance(self, now_ns: int) -> None:
        for number, rate in self.rates().items():
            flow = self._flows[number]
            flow.left = max(0, flow.left - rate * (now_ns - self.now))
        self.now = now_ns
