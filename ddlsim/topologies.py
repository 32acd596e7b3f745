"""Who may talk to whom in a round: topologies by name, drawn with networkx, and Metropolis-Hastings weights on them.

Sources of the rules: random regular graphs per round as in the FACADE paper (Biswas et al., SaTML 2025) and Epidemic
Learning (De Vos et al., NeurIPS 2023); Metropolis-Hastings weights: Xiao, Boyd and Lashkari, "Distributed average
consensus with least-mean-square deviation", JPDC 2007. Where we differ: a disconnected draw is drawn again instead of
being patched with ring edges, so a regular graph stays regular.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Protocol

from annotated_types import Ge, Gt, Le

from ddlsim.errors import ScenarioError
from ddlsim.graph_files import check_node_ids, read_edge_list, read_graphml
from ddlsim.registry import Registry
from ddlsim.rng import stream_seed
from ddlsim.units import Count, CountOrZero

if TYPE_CHECKING:
    import networkx as nx

MAX_DRAWS = 100
"""How often one round's graph is drawn before giving up on a connected one."""

LARGE = 20_000
"""Regular graphs of more nodes than this are drawn by pairing (large_graphs.py); networkx would take most of a run."""

CACHED_ROUNDS, CACHED_NODES = 64, 2_000_000
"""Graphs kept: so many rounds, fewer where they have more nodes than this together."""

Neighbours = Sequence[tuple[int, ...]]


class Topology(Protocol):
    """What every entry of TOPOLOGIES offers."""

    dynamic: bool

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if the topology cannot be made for this many nodes; draws nothing."""

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The undirected graph of a round, nodes 0..num_nodes-1, without self-loops."""


def neighbours(topology: Topology, num_nodes: int, round_num: int, seed: int) -> Neighbours:
    """The neighbours of every node in one round; cached, and one entry for all rounds if the topology is static.

    Args:
        topology: an entry of TOPOLOGIES.
        num_nodes: how many nodes, ids 0..num_nodes-1.
        round_num: the round, from 0.
        seed: the scenario's seed.
    Returns:
        Per node the sorted ids of its neighbours.
    Raises:
        ScenarioError: if no such graph exists or no connected one is found.
    """
    return _cache(num_nodes)(topology, num_nodes, round_num if topology.dynamic else 0, seed)


@functools.cache
def _cache(num_nodes: int):
    most = max(4, min(CACHED_ROUNDS, CACHED_NODES // max(1, num_nodes)))
    return functools.lru_cache(maxsize=most)(_neighbours)


def _neighbours(topology: Topology, num_nodes: int, round_num: int, seed: int) -> Neighbours:
    if num_nodes > LARGE and hasattr(topology, "large"):
        return topology.large(num_nodes, round_num, seed)
    graph = topology.graph(num_nodes, round_num, seed)
    return tuple(tuple(sorted(graph.adj[node])) for node in range(num_nodes))


def metropolis_hastings(neighbours: Sequence[Sequence[int]]) -> list[list[tuple[int, float]]]:
    """Metropolis-Hastings weights: 1 / (1 + the larger degree) per edge, the rest for oneself.

    Symmetric and doubly stochastic, so repeated merging with them leads to the plain average over all nodes.

    Args:
        neighbours: per node its neighbours' ids; symmetric.
    Returns:
        Per node the pairs (peer, weight), the node itself among them, ordered by peer; weights sum to 1.
    """
    rows = []
    for node, peers in enumerate(neighbours):
        weights = {peer: 1.0 / (1 + max(len(peers), len(neighbours[peer]))) for peer in peers}
        weights[node] = 1.0 - math.fsum(weights.values())
        rows.append(sorted(weights.items()))
    return rows


def _draw_connected(topology, num_nodes: int, round_num: int, seed: int, draw, is_connected=None):
    """The first connected one of at most MAX_DRAWS draws, each from its own named stream; the first if that will do."""
    if is_connected is None:
        import networkx as nx

        is_connected = nx.is_connected
    topology.check(num_nodes)
    seed = seed if topology.seed is None else topology.seed
    which_round = round_num if topology.dynamic else 0
    for attempt in range(MAX_DRAWS):
        indices = (which_round, attempt) if attempt else (which_round,)
        graph = draw(stream_seed(seed, "topology", *indices))
        if not topology.connected or is_connected(graph):
            return graph
    raise ScenarioError(
        f"topology: {MAX_DRAWS} draws of {topology} on {num_nodes} nodes gave no connected graph. "
        "Give it more edges, or set topology.connected: false if a split graph is meant."
    )


class _AnySize:
    def check(self, num_nodes: int) -> None:
        """Every number of nodes will do."""


class _Fixed(_AnySize):
    dynamic: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class RandomRegular:
    """Every node has the same number of neighbours, drawn at random, by default anew in each round.

    A disconnected draw is drawn again from the next stream of the same round, up to 100 times, then it is an error.
    Up to 20,000 nodes networkx draws; larger graphs come from a pairing of our own, so from other random numbers.

    Args:
        degree: neighbours per node; below the number of nodes, and degree x nodes is even.
        dynamic: a new graph in each round; false: one graph for all rounds.
        seed: fixes the graphs whatever the scenario's seed; null: they follow the scenario's seed.
        connected: redraw until the graph is connected; false: take the first draw (degree 1 is a random matching).
    """

    degree: Count = 4
    dynamic: bool = True
    seed: Annotated[int, Ge(0)] | None = None
    connected: bool = True

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if no (connected) regular graph of this degree exists."""
        if self.degree >= num_nodes:
            raise ScenarioError(f"topology.degree: must be below the number of nodes ({num_nodes}), got {self.degree}.")
        if self.degree * num_nodes % 2:
            raise ScenarioError(
                f"topology.degree: degree x nodes must be even for a regular graph, got {self.degree} x {num_nodes}. "
                f"Use degree {self.degree + 1} or an even number of nodes."
            )
        if self.connected and self.degree == 1 and num_nodes > 2:
            raise ScenarioError(
                f"topology.degree: a graph of degree 1 on {num_nodes} nodes is never connected. Use degree 2 or more, "
                "or set topology.connected: false for a random matching."
            )

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The graph of a round: `networkx.random_regular_graph`."""
        import networkx as nx

        return _draw_connected(
            self, num_nodes, round_num, seed, lambda s: nx.random_regular_graph(self.degree, num_nodes, seed=s)
        )

    def large(self, num_nodes: int, round_num: int, seed: int) -> Neighbours:
        """The neighbours of a round in a graph of many nodes."""
        from ddlsim.large_graphs import is_connected, random_regular

        return _draw_connected(
            self, num_nodes, round_num, seed, lambda s: random_regular(self.degree, num_nodes, s), is_connected
        )


@dataclass(frozen=True, kw_only=True)
class ErdosRenyi(_AnySize):
    """Every pair of nodes is linked with the same probability, by default anew in each round.

    A disconnected draw is drawn again from the next stream of the same round, up to 100 times, then it is an error.

    Args:
        edge_probability: chance of each edge, above 0 up to 1; connected graphs need about ln(nodes) / nodes.
        dynamic: a new graph in each round; false: one graph for all rounds.
        seed: fixes the graphs whatever the scenario's seed; null: they follow the scenario's seed.
        connected: redraw until the graph is connected; false: take the first draw.
    """

    edge_probability: Annotated[float, Gt(0), Le(1)]
    dynamic: bool = True
    seed: Annotated[int, Ge(0)] | None = None
    connected: bool = True

    def check(self, num_nodes: int) -> None:
        """Raises ScenarioError if the probability is so small that floating-point numbers cannot tell it from none."""
        if 1 - self.edge_probability == 1:
            raise ScenarioError(
                f"topology.edge_probability: {self.edge_probability:g} is no edge at all in double precision. "
                "Give 1e-15 or more."
            )

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The graph of a round: `networkx.fast_gnp_random_graph`."""
        import networkx as nx

        return _draw_connected(
            self, num_nodes, round_num, seed, lambda s: nx.fast_gnp_random_graph(num_nodes, self.edge_probability, s)
        )


@dataclass(frozen=True, kw_only=True)
class WattsStrogatz:
    """Small world: a ring where each node knows its nearest ones and some edges are rewired at random.

    A disconnected draw is drawn again from the next stream of the same round, up to 100 times, then it is an error.

    Args:
        degree: nearest neighbours on the ring before rewiring; even, below the number of nodes.
        rewire_probability: chance that an edge is moved to a random node, 0 to 1.
        dynamic: a new graph in each round; false: one graph for all rounds.
        seed: fixes the graphs whatever the scenario's seed; null: they follow the scenario's seed.
        connected: redraw until the graph is connected; false: take the first draw.
    """

    degree: Annotated[int, Ge(2)] = 4
    rewire_probability: Annotated[float, Ge(0), Le(1)] = 0.1
    dynamic: bool = True
    seed: Annotated[int, Ge(0)] | None = None
    connected: bool = True

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if the degree is odd or too large."""
        if self.degree >= num_nodes:
            raise ScenarioError(f"topology.degree: must be below the number of nodes ({num_nodes}), got {self.degree}.")
        if self.degree % 2:
            raise ScenarioError(f"topology.degree: must be even (half on each side of the ring), got {self.degree}.")

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The graph of a round: `networkx.watts_strogatz_graph`."""
        import networkx as nx

        def draw(draw_seed):
            return nx.watts_strogatz_graph(num_nodes, self.degree, self.rewire_probability, seed=draw_seed)

        return _draw_connected(self, num_nodes, round_num, seed, draw)


@dataclass(frozen=True, kw_only=True)
class Ring(_Fixed):
    """Every node knows the one before and the one after it; the same in all rounds."""

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The ring 0-1-...-(n-1)-0; two nodes share one edge, one node has none."""
        import networkx as nx

        return nx.cycle_graph(num_nodes) if num_nodes > 2 else nx.path_graph(num_nodes)


@dataclass(frozen=True, kw_only=True)
class Complete(_Fixed):
    """Every node knows every other; the same in all rounds."""

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The complete graph."""
        import networkx as nx

        return nx.complete_graph(num_nodes)


@dataclass(frozen=True, kw_only=True)
class Torus(_Fixed):
    """A grid of rows and columns whose borders are joined: four neighbours per node; the same in all rounds.

    Node ids run along the rows. With both sizes `auto` the grid is as square as the number of nodes allows, so a prime
    number of nodes gives a ring.

    Args:
        rows: number of rows, or auto.
        columns: number of columns, or auto; rows x columns is the number of nodes.
    """

    rows: Count | Literal["auto"] = "auto"
    columns: Count | Literal["auto"] = "auto"

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if rows x columns is not the number of nodes."""
        self.shape(num_nodes)

    def shape(self, num_nodes: int) -> tuple[int, int]:
        """Rows and columns for this many nodes.

        Raises:
            ScenarioError: if they do not multiply to `num_nodes`.
        """
        rows, columns = self.rows, self.columns
        if rows == "auto" and columns == "auto":
            rows = next(size for size in range(math.isqrt(num_nodes), 0, -1) if num_nodes % size == 0)
        if rows == "auto":
            rows = num_nodes // columns
        if columns == "auto":
            columns = num_nodes // rows
        if rows * columns != num_nodes:
            raise ScenarioError(
                f"topology: torus of rows {self.rows} and columns {self.columns} cannot hold exactly {num_nodes} nodes."
            )
        return rows, columns

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The torus; a side of length 2 gives one edge, not two."""
        import networkx as nx

        rows, columns = self.shape(num_nodes)
        grid = nx.grid_2d_graph(rows, columns, periodic=True)
        return nx.relabel_nodes(grid, {(row, column): row * columns + column for row, column in grid})


@dataclass(frozen=True, kw_only=True)
class Star(_Fixed):
    """One node in the middle knows all others, they know only it; the same in all rounds.

    Args:
        center: id of the node in the middle.
    """

    center: CountOrZero = 0

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if there is no such node."""
        if self.center >= num_nodes:
            raise ScenarioError(f"topology.center: node ids are 0..{num_nodes - 1}, got {self.center}.")

    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The star."""
        import networkx as nx

        self.check(num_nodes)
        graph = nx.empty_graph(num_nodes)
        graph.add_edges_from((self.center, node) for node in range(num_nodes) if node != self.center)
        return graph


@dataclass(frozen=True, kw_only=True)
class File(_Fixed):
    """A graph read from a file; the same in all rounds.

    `edge_list`: one edge per line, `node node`, or `node node bandwidth_mbps latency_ms`, or networkx's
    `node node {'bandwidth_mbps': 100}`; `#` starts a comment. `graphml`: undirected, the edge attributes
    `bandwidth_mbps` and `latency_ms` are numbers. Both attributes stay on the graph's edges.

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


TOPOLOGIES = Registry(
    "topology",
    "ddlsim.topologies",
    {
        "random_regular": "ddlsim.topologies:RandomRegular",
        "ring": "ddlsim.topologies:Ring",
        "complete": "ddlsim.topologies:Complete",
        "erdos_renyi": "ddlsim.topologies:ErdosRenyi",
        "watts_strogatz": "ddlsim.topologies:WattsStrogatz",
        "torus": "ddlsim.topologies:Torus",
        "star": "ddlsim.topologies:Star",
        "file": "ddlsim.topologies:File",
    },
)
