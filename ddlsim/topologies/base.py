"""The contract of topologies, and the neighbors of every node in a round. __init__.py has the table of topologies."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ddlsim.foundation.errors import ScenarioError, kind_of, listing
from ddlsim.foundation.registry import Part, Problem

if TYPE_CHECKING:
    import networkx as nx

CACHED_ROUNDS, CACHED_NODES = 64, 2_000_000
"""Number of rounds whose graphs are cached, and their maximum total number of nodes."""

Neighbors = Sequence[tuple[int, ...]]
"""For each node the ids of its neighbors, ascending."""


class Topology(Part, ABC):
    """A rule that gives the pairs of nodes that may exchange messages, for each round; entries of TOPOLOGIES are frozen
    dataclasses.

    A subclass defines `graph`; `check` if not every number of nodes is valid; `dynamic` if rounds differ.
    """

    dynamic: bool = True
    """Whether each round has a new graph; false: one graph serves all rounds."""

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if no such graph exists on this many nodes; draws nothing. Default: none."""

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the problems found by `check`."""
        self.check(num_nodes)
        return iter(())

    def unused(self, num_nodes: int, seed: int) -> tuple[str, ...]:
        """Names of edge attributes of links, which no topology uses. Default: none."""
        return ()

    @abstractmethod
    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """Return the undirected graph of a round, nodes 0..num_nodes-1, without self-loops.

        Args:
            num_nodes: number of nodes.
            round_num: the round, from 0; 0 if the topology is static.
            seed: the scenario's seed.
        Raises:
            ScenarioError: no such graph exists, or no connected one was found.
        """

    def neighbors(self, num_nodes: int, round_num: int, seed: int) -> Neighbors:
        """Return for each node the sorted ids of its neighbors in `graph`. Override if a graph object costs too much.

        Raises:
            ScenarioError: the graph's nodes are not 0..num_nodes-1.
        """
        graph, found = self.graph(num_nodes, round_num, seed), None
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            found = tuple(tuple(sorted(map(int, graph.adj[node]))) for node in range(num_nodes))  # numpy's are no JSON
        if found is None or len(graph) != num_nodes:
            nodes = f" of {len(graph)} nodes ({listing(list(graph), 3)})" if hasattr(graph, "adj") else ""
            text = f"graph of {type(self).__qualname__} returns a {type(graph).__name__}{nodes}"
            raise ScenarioError(f"topology: {text}, expected a networkx.Graph of the nodes 0..{num_nodes - 1}.")
        wrong = misdrawn(graph)
        if wrong:
            raise ScenarioError(f"topology: graph of {type(self).__qualname__} {wrong}.")
        return found


def misdrawn(graph: "nx.Graph") -> str:
    """Return the reason why a graph does not define neighbors, "returns ..., expected ..."; empty if it does."""
    if graph.is_directed() or graph.is_multigraph():
        return f"returns {kind_of(graph)}, expected an undirected networkx.Graph"
    if any(node in others for node, others in graph.adj.items()):
        return "returns a graph with self-loops; a node is no neighbor of its own"
    return ""


class StaticTopology(Topology):
    """A topology that is the same in all rounds."""

    dynamic = False  # without an annotation: not a key of the dataclasses below


def neighbors(topology: Topology, num_nodes: int, round_num: int, seed: int) -> Neighbors:
    """Return the neighbors of every node in one round; cached, with one entry for all rounds if the topology is static.

    Args:
        topology: an entry of TOPOLOGIES.
        num_nodes: number of nodes, ids 0..num_nodes-1.
        round_num: the round, from 0.
        seed: the scenario's seed.
    Returns:
        For each node the sorted ids of its neighbors.
    Raises:
        ScenarioError: if no such graph exists or no connected one is found, or the topology cannot be hashed.
    """
    try:
        hash(topology)
    except TypeError as error:
        cure = "Make it a frozen dataclass whose keys are numbers, texts and tuples"
        raise ScenarioError(f"topology: {type(topology).__qualname__} cannot be hashed ({error}). {cure}.") from None
    return _cache(num_nodes)(topology, num_nodes, round_num if topology.dynamic else 0, seed)


def forget() -> None:
    """Clear cached graphs, since files may have changed since an earlier run."""
    _cache.cache_clear()


@functools.cache
def _cache(num_nodes: int) -> Callable[[Topology, int, int, int], Neighbors]:
    most = max(4, min(CACHED_ROUNDS, CACHED_NODES // max(1, num_nodes)))
    return functools.lru_cache(maxsize=most)(lambda topology, *arguments: topology.neighbors(*arguments))
