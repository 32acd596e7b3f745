"""Access links of all nodes of a run: capacities, latencies, shared links and their routes.

Algorithms with a server have one more node: the last node, without samples, linked with all others. It is an ordinary
node of the simulated network, so its messages take time and bytes. It has no data, never trains, is never offline, is
not evaluated, and waits for the messages of a round in either mode.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.units import END_OF_TIME_S

NS_PER_S = 1_000_000_000
OF_BOTH_ENDS = -1

Latency = float | Sequence[float] | np.ndarray | Callable[[int, int], float]
Route = Callable[[int, int], Sequence[int]]
"""(src, dst) -> indices of the shared links that a message crosses between its sender's uplink and its receiver's
downlink.
"""

MOST_COMPARED = 100
"""Maximum number of nodes in a median; of more nodes, this many are used, evenly spaced."""


@dataclass(frozen=True)
class CapacityChange:
    """Capacities of a node from `time_s` on."""

    time_s: float
    node: int
    uplink_bytes_per_s: float
    downlink_bytes_per_s: float


@dataclass(frozen=True)
class LinkTable:
    """The access links of N nodes.

    Args:
        uplink_bytes_per_s, downlink_bytes_per_s: capacities, [N]; 0 stalls the messages on the link.
        latency_s: one-way, before the first byte: one number for every message, [N] access latencies (a message takes
            its sender's and its receiver's), a matrix [N, N], or a function (src, dst) -> seconds.
        changes: later changes of capacity, in order of time.
        shared_bytes_per_s: capacities of links that several nodes share.
        route: see Route; None: no message crosses a shared link.
        holds_for_server: whether functions of pairs also accept a server, as node N.
        site_bytes_per_s: [2, N], capacity out of and into the site of each node without a limiting access link, the
            base of its utilization; inf: its own link is the base. None: inf for all.
    """

    uplink_bytes_per_s: np.ndarray
    downlink_bytes_per_s: np.ndarray
    latency_s: Latency
    changes: Sequence[CapacityChange] = ()
    shared_bytes_per_s: Sequence[float] = ()
    route: Route | None = None
    holds_for_server: bool = False
    site_bytes_per_s: np.ndarray | None = None

    @classmethod
    def equal(cls, num_nodes: int, up_bytes_per_s: float, down_bytes_per_s: float, latency_s: Latency) -> "LinkTable":
        """Return the same capacities for every node."""
        return cls(np.full(num_nodes, up_bytes_per_s), np.full(num_nodes, down_bytes_per_s), latency_s)

    @property
    def num_nodes(self) -> int:
        return len(self.uplink_bytes_per_s)


@dataclass(frozen=True)
class Latencies:
    """Latencies in nanoseconds.

    Args:
        access_ns: latency of each node's own link, int64 [N].
        of_all_ns: latency of every message; OF_BOTH_ENDS: the sum of both its ends' access latencies.
        of_pair_ns: (src, dst) -> latency of a message between them; None: `of_all_ns` applies.
    """

    access_ns: np.ndarray
    of_all_ns: int = 0
    of_pair_ns: Callable[[int, int], int] | None = None

    def of(self, src: int, dst: int) -> int:
        """Return the latency of a message, or OF_BOTH_ENDS."""
        return self.of_all_ns if self.of_pair_ns is None else self.of_pair_ns(src, dst)

    def one_way_ns(self, src: int, dst: int) -> int:
        """Return the latency of a message."""
        found = self.of(src, dst)
        return int(self.access_ns[src] + self.access_ns[dst]) if found == OF_BOTH_ENDS else found


def latencies(latency_s: Latency, num_nodes: int) -> Latencies:
    """Convert latencies from seconds.

    Args:
        latency_s: see LinkTable.
        num_nodes: N.
    Raises:
        ValueError: an array of another shape.
        ScenarioError: from the function, when called, if its result is not a valid latency.
    """
    none = np.zeros(num_nodes, dtype=np.int64)
    if callable(latency_s):
        return Latencies(none, of_pair_ns=lambda src, dst: _pair_ns(src, dst, latency_s(src, dst)))
    table_ns = np.rint(np.asarray(latency_s, dtype=float) * NS_PER_S).astype(np.int64)
    if table_ns.ndim == 0:
        return Latencies(none, int(table_ns))
    if table_ns.shape == (num_nodes,):
        return Latencies(table_ns, OF_BOTH_ENDS)
    if table_ns.shape == (num_nodes, num_nodes):
        return Latencies(none, of_pair_ns=lambda src, dst: int(table_ns[src, dst]))
    expected = f"one number, [{num_nodes}] or [{num_nodes}, {num_nodes}]"
    raise ValueError(f"latency_s must be {expected}, got {list(table_ns.shape)}")


def _pair_ns(src: int, dst: int, seconds: Any) -> int:
    """Return a function's latency of a message."""
    try:
        time_s, got = float(seconds), seconds
    except (TypeError, ValueError):
        time_s, got = -1.0, kind_of(seconds)
    if not 0 <= time_s <= END_OF_TIME_S:
        raise ScenarioError(f"links: latency_s({src}, {dst}): expected seconds of 0 or more, got {got}.")
    return round(time_s * NS_PER_S)


def with_server(links: LinkTable, bytes_per_s: float) -> LinkTable:
    """Return the access links of the nodes and of a server.

    Args:
        links: links of the nodes.
        bytes_per_s: the server's uplink and downlink. Its access latency is the median of the nodes'. If latencies are
            of pairs and the links have no site for a server, a message between it and a node takes the median of that
            node's latencies with the others; without routes of the server, its messages cross no shared link.
    """
    latency, route, sites, num_nodes = links.latency_s, links.route, links.site_bytes_per_s, links.num_nodes
    if isinstance(latency, np.ndarray):
        latency = np.append(latency, np.median(latency))
    elif callable(latency) and not links.holds_for_server:
        latency = _median_to_server(latency, num_nodes)
    if route is not None and not links.holds_for_server:
        route = _between_nodes(route, num_nodes)
    return replace(
        links,
        uplink_bytes_per_s=np.append(links.uplink_bytes_per_s, bytes_per_s),
        downlink_bytes_per_s=np.append(links.downlink_bytes_per_s, bytes_per_s),
        latency_s=latency,
        route=route,
        site_bytes_per_s=None if sites is None else np.column_stack([sites, [np.inf, np.inf]]),
    )


def star(num_nodes: int) -> tuple[tuple[int, ...], ...]:
    """Return each node's neighbors: the server for all nodes, all nodes for the server."""
    return (*((num_nodes,) for _ in range(num_nodes)), tuple(range(num_nodes)))


def _between_nodes(route: Route, num_nodes: int) -> Route:
    """Return the routes between nodes; messages from and to a server cross no shared link."""
    return lambda src, dst: route(src, dst) if max(src, dst) < num_nodes else ()


def _median_to_server(latency: Callable[[int, int], float], num_nodes: int) -> Callable[[int, int], float]:
    """Return latencies of pairs; a latency from or to the server is the median of the node's latencies."""
    compared = sorted({int(node) for node in np.linspace(0, num_nodes - 1, MOST_COMPARED)})

    @cache
    def median(node: int, outgoing: bool) -> float:
        pairs = ((node, peer) if outgoing else (peer, node) for peer in compared if peer != node)
        return float(np.median([latency(*pair) for pair in pairs] or [0.0]))

    def of_pair(src: int, dst: int) -> float:
        if num_nodes in (src, dst):
            return median(min(src, dst), dst == num_nodes)
        return latency(src, dst)

    return of_pair
