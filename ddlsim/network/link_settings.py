"""Settings of links that may change during a run: capacities, latencies, routes and losses."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import simpy

from ddlsim.foundation import rng
from ddlsim.network.link_table import OF_BOTH_ENDS, Latencies, LinkTable, latencies
from ddlsim.network.link_use import Traffic, bytes_within

FOREVER_S = float("inf")
NEVER_NS = 2**63 - 1


class Bursts:
    """Losses in bursts, by two states of every sender's link over simulated time.

    Gilbert, "Capacity of a burst-noise channel" (Bell System Technical Journal, 1960); Elliott, "Estimates of error
    rates for codes on burst-noise channels" (same journal, 1963). There a step is a bit; here messages are far apart
    and of all sizes, so the states last exponentially distributed times, and a message meets the state of its sender's
    link at the time of sending.

    Args:
        mean_good_s, mean_bad_s: mean length of a stay in each state, simulated seconds.
        good, bad: probability that a message is lost in each state.
        seed: seed of the states.
    """

    def __init__(self, mean_good_s: float, mean_bad_s: float, good: float, bad: float, seed: int):
        self._means_s = mean_good_s, mean_bad_s
        self._chances = good, bad
        self._seed = seed
        self._stays: dict[int, Iterator[tuple[float, int]]] = {}
        self._now: dict[int, tuple[float, int]] = {}  # sender -> (end of its state, state: 1 is bad)

    def chance(self, sender: int, now_s: float) -> float:
        """Return the loss probability of a message sent now; times never decrease."""
        if sender not in self._stays:
            self._stays[sender] = self._draw_stays(sender)
            self._now[sender] = next(self._stays[sender])
        while self._now[sender][0] <= now_s:
            self._now[sender] = next(self._stays[sender])
        return self._chances[self._now[sender][1]]

    def _draw_stays(self, sender: int) -> Iterator[tuple[float, int]]:
        """Draw ends of stays and their states; the first state follows the stationary distribution."""
        generator = rng.stream(self._seed, "loss bursts", sender)
        good_s, bad_s = self._means_s
        state, end_s = int(generator.random() < bad_s / (good_s + bad_s)), 0.0
        while True:
            end_s += generator.exponential(self._means_s[state])
            yield end_s, state
            state = 1 - state


@dataclass(frozen=True)
class Losses:
    """Messages that never arrive.

    Args:
        drop_prob: probability that a message is lost on its way; its bytes are sent, and wasted.
        bursts: loss model that gives this probability over time; None: constant probability.
        on_drop: reaction to a loss: the whole message is sent again at once, or nothing.
        timeout_s: time after its first sending at which an undelivered message is given up and its sent bytes are
        wasted. None: no limit.
    """

    drop_prob: float = 0.0
    bursts: Bursts | None = None
    on_drop: Literal["retransmit", "drop"] = "retransmit"
    timeout_s: float | None = None

    @property
    def possible(self) -> bool:
        """Whether messages may be lost on their way."""
        return self.drop_prob > 0 or self.bursts is not None

    @property
    def timeout_ns(self) -> int:
        return NEVER_NS if self.timeout_s is None else round(self.timeout_s * 1e9)

    def chance(self, src: int, now_s: float) -> float:
        """Return the loss probability of a message that a node sends now."""
        return self.drop_prob if self.bursts is None else self.bursts.chance(src, now_s)

    def is_sent_again(self, sent_s: float, now_s: float) -> bool:
        """Whether a lost message that was first sent at `sent_s` is sent again."""
        return self.on_drop == "retransmit" and round(now_s * 1e9) < round(sent_s * 1e9) + self.timeout_ns


NO_LOSSES = Losses()


class LinkSettings:
    """The current links of a network, in Python and in its extension.

    Args:
        env: the network's environment.
        transport: the extension's Transport, without nodes.
        links: links of all nodes.
        share: share of links' capacity that messages fill.
        is_ideal: whether latencies are ignored.

    Attributes:
        table: the current links.
        latencies: the current latencies.
    """

    def __init__(self, env: simpy.Environment, transport: Any, links: LinkTable, share: float, is_ideal: bool):
        self._env, self._transport, self._is_ideal = env, transport, is_ideal
        self.share = share
        self._within = np.zeros((2, 1))  # bytes as in link_use.py, more than from current routes
        self.latencies = self._latencies_of(links)
        up, down = (share * np.asarray(each) for each in (links.uplink_bytes_per_s, links.downlink_bytes_per_s))
        transport.add_nodes(up, down, self.latencies.access_ns, env.now)
        self._use_shared(links)
        for node in range(links.num_nodes):
            self._measure_by_site(node, links.uplink_bytes_per_s[node], links.downlink_bytes_per_s[node])

    def use(self, links: LinkTable, traffic: Traffic) -> None:
        """Replace the links from now on; messages that have been sent keep their latency and their shared links.

        Args:
            links: the new links.
            traffic: current traffic.
        """
        self._within = self.within(traffic) - bytes_within(traffic, links.route, links.site_bytes_per_s)
        self._use_shared(links)
        for node, capacities in enumerate(zip(links.uplink_bytes_per_s, links.downlink_bytes_per_s, strict=True)):
            self.set_capacity(node, *map(float, capacities))
        found = self._latencies_of(links)
        if found.of_all_ns == OF_BOTH_ENDS:  # the extension keeps the access latencies that a node was added with
            found = Latencies(found.access_ns, of_pair_ns=found.one_way_ns)
        self.latencies = found

    def set_capacity(self, node: int, uplink_bytes_per_s: float, downlink_bytes_per_s: float) -> None:
        """Set the capacities of a node from now on."""
        up, down = self.share * uplink_bytes_per_s, self.share * downlink_bytes_per_s
        self._transport.set_capacity(self._env.now, node, up, down)
        self._measure_by_site(node, uplink_bytes_per_s, downlink_bytes_per_s)

    def shared_links(self, src: int, dst: int) -> tuple[list[int], float]:
        """Return the shared links that a message crosses, by the extension's numbers, and their smallest capacity."""
        crossed = self.table.route(src, dst) if self.table.route else ()
        smallest = min((self._shared_bytes_per_s[link] for link in crossed), default=FOREVER_S)
        return [self._shared[link] for link in crossed], smallest

    def within(self, traffic: Traffic) -> np.ndarray:
        """Return bytes sent and received, [2, N], that did not cross the links on which utilization is based."""
        return self._within + bytes_within(traffic, self.table.route, self.table.site_bytes_per_s)

    def _latencies_of(self, links: LinkTable) -> Latencies:
        return latencies(0.0 if self._is_ideal else links.latency_s, links.num_nodes)

    def _use_shared(self, links: LinkTable) -> None:
        self.table = links
        self._shared_bytes_per_s = [self.share * capacity for capacity in links.shared_bytes_per_s]
        self._shared = [self._transport.network.add_link(capacity) for capacity in self._shared_bytes_per_s]

    def _measure_by_site(self, node: int, uplink_bytes_per_s: float, downlink_bytes_per_s: float) -> None:
        """Base utilization from now on: the links to a node's site, or its own links if these limit it."""
        if self.table.site_bytes_per_s is None:
            return
        sites = self.table.site_bytes_per_s[:, node]
        up, down = np.where(np.isfinite(sites), sites, (uplink_bytes_per_s, downlink_bytes_per_s)) * self.share
        self._transport.measure_by(self._env.now, node, float(up), float(down))
