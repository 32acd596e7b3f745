"""A server beside the nodes, for algorithms that have one: the last node, without samples, linked with all others.

It is a node like others in the simulated network, so that its messages take their time and bytes. It owns no data,
never trains, is never away, is not evaluated, and waits for the messages of a round in either mode.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from ddlsim.network.access_links import LinkTable

MOST_COMPARED = 100
"""A median over more nodes than these is taken over as many of them, evenly spaced."""


def with_server(links: LinkTable, num_nodes: int, bytes_per_s: float) -> LinkTable:
    """Access links of the nodes and of a server.

    Args:
        links: of the nodes.
        num_nodes: their number, and the server's id.
        bytes_per_s: the server's uplink and downlink. Its access latency is the median of the nodes'. Where latencies
            are of pairs and the links know no place of a server, a message between it and a node takes the median of
            that node's latencies with the others; and where they do not know its routes, it crosses no shared link.
    """
    latency, route, sites = links.latency_s, links.route, links.site_bytes_per_s
    if isinstance(latency, np.ndarray):
        latency = np.append(latency, np.median(latency))
    elif callable(latency) and not links.holds_for_server:
        latency = _beside_server(latency, num_nodes)
    if route is not None and not links.holds_for_server:
        route = _among(route, num_nodes)
    return replace(
        links,
        uplink_bytes_per_s=np.append(links.uplink_bytes_per_s, bytes_per_s),
        downlink_bytes_per_s=np.append(links.downlink_bytes_per_s, bytes_per_s),
        latency_s=latency,
        route=route,
        site_bytes_per_s=None if sites is None else np.column_stack([sites, [np.inf, np.inf]]),
    )


def star(num_nodes: int) -> tuple[tuple[int, ...], ...]:
    """Per node its neighbors: the server for all, all for the server."""
    return (*((num_nodes,) for _ in range(num_nodes)), tuple(range(num_nodes)))


def _beside_server(latency: Callable[[int, int], float], num_nodes: int) -> Callable[[int, int], float]:
    """Latencies of pairs, those with the server as medians of the node's own."""
    compared = sorted({int(node) for node in np.linspace(0, num_nodes - 1, MOST_COMPARED)})

    @cache
    def to_server(node: int) -> float:
        return float(np.median([latency(node, other) for other in compared if other != node] or [0.0]))

    @cache
    def from_server(node: int) -> float:
        return float(np.median([latency(other, node) for other in compared if other != node] or [0.0]))

    def of_pair(src: int, dst: int) -> float:
        if dst == num_nodes:
            return to_server(src)
        return from_server(dst) if src == num_nodes else latency(src, dst)

    return of_pair


def _among(route: Callable[[int, int], Sequence[int]], num_nodes: int) -> Callable[[int, int], Sequence[int]]:
    """Routes between nodes; none with the server."""
    return lambda src, dst: route(src, dst) if max(src, dst) < num_nodes else ()
