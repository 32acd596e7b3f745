"""Graphs from files, with errors that name the file, the line and the expected value.

The topology `file` is a user-supplied graph.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ddlsim.foundation.errors import ScenarioError, listing
from ddlsim.topologies.base import StaticTopology

if TYPE_CHECKING:
    import networkx as nx


EDGE_ATTRIBUTES = ("bandwidth_mbps", "latency_ms")


def read_edge_list(path: str, key: str = "topology.path") -> "nx.Graph":
    """Read the undirected graph of an edge list: `node node`, `node node bandwidth_mbps latency_ms`, or networkx's
    dialect.

    A first line with one number gives the number of nodes, as in DecentralizePy's files.

    Raises:
        ScenarioError: if a line has none of these forms, or other values than an earlier line of the same edge; names
            the line.
    """
    import networkx as nx

    graph: nx.Graph[int] = nx.Graph()
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{key}: {path} cannot be read as text: {error}") from error
    empty, stated = True, None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        first, empty = empty, False
        try:
            if first and len(words) == 1 and words[0].isdecimal():
                stated = int(words[0])
                graph.add_nodes_from(range(stated))
                continue
            if len(words) in (2, 4) and "{" not in line:
                attributes = dict(zip(EDGE_ATTRIBUTES, map(float, words[2:]), strict=False))
                edges = [(int(words[0]), int(words[1]), attributes)]
            else:
                edges = list(nx.parse_edgelist([line], nodetype=int).edges(data=True))
                if not edges:  # networkx skips lines of fewer than two words
                    raise ValueError
        except (TypeError, ValueError) as error:
            expected = "'node node' or 'node node bandwidth_mbps latency_ms'"
            raise ScenarioError(f"{key}: {path}:{number}: expected {expected}, got {line.strip()!r}.") from error
        for one, other, attributes in edges:
            if stated is not None and max(one, other) >= stated:
                expected = f"nodes 0..{stated - 1}, as by the first line"
                raise ScenarioError(f"{key}: {path}:{number}: expected {expected}, got {line.strip()!r}.")
            _add_edge(graph, one, other, attributes, f"{key}: {path}:{number}")
    return graph


def _add_edge(graph: "nx.Graph", one: int, other: int, attributes: dict[str, Any], place: str) -> None:
    """Add an edge; a repeated edge must have the same capacity and latency, which apply to both directions."""
    if graph.has_edge(one, other):
        before, now = (tuple(map(found.get, EDGE_ATTRIBUTES)) for found in (graph.edges[one, other], attributes))
        if before != now:
            text = f"expected {' and '.join(EDGE_ATTRIBUTES)} of the edge {one} {other} as before, {before}, got {now}"
            raise ScenarioError(f"{place}: {text}. Leave one of them out.")
    graph.add_edge(one, other, **attributes)


def read_graphml(path: str, key: str = "topology.path") -> "nx.Graph":
    """Read the undirected graph of a GraphML file, node ids as integers.

    Raises:
        ScenarioError: if networkx cannot read it, it is directed, ids are not whole numbers, or two edges of the same
            nodes have other values.
    """
    import xml.etree.ElementTree as ElementTree

    import networkx as nx

    try:
        found = nx.read_graphml(path, node_type=int)
    except (OSError, ElementTree.ParseError, nx.NetworkXError, KeyError, ValueError) as error:
        text = f"{path} is not a GraphML file that networkx can read, with whole numbers as node ids"
        raise ScenarioError(f"{key}: {text}: {error}") from error
    if found.is_directed():
        raise ScenarioError(f"{key}: the graph in {path} is directed; links carry both ways (edgedefault).")
    if not found.is_multigraph():
        return found
    simple: nx.Graph[int] = nx.create_empty_copy(nx.Graph(found))
    for one, other, attributes in found.edges(data=True):
        _add_edge(simple, one, other, attributes, f"{key}: {path}")
    return simple


def check_node_ids(path: str, graph: "nx.Graph", num_nodes: int) -> None:
    """Raise ScenarioError unless the nodes are exactly 0..num_nodes-1."""
    missing = sorted(set(range(num_nodes)) - set(graph))
    extra = sorted(set(graph) - set(range(num_nodes)))
    if missing or extra:
        parts = [f"{word} {listing(ids)}" for word, ids in (("lacks", missing), ("has", extra)) if ids]
        text = f"the graph in {path} must have exactly the nodes 0..{num_nodes - 1}; it {' and '.join(parts)}"
        raise ScenarioError(f"topology.path: {text}.")


@dataclass(frozen=True, kw_only=True)
class File(StaticTopology):
    """A graph read from a file; the same in all rounds.

    `edge_list`: one edge per line, `node node`, or networkx's `node node {'weight': 2}`; `#` starts a comment; a first
    line with one number gives the number of nodes, with or without edges. `graphml`: undirected. A topology defines
    which nodes communicate: a file whose edges have `bandwidth_mbps` or `latency_ms` belongs in `network.links`,
    `routed`.

    Args:
        path: the file, relative to the folder that the command is started in.
        format: edge_list or graphml.
        connected: whether a graph in several pieces is an error.
    """

    path: str
    format: Literal["edge_list", "graphml"] = "edge_list"
    connected: bool = True

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if the file is missing or not a graph of nodes 0..num_nodes-1."""
        self.graph(num_nodes, 0, 0)

    def unused(self, num_nodes: int, seed: int) -> tuple[str, ...]:
        edges = self.graph(num_nodes, 0, seed).edges(data=True)
        return tuple(name for name in EDGE_ATTRIBUTES if any(name in found for _, _, found in edges))

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """Return the graph in the file.

        Raises:
            ScenarioError: if the file cannot be read, is directed, has self-loops, is in several pieces although
                `connected`, or its node ids are not exactly 0..num_nodes-1.
        """
        import networkx as nx

        if not Path(self.path).is_file():
            raise ScenarioError(f"topology.path: no file {self.path} (looked in {Path.cwd()}).")
        graph = read_graphml(self.path) if self.format == "graphml" else read_edge_list(self.path)
        check_node_ids(self.path, graph, num_nodes)
        loops = list(nx.selfloop_edges(graph))
        if loops:
            raise ScenarioError(f"topology.path: {self.path} links node {loops[0][0]} to itself.")
        if self.connected and not nx.is_connected(graph):
            text = f"the graph in {self.path} is in {nx.number_connected_components(graph)} pieces"
            raise ScenarioError(f"topology.path: {text}. Join them, or set topology.connected: false.")
        return graph
