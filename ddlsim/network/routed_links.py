"""Links of a physical network that messages cross, separate from the topology of the nodes that exchange them.

Every edge of the physical graph is a link in each direction (or one for both; of a directed graph, one in its
direction), which all messages routed over it share max-min fairly. A message takes the path of least latency, among
those the one of fewest edges, among those at each step back from its end the node of least id. Latencies of the edges
add up.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import networkx as nx
import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import MAX_LATENCY_MS, MAX_MBPS, mbps_to_bytes_per_s, ms_to_s
from ddlsim.network.access_links import Links, Mbps
from ddlsim.network.link_table import LinkTable
from ddlsim.topologies.files import Format, read_graph

UNLIMITED_MBPS = 1e9
HOPS = 2**20
"""Paths are compared by whole numbers, nanoseconds x HOPS + edges, so that equal ones are equal."""


@dataclass(frozen=True, kw_only=True)
class Routed(Links):
    """Messages are routed over a physical network whose links they share.

    Args:
        path: its graph; each edge has bandwidth_mbps (Mbit/s) and latency_ms (one way). Node ids are whole numbers,
            routers among them. Relative to the folder that the command is started in. Null: the topology's graph, which
            must be the same in all rounds; a directed edge is a link in its direction only.
        format: edge_list (`node node bandwidth_mbps latency_ms` per line), graphml or gml; auto: by the file's ending.
        hosts: for each node of the scenario the id of its physical node, which several nodes may share; null: the
            physical nodes in ascending order of their ids.
        server_host: the id of the physical node of the server, for algorithms that have one; null: the node with the
            smallest sum of latencies to all hosts.
        duplex: full: an edge carries its bandwidth in each direction; half: in both together.
        uplink_mbps: Mbit/s a node itself can send; null: only the physical links limit it.
        downlink_mbps: Mbit/s a node itself can receive; null: only the physical links limit it.
    """

    has_graph: ClassVar[bool] = True
    _graph: ClassVar[Any] = None  # of the topology, see `over`

    path: str | None = None
    format: Format = "auto"
    hosts: tuple[int, ...] | None = None
    server_host: int | None = None
    duplex: Literal["full", "half"] = "full"
    uplink_mbps: Mbps | None = None
    downlink_mbps: Mbps | None = None

    @property
    def uses_topology(self) -> bool:
        return self.path is None

    def over(self, graph: nx.Graph) -> "Routed":
        placed = copy(self)
        object.__setattr__(placed, "_graph", graph)
        return placed

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        """Draw the links of all nodes, and the physical links between them.

        Raises:
            ScenarioError: the file cannot be read, an edge lacks an attribute, a host is not in the graph, or two hosts
                cannot reach each other.
        """
        graph = self._read()
        hosts = self._place(graph, num_nodes)
        routes = Routes(graph, hosts, self.duplex == "full", self.server_host)
        limits = self.uplink_mbps, self.downlink_mbps
        rates = (mbps_to_bytes_per_s(UNLIMITED_MBPS if limit is None else limit) for limit in limits)
        up, down = (np.full(num_nodes, rate) for rate in rates)
        around = [routes.site_bytes_per_s(host) for host in hosts]
        sites = np.array([around if limit is None else [np.inf] * num_nodes for limit in limits])
        return LinkTable(
            up, down, routes.latency_s, (), routes.capacities_bytes_per_s, routes.links, True, site_bytes_per_s=sites
        )

    def _read(self) -> nx.Graph:
        graph = self._graph if self.path is None else read_graph(self.path, self.format, key="links.path")
        if graph is None:
            raise ScenarioError("links.path: expected a file; null needs the topology of a scenario.")
        source = "the topology" if self.path is None else self.path
        for one, other, found in graph.edges(data=True):
            for name, limit in (("bandwidth_mbps", MAX_MBPS), ("latency_ms", MAX_LATENCY_MS)):
                value = found.get(name)
                if not isinstance(value, int | float) or not 0 <= value < limit:
                    expected = f"{name} of 0 to below {limit:g} on every edge of {source}"
                    raise ScenarioError(f"links.path: expected {expected}, got {value!r} between {one} and {other}.")
        return graph

    def _place(self, graph: nx.Graph, num_nodes: int) -> Sequence[int]:

        hosts = tuple(sorted(graph))[:num_nodes] if self.hosts is None else self.hosts
        if len(hosts) != num_nodes:
            key = "path" if self.hosts is None else "hosts"
            text = f"expected {num_nodes} hosts, one per node, got {len(hosts)}"
            raise ScenarioError(f"links.{key}: {text}. Several nodes may name the same host in links.hosts.")
        server = () if self.server_host is None else (self.server_host,)
        for key, named in (("hosts", set(hosts)), ("server_host", set(server))):
            unknown = sorted(named - set(graph))
            if unknown:
                raise ScenarioError(f"links.{key}: {self.path or 'the topology'} has no node {unknown[0]}.")
        ways = (graph, graph.reverse()) if isinstance(graph, nx.DiGraph) else (graph,)
        for apart in ({*hosts, *server} - {hosts[0], *nx.descendants(way, hosts[0])} for way in ways):
            if apart:
                ends = f"between {hosts[0]} and" if graph.is_directed() else f"from {hosts[0]} to"
                text = f"in {self.path or 'the topology'} no path leads {ends} {min(apart)}"
                raise ScenarioError(f"links.path: {text}.")
        return hosts


class Routes:
    """Paths of pairs of nodes, each computed when it is first needed.

    Args:
        graph: the physical network.
        hosts: physical node of each node.
        full_duplex: whether each direction of an edge is a separate link.
        server_host: physical node of a server, the node after the last; None: the node nearest to all hosts together.

    Attributes:
        capacities_bytes_per_s: per link; the links of an edge are adjacent, in ascending order of the edges.
    """

    def __init__(self, graph: nx.Graph, hosts: Sequence[int], full_duplex: bool, server_host: int | None = None):
        self._graph = graph
        self._hosts = hosts
        self._server_host = server_host
        self._link: dict[tuple[int, int], int] = {}
        self.capacities_bytes_per_s: list[float] = []
        one_way = graph.is_directed()
        for low, high in sorted(graph.edges if one_way else (tuple(sorted(edge)) for edge in graph.edges)):
            capacity = mbps_to_bytes_per_s(float(graph.edges[low, high]["bandwidth_mbps"]))
            for direction in ((low, high),) if one_way else ((low, high), (high, low)):
                if full_duplex or direction == (low, high):
                    self.capacities_bytes_per_s.append(capacity)
                self._link[direction] = len(self.capacities_bytes_per_s) - 1
        self._before: dict[int, Mapping[int, list[int]]] = {}
        self._between = cache(self._find)

    def links(self, src: int, dst: int) -> Sequence[int]:
        """Return the links that a message crosses, in order."""
        return self._path(src, dst)[0]

    def latency_s(self, src: int, dst: int) -> float:
        """One-way latency."""
        return self._path(src, dst)[1]

    def site_bytes_per_s(self, host: int) -> float:
        """Return the total capacity of the links of a physical node, in each direction."""
        others = (other for other in self._graph[host] if other != host)
        return float(sum(self.capacities_bytes_per_s[self._link[host, other]] for other in others))

    def _path(self, src: int, dst: int) -> tuple[tuple[int, ...], float]:
        return self._between(self._host(src), self._host(dst))

    def _host(self, node: int) -> int:
        if node < len(self._hosts):
            return self._hosts[node]
        if self._server_host is None:
            self._server_host = self._center()
        return self._server_host

    def _center(self) -> int:
        """Return the node with the smallest sum of latencies to all hosts; among several, the one of least id."""

        total: Counter[int] = Counter()
        for host, times in Counter(self._hosts).items():
            found = nx.single_source_dijkstra_path_length(self._graph, host, weight=_length)
            total.update({place: times * length for place, length in found.items()})
        return min(total, key=lambda place: (total[place], place))

    def _find(self, start: int, end: int) -> tuple[tuple[int, ...], float]:

        if start not in self._before:
            self._before[start], _ = nx.dijkstra_predecessor_and_distance(self._graph, start, weight=_length)
        links, latency_ms, node = [], 0.0, end
        while node != start:
            before = min(self._before[start][node])
            links.append(self._link[before, node])
            latency_ms += float(self._graph.edges[before, node]["latency_ms"])
            node = before
        return tuple(reversed(links)), ms_to_s(latency_ms)


def _length(one: int, other: int, edge: Mapping[str, float]) -> int:
    """Return an edge's contribution to a path's length, see HOPS."""
    return round(edge["latency_ms"] * 1e6) * HOPS + 1
