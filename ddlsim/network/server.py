"""A server beside the nodes, for algorithms that have one: the last node, without samples, linked with all others.

It is a node like others in the simulated network, so that its messages take their time and bytes. It owns no data,
never trains, is never away, is not evaluated, and waits for the messages of a round in either mode.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ddlsim.network.access_links import LinkTable

Value = TypeVar("Value")


def with_server(links: LinkTable, num_nodes: int, bytes_per_s: float) -> LinkTable:
    """Access links of the nodes and of a server.

    Args:
        links: of the nodes.
        num_nodes: their number, and the server's id.
        bytes_per_s: the server's uplink and downlink. Its access latency is the median of the nodes'; where latencies
            are of pairs, messages to and from it take none of their own and cross no shared link.
    """
    latency, route = links.latency_s, links.route
    if isinstance(latency, np.ndarray):
        latency = np.append(latency, np.median(latency))
    elif callable(latency):
        latency = _among(latency, num_nodes, 0.0)
    return replace(
        links,
        uplink_bytes_per_s=np.append(links.uplink_bytes_per_s, bytes_per_s),
        downlink_bytes_per_s=np.append(links.downlink_bytes_per_s, bytes_per_s),
        latency_s=latency,
        route=None if route is None else _among(route, num_nodes, ()),
    )


def star(num_nodes: int) -> tuple[tuple[int, ...], ...]:
    """Per node its neighbors: the server for all, all for the server."""
    return (*((num_nodes,) for _ in range(num_nodes)), tuple(range(num_nodes)))


def _among(function: Callable[[int, int], Value], num_nodes: int, otherwise: Value) -> Callable[[int, int], Value]:
    """A function of pairs of nodes, with another value for pairs with the server."""
    return lambda src, dst: function(src, dst) if max(src, dst) < num_nodes else otherwise
