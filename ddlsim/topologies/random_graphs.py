"""Random graphs, by default one for all rounds.

Sources: random regular graphs per round as in the FACADE paper (Biswas et al., SaTML 2025) and Epidemic Learning (De
Vos et al., NeurIPS 2023). Difference: a disconnected draw is repeated instead of being patched with ring edges, so a
regular graph stays regular.

Random regular graphs of many nodes are drawn in numpy: a pairing of stubs, repaired until it is a simple graph.

The configuration model (Bollobas, "A probabilistic proof of an asymptotic formula for the number of labeled regular
graphs", 1980): every node has `degree` stubs, all stubs are paired at random. Loops and double edges, about (degree^2 -
1) / 4 of them for any size, are each switched with an edge drawn at random, which keeps all degrees, until none is left
(McKay and Wormald, "Uniform generation of random regular graphs of moderate degree", 1990). Their method also rejects
some switchings to be exactly uniform; this module does not, because few of millions of edges are switched.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, TypeVar

import networkx as nx
import numpy as np
from annotated_types import Ge, Gt, Le

from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.foundation.rng import stream_seed
from ddlsim.foundation.units import Count
from ddlsim.topologies.base import Neighbors, Topology

MAX_REPAIRS = 1_000


class EqualLists(Sequence[tuple[int, ...]]):
    """Equally long tuples of node ids, one per node, stored in one array (4 bytes an entry instead of 40) until read.

    Args:
        table: int32 [nodes, degree].
    """

    def __init__(self, table: np.ndarray):
        self.table = table

    @cached_property
    def _rows(self) -> list[tuple[int, ...]]:
        return list(map(tuple, self.table.tolist()))  # all at once, in a quarter of the time of one by one

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, node: Any) -> Any:
        return self._rows[node]


def random_regular(degree: int, num_nodes: int, seed: int) -> EqualLists:
    """Return a random simple graph in which every node has `degree` neighbors.

    Args:
        degree: below num_nodes; degree x num_nodes is even.
        num_nodes: number of nodes, preferably far more than degree^2.
        seed: seed of the draw.
    Returns:
        For each node its neighbors, ascending.
    Raises:
        DdlsimError: if the repair does not end (a graph that is nearly complete).
    """
    rng = np.random.Generator(np.random.Philox(key=seed))
    stubs = np.repeat(np.arange(num_nodes, dtype=np.int32), degree)
    edges = rng.permutation(stubs).reshape(-1, 2)
    for _ in range(MAX_REPAIRS):
        bad = _not_simple(edges, num_nodes)
        if not len(bad):
            return EqualLists(_neighbor_table(edges, degree, num_nodes))
        others = rng.choice(len(edges), len(bad), replace=False)
        chosen = ~np.isin(others, bad)
        bad, others = bad[chosen], others[chosen]
        edges[bad, 1], edges[others, 1] = edges[others, 1], edges[bad, 1]
    raise DdlsimError(f"no simple graph of degree {degree} on {num_nodes} nodes in {MAX_REPAIRS} repairs")


def is_connected(graph: EqualLists) -> bool:
    """Whether the graph is connected: labels decrease to the least neighboring label, with shortcuts."""
    label = np.arange(len(graph), dtype=np.int32)
    while True:
        lower = np.minimum(label, label[graph.table].min(axis=1))
        # A label that decreases changes the whole tree under its root.
        np.minimum.at(lower, label, lower)
        while not np.array_equal(lower, lower[lower]):
            lower = lower[lower]
        if np.array_equal(lower, label):
            return not label.any()
        label = lower


def _not_simple(edges: np.ndarray, num_nodes: int) -> np.ndarray:
    """Return the indices of loops and of all equal edges except the first."""
    low, high = edges.min(axis=1).astype(np.int64), edges.max(axis=1)
    names = low * num_nodes + high
    order = np.argsort(names, kind="stable")
    again = order[1:][names[order[1:]] == names[order[:-1]]]
    return np.union1d(np.flatnonzero(low == high), again)


def _neighbor_table(edges: np.ndarray, degree: int, num_nodes: int) -> np.ndarray:
    ends = np.concatenate([edges, edges[:, ::-1]]).astype(np.int64)
    ordered = np.sort(ends[:, 0] * num_nodes + ends[:, 1])  # by node, then by neighbor
    return (ordered % num_nodes).astype(np.int32).reshape(num_nodes, degree)


MAX_DRAWS = 100
"""Maximum number of draws of one round's graph in search of a connected one."""

Drawn = TypeVar("Drawn")

SMALL = 32
"""Regular graphs of up to this many nodes are drawn directly for any degree."""
LARGE, LARGE_IF_DENSE = 2_000, 20_000
"""Regular graphs of more nodes than this are drawn by pairing, in a tenth of networkx's time. Dense graphs,
of a degree above the square root of the nodes, only from the second size on, since pairing leaves many edges to repair
in them."""


@dataclass(frozen=True, kw_only=True)
class RandomTopology(Topology):
    """Base of random graphs.

    A disconnected draw is repeated from the next stream of the same round, up to 100 times, then it is an error.

    Args:
        dynamic: whether each round has a new graph; false: one graph for all rounds.
        seed: seed of the graphs, independent of the scenario's; null: the scenario's seed.
        connected: whether the draw is repeated until the graph is connected; false: use the first draw.
    """

    dynamic: bool = False
    seed: Annotated[int, Ge(0)] | None = None
    connected: bool = True

    def drawn(
        self, num_nodes: int, round_num: int, seed: int, draw: Callable[[int], Drawn], is_connected: Any = None
    ) -> Drawn:
        """Return the first connected one of at most MAX_DRAWS draws, each from its own stream; the first draw if
        `connected` is false.

        Args:
            num_nodes, round_num, seed: as in `graph`.
            draw: a seed -> a graph.
            is_connected: test of connectivity; None: networkx's.
        """
        self.check(num_nodes)
        is_connected = is_connected or nx.is_connected
        seed = seed if self.seed is None else self.seed
        which_round = round_num if self.dynamic else 0
        for attempt in range(MAX_DRAWS):
            indices = (which_round, attempt) if attempt else (which_round,)
            graph = draw(stream_seed(seed, "topology", *indices))
            if not self.connected or is_connected(graph):
                return graph
        text = f"{MAX_DRAWS} draws of {self} on {num_nodes} nodes gave no connected graph"
        raise ScenarioError(f"topology: {text}. Give it more edges, or set topology.connected: false.")


@dataclass(frozen=True, kw_only=True)
class RandomRegular(RandomTopology):
    """Every node has the same number of neighbors, drawn at random.

    Up to 2,000 nodes networkx draws (20,000 if degree^2 is more than the number of nodes); larger graphs come from
    ddlsim's own pairing, with other random numbers. If more than 32 nodes have more than half of all edges, the missing
    edges are drawn instead, since networkx would take minutes for the others, or never end.

    Args:
        degree: neighbors per node; below the number of nodes, and degree x nodes is even.
        connected: whether the draw is repeated until the graph is connected; false: use the first draw (degree 1 is a
            random matching).
    """

    why: ClassVar[Mapping[str, str]] = {
        "dynamic": "one graph for all rounds, the same for all algorithms; epidemic algorithms set it",
        "seed": "graphs follow the scenario's seed",
        "connected": "in a split graph no consensus exists",
        "degree": "as in the FACADE and DAC papers",
    }

    degree: Count = 4

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if no (connected) regular graph of this degree exists."""
        if self.degree >= num_nodes:
            raise _too_few_nodes("degree", self.degree, num_nodes)
        if self.degree * num_nodes % 2:
            text = f"degree x nodes must be even for a regular graph, got {self.degree} x {num_nodes}"
            raise ScenarioError(f"topology.degree: {text}. Use degree {self.degree + 1} or an even number of nodes.")
        if self.connected and self.degree == 1 and num_nodes > 2:
            cure = "Use degree 2 or more, or set topology.connected: false for a random matching"
            raise ScenarioError(f"topology.degree: a graph of degree 1 is not connected on {num_nodes} nodes. {cure}.")

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the graph of a round, for many nodes from `neighbors`, otherwise `networkx.random_regular_graph`."""

        if self._is_large(num_nodes):
            return nx.from_dict_of_lists(dict(enumerate(self.neighbors(num_nodes, round_num, seed))))
        left_out = num_nodes - 1 - self.degree

        def draw(draw_seed: int) -> nx.Graph:
            if num_nodes > SMALL and left_out < self.degree:
                return nx.complement(nx.random_regular_graph(left_out, num_nodes, seed=draw_seed))
            return nx.random_regular_graph(self.degree, num_nodes, seed=draw_seed)

        return self.drawn(num_nodes, round_num, seed, draw)

    def neighbors(self, num_nodes: int, round_num: int, seed: int) -> Neighbors:
        """Return the neighbors, for many nodes without a graph object."""
        if not self._is_large(num_nodes):
            return super().neighbors(num_nodes, round_num, seed)
        return self.drawn(num_nodes, round_num, seed, lambda s: random_regular(self.degree, num_nodes, s), is_connected)

    def _is_large(self, num_nodes: int) -> bool:
        return num_nodes > (LARGE if self.degree**2 <= num_nodes else LARGE_IF_DENSE)


@dataclass(frozen=True, kw_only=True)
class ErdosRenyi(RandomTopology):
    """Every pair of nodes is linked with the same probability.

    Args:
        edge_probability: chance of each edge, above 0 up to 1; connected graphs need about ln(nodes) / nodes.
    """

    edge_probability: Annotated[float, Gt(0), Le(1)]

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if the probability is too small for floating-point numbers to distinguish it from 0."""
        if 1 - self.edge_probability == 1:
            raise ScenarioError(f"topology.edge_probability: expected 1e-15 or more, got {self.edge_probability:g}.")

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the graph of a round: `networkx.fast_gnp_random_graph`."""

        share = self.edge_probability
        return self.drawn(num_nodes, round_num, seed, lambda s: nx.fast_gnp_random_graph(num_nodes, share, s))


@dataclass(frozen=True, kw_only=True)
class WattsStrogatz(RandomTopology):
    """Small world: a ring in which each node is linked with its nearest ones and some edges are rewired at random.

    Args:
        degree: nearest neighbors on the ring before rewiring; even, below the number of nodes.
        rewire_probability: chance that an edge is moved to a random node, 0 to 1.
    """

    degree: Annotated[int, Ge(2)] = 4
    rewire_probability: Annotated[float, Ge(0), Le(1)] = 0.1

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if the degree is odd or too large."""
        if self.degree >= num_nodes:
            raise _too_few_nodes("degree", self.degree, num_nodes)
        if self.degree % 2:
            raise ScenarioError(f"topology.degree: must be even (half on each side of the ring), got {self.degree}.")

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the graph of a round: `networkx.watts_strogatz_graph`."""
        sizes = num_nodes, self.degree, self.rewire_probability
        return self.drawn(num_nodes, round_num, seed, lambda s: nx.watts_strogatz_graph(*sizes, seed=s))


@dataclass(frozen=True, kw_only=True)
class BarabasiAlbert(RandomTopology):
    """Scale-free: nodes are added in turn and prefer neighbors of high degree (Barabasi and Albert, 1999).

    Args:
        edges: links of every new node; below the number of nodes.
    """

    edges: Count = 2

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError unless `edges` is below the number of nodes."""
        if self.edges >= num_nodes:
            raise _too_few_nodes("edges", self.edges, num_nodes)

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the graph of a round: `networkx.barabasi_albert_graph`."""

        return self.drawn(num_nodes, round_num, seed, lambda s: nx.barabasi_albert_graph(num_nodes, self.edges, seed=s))


def _too_few_nodes(key: str, value: int, num_nodes: int) -> ScenarioError:
    """Return an error that lists the other topologies, since it also appears for scenarios without the section
    `topology`.
    """
    text = f"must be below the number of nodes ({num_nodes}), got {value}"
    return ScenarioError(f"topology.{key}: {text}. Choose a smaller one, complete or ring, or more nodes.")
