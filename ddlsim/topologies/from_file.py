"""A graph of one's own, from a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ddlsim.errors import ScenarioError
from ddlsim.topologies.base import StaticTopology
from ddlsim.topologies.files import EDGE_ATTRIBUTES, check_node_ids, read_edge_list, read_graphml

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, kw_only=True)
class File(StaticTopology):
    """A graph read from a file; the same in all rounds.

    `edge_list`: one edge per line, `node node`, or networkx's `node node {'weight': 2}`; `#` starts a comment; a first
    line of one number is that of the nodes, with edges or without. `graphml`: undirected. A topology says who talks to
    whom: a file whose edges have `bandwidth_mbps` or `latency_ms` is one for `network.links`, `routed`.

    Args:
        path: the file, relative to the folder that the command is started in.
        format: edge_list or graphml.
        connected: refuse a graph in several pieces; false: accept it.
    """

    path: str
    format: Literal["edge_list", "graphml"] = "edge_list"
    connected: bool = True

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if the file is not there or is no graph of nodes 0..num_nodes-1."""
        self.graph(num_nodes, 0, 0)

    def unused(self, num_nodes: int, seed: int) -> tuple[str, ...]:
        """See Topology."""
        edges = self.graph(num_nodes, 0, seed).edges(data=True)
        return tuple(name for name in EDGE_ATTRIBUTES if any(name in found for _, _, found in edges))

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The graph in the file.

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
            raise ScenarioError(
                f"topology.path: the graph in {self.path} is in {nx.number_connected_components(graph)} pieces. "
                "Join them, or set topology.connected: false if that is meant."
            )
        return graph
