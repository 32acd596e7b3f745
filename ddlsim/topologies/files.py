"""Graphs provided by the user, in files (`file`) or as lists of edges (`edges`); errors name the file and the line."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import networkx as nx
from annotated_types import MinLen

from ddlsim.foundation.errors import ScenarioError, kind_of, listing
from ddlsim.topologies.base import Topology

Format = Literal["auto", "edge_list", "graphml", "gml"]
EDGE_ATTRIBUTES = ("bandwidth_mbps", "latency_ms")
KEPT_ATTRIBUTES = ("weight", *EDGE_ATTRIBUTES)


def read_graph(path: str, form: Format, directed: bool = False, key: str = "topology.path") -> nx.Graph:
    """Read the graph of a file, node ids as integers.

    Args:
        path: the file.
        form: its format; auto: by the ending .graphml or .gml, otherwise an edge list.
        directed: whether the result is a DiGraph; an undirected edge of GraphML or GML then leads both ways.
        key: the scenario's key, for errors.
    Raises:
        ScenarioError: the file does not exist or has another format, it is directed although `directed` is false, or
            two edges of the same nodes have different values.
    """
    if not Path(path).is_file():
        raise ScenarioError(f"{key}: no file {path} (looked in {Path.cwd()}).")
    kind: str = {".graphml": "graphml", ".gml": "gml"}.get(Path(path).suffix, "edge_list") if form == "auto" else form
    if kind == "edge_list":
        return _read_edge_list(path, directed, key)
    import xml.etree.ElementTree as ElementTree

    try:
        found = nx.read_gml(path, label="id") if kind == "gml" else nx.read_graphml(path, node_type=int)
    except (OSError, ElementTree.ParseError, nx.NetworkXError, KeyError, ValueError) as error:
        name = {"gml": "GML", "graphml": "GraphML"}[kind]
        text = f"{path} is not a {name} file that networkx can read, with whole numbers as node ids"
        raise ScenarioError(f"{key}: {text}: {error}") from error
    if found.is_directed() and not directed:
        cure = "Set topology.directed to true" if key.startswith("topology") else "Links carry both ways"
        raise ScenarioError(f"{key}: the graph in {path} is directed. {cure}, or make the file undirected.")
    found = found if found.is_directed() == directed else found.to_directed()
    if not found.is_multigraph():
        return found
    simple = nx.create_empty_copy(nx.DiGraph(found) if directed else nx.Graph(found))
    for one, other, attributes in found.edges(data=True):
        _add_edge(simple, one, other, attributes, f"{key}: {path}")
    return simple


def _read_edge_list(path: str, directed: bool, key: str) -> nx.Graph:
    """Read an edge list: `node node`, `node node weight`, `node node bandwidth_mbps latency_ms`, or networkx's dialect.

    A first line with one number gives the number of nodes, as in DecentralizePy's files.

    Raises:
        ScenarioError: a line has none of these forms, or differs from an earlier line of the same edge; with the line.
    """

    graph: nx.Graph[int] = nx.DiGraph() if directed else nx.Graph()
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
            if len(words) in (2, 3, 4) and "{" not in line:
                names = ("weight",) if len(words) == 3 else EDGE_ATTRIBUTES
                attributes = dict(zip(names, map(float, words[2:]), strict=False))
                edges = [(int(words[0]), int(words[1]), attributes)]
            else:
                edges = list(nx.parse_edgelist([line], nodetype=int).edges(data=True))
                if not edges:  # networkx skips lines of fewer than two words
                    raise ValueError
        except (TypeError, ValueError) as error:
            expected = "'node node', 'node node weight' or 'node node bandwidth_mbps latency_ms'"
            raise ScenarioError(f"{key}: {path}:{number}: expected {expected}, got {line.strip()!r}.") from error
        for one, other, attributes in edges:
            if stated is not None and max(one, other) >= stated:
                expected = f"nodes 0..{stated - 1}, as stated in the first line"
                raise ScenarioError(f"{key}: {path}:{number}: expected {expected}, got {line.strip()!r}.")
            _add_edge(graph, one, other, attributes, f"{key}: {path}:{number}")
    return graph


def _add_edge(graph: nx.Graph, one: int, other: int, attributes: dict[str, Any], place: str) -> None:
    """Add an edge; a repeated edge must have the same capacity and latency, which apply to both directions."""
    if graph.has_edge(one, other):
        before, now = (tuple(map(found.get, EDGE_ATTRIBUTES)) for found in (graph.edges[one, other], attributes))
        if before != now:
            text = f"expected {' and '.join(EDGE_ATTRIBUTES)} of the edge {one} {other} as before, {before}, got {now}"
            raise ScenarioError(f"{place}: {text}. Leave one of them out.")
    graph.add_edge(one, other, **attributes)


@dataclass(frozen=True, kw_only=True)
class UserGraphs(Topology):
    """Base of graphs provided by the user: one for all rounds, or one per round, starting again after the last.

    Args:
        directed: whether an edge leads one way, from a sender to a receiver; false: both nodes exchange.
        weighted: whether the edges' `weight` is the mixing weight of the sender's model in the receiver's, 0 to 1; a
            node's own weight is the rest. False: weights follow from the numbers of neighbors.
        connected: whether it is an error if the union of the graphs is not connected (directed: strongly connected).
    """

    key: ClassVar[str]
    directed: bool = False
    weighted: bool = False
    connected: bool = True

    @property
    @abstractmethod
    def label(self) -> str:
        """Name of the graphs in errors."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of graphs."""

    @abstractmethod
    def read(self, number: int, num_nodes: int) -> nx.Graph:
        """Return a graph by its number, from 0."""

    @property
    def dynamic(self) -> bool:  # type: ignore[override]
        return self.count > 1

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if a graph does not have these nodes, links a node to itself, or the nodes of all graphs
        together are not connected although `connected`.
        """

        union: Any = nx.compose_all(self.graph(num_nodes, number, 0) for number in range(self.count))
        whole = nx.is_strongly_connected(union) if self.directed else nx.is_connected(union)
        if self.connected and not whole:
            pieces = nx.number_strongly_connected_components if self.directed else nx.number_connected_components
            text = f"the graph in {self.label} is in {pieces(union)} pieces"
            text += " without a way back" if self.directed else ""
            raise ScenarioError(f"topology.{self.key}: {text}. Join them, or set topology.connected: false.")

    def edge_attributes(self, num_nodes: int) -> tuple[str, ...]:
        edges = (self.graph(num_nodes, number, 0).edges(data=True) for number in range(self.count))
        found = {name for each in edges for _, _, attributes in each for name in attributes}
        return tuple(name for name in KEPT_ATTRIBUTES if name in found)

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the graph of the round.

        Raises:
            ScenarioError: if it cannot be read, has self-loops, or its node ids are not exactly 0..num_nodes-1.
        """

        graph = self.read(round_num % self.count, num_nodes)
        missing = sorted(set(range(num_nodes)) - set(graph))
        extra = sorted(set(graph) - set(range(num_nodes)))
        if missing or extra:
            parts = [f"{word} {listing(ids)}" for word, ids in (("lacks", missing), ("has", extra)) if ids]
            text = f"the graph in {self.label} must have exactly the nodes 0..{num_nodes - 1}; it {' and '.join(parts)}"
            raise ScenarioError(f"topology.{self.key}: {text}.")
        loops = list(nx.selfloop_edges(graph))
        if loops:
            raise ScenarioError(f"topology.{self.key}: {self.label} links node {loops[0][0]} to itself.")
        return graph


@dataclass(frozen=True, kw_only=True)
class File(UserGraphs):
    """A graph read from a file, or one file per round.

    An edge list has one edge per line: `node node`, `node node weight`, `node node bandwidth_mbps latency_ms`, or
    networkx's `node node {'weight': 2}`; `#` starts a comment; a first line with one number gives the number of nodes,
    with or without edges. GraphML and GML are as networkx reads them. Edges with `bandwidth_mbps` and `latency_ms` are
    links if network.links is `{name: routed}`.

    Args:
        path: the file, or a list of files, one per round, starting again after the last; relative to the working
            directory.
        format: edge_list, graphml or gml; auto: by the ending .graphml or .gml, otherwise an edge list.
    """

    key: ClassVar[str] = "path"
    path: str | Annotated[tuple[str, ...], MinLen(1)]
    format: Format = "auto"

    @property
    def label(self) -> str:
        return self.path if isinstance(self.path, str) else ", ".join(self.path)

    @property
    def count(self) -> int:
        return 1 if isinstance(self.path, str) else len(self.path)

    def read(self, number: int, num_nodes: int) -> nx.Graph:
        path = self.path if isinstance(self.path, str) else self.path[number]
        return read_graph(path, self.format, self.directed)


EdgeInList = tuple[int, int] | tuple[int, int, dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class Edges(UserGraphs):
    """Graphs as lists of edges, as passed from Python: one graph, or one per round.

    In Python, `topology=graph` and `topology=[graph, ...]` with graphs of networkx create this part.

    Args:
        graphs: for each graph its edges, `[node, node]` or `[node, node, {weight, bandwidth_mbps, latency_ms}]`.
    """

    key: ClassVar[str] = "graphs"
    label: ClassVar[str] = "the lists of edges"
    graphs: Annotated[tuple[tuple[EdgeInList, ...], ...], MinLen(1)] = field(hash=False)

    @property
    def count(self) -> int:
        return len(self.graphs)

    def read(self, number: int, num_nodes: int) -> nx.Graph:

        graph = nx.empty_graph(num_nodes, create_using=nx.DiGraph if self.directed else nx.Graph)
        graph.add_edges_from(self.graphs[number])
        return graph


def edges_of(graphs: nx.Graph | Sequence[nx.Graph], *, weighted: bool = False, connected: bool = True) -> Edges:
    """Return the topology of networkx graphs with nodes 0..n-1: one, or one per round, starting again after the last.

    Args:
        graphs: Graph or DiGraph, with the optional edge attributes weight, bandwidth_mbps and latency_ms.
        weighted, connected: see Edges.
    Raises:
        ScenarioError: a node id is not an integer, or the graphs are multigraphs, or directed and undirected.
    """

    found = [graphs] if isinstance(graphs, nx.Graph) else list(graphs)
    kinds = {(graph.is_directed(), graph.is_multigraph()) for graph in found}
    if len(kinds) != 1 or any(multi for _, multi in kinds):
        got = ", ".join(sorted({kind_of(graph) for graph in found})) or "none"
        raise ScenarioError(f"topology: expected graphs that are all networkx.Graph or all DiGraph, got {got}.")
    names = [node for graph in found for node in graph if not isinstance(node, int)]
    if names:
        cure = "Number them: networkx.convert_node_labels_to_integers(graph)"
        raise ScenarioError(f"topology: expected nodes 0, 1, 2, ..., got {names[0]!r}. {cure}.")
    return Edges(
        graphs=tuple(tuple(map(_plain_edge, graph.edges(data=True))) for graph in found),
        directed=found[0].is_directed(),
        weighted=weighted,
        connected=connected,
    )


def _plain_edge(edge: tuple[int, int, dict[str, Any]]) -> EdgeInList:
    one, other, attributes = edge
    known = {name: float(attributes[name]) for name in KEPT_ATTRIBUTES if attributes.get(name) is not None}
    return (one, other, known) if known else (one, other)
