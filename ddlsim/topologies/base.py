"""What a topology offers, and the neighbors of every node in a round. See the table in __init__.py for all of them."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.part import Part, Problem

if TYPE_CHECKING:
    import networkx as nx

CACHED_ROUNDS, CACHED_NODES = 64, 2_000_000
"""Graphs kept: so many rounds, fewer where they have more nodes than this together."""

Neighbors = Sequence[tuple[int, ...]]
"""Per node the ids of its neighbors, ascending."""


class Topology(Part, ABC):
    """A rule that says for each round which nodes may exchange messages; entries of TOPOLOGIES are frozen dataclasses.

    To write one: give `graph`; `check` where not every number of nodes will do; `dynamic` where rounds differ.
    """

    dynamic: bool = True
    """Whether each round has a graph of its own; false: one graph serves all rounds."""

    def check(self, num_nodes: int) -> None:
        """Raises ScenarioError where no such graph exists on this many nodes; draws nothing. Default: all sizes fit."""

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """See Part; asks `check`."""
        self.check(num_nodes)
        return iter(())

    def unused(self, num_nodes: int, seed: int) -> tuple[str, ...]:
        """Names of what its edges say of links, which no topology uses. Default: nothing."""
        return ()

    @abstractmethod
    def graph(self, num_nodes: int, round_num: int, seed: int) -> "nx.Graph":
        """The undirected graph of a round, nodes 0..num_nodes-1, without self-loops.

        Args:
            num_nodes: how many nodes.
            round_num: the round, from 0; 0 where the topology is static.
            seed: the scenario's seed.
        Raises:
            ScenarioError: no such graph exists, or no connected one was found.
        """

    def neighbors(self, num_nodes: int, round_num: int, seed: int) -> Neighbors:
        """Per node the sorted ids of its neighbors in `graph`. Override where a graph object costs too much.

        Raises:
            ScenarioError: it is no graph of these nodes.
        """
        graph, found = self.graph(num_nodes, round_num, seed), None
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            found = tuple(tuple(sorted(map(int, graph.adj[node]))) for node in range(num_nodes))  # numpy's are no JSON
        if found is None or len(graph) != num_nodes:
            got = f"a {type(graph).__name__}"
            if hasattr(graph, "adj"):
                got += f" of {len(graph)} nodes ({', '.join(map(repr, list(graph)[:3]))}, ...)"
            raise ScenarioError(
                f"topology: graph of {type(self).__qualname__} returns {got}, expected a networkx.Graph of the nodes "
                f"0..{num_nodes - 1}."
            )
        wrong = misdrawn(graph)
        if wrong:
            raise ScenarioError(f"topology: graph of {type(self).__qualname__} {wrong}.")
        return found


def misdrawn(graph: "nx.Graph") -> str:
    """Why a graph does not say who are neighbors, "returns ..., expected ..."; empty: it does."""
    if graph.is_directed() or graph.is_multigraph():
        return f"returns {kind_of(graph)}, expected an undirected networkx.Graph"
    if any(node in others for node, others in graph.adj.items()):
        return "returns a graph with self-loops; a node is no neighbor of its own"
    return ""


class StaticTopology(Topology):
    """A topology that is the same in all rounds."""

    dynamic = False  # without an annotation: no key of the dataclasses below


def neighbors(topology: Topology, num_nodes: int, round_num: int, seed: int) -> Neighbors:
    """The neighbors of every node in one round; cached, and one entry for all rounds if the topology is static.

    Args:
        topology: an entry of TOPOLOGIES.
        num_nodes: how many nodes, ids 0..num_nodes-1.
        round_num: the round, from 0.
        seed: the scenario's seed.
    Returns:
        Per node the sorted ids of its neighbors.
    Raises:
        ScenarioError: if no such graph exists or no connected one is found, or the topology cannot be hashed.
    """
    try:
        hash(topology)
    except TypeError as error:
        raise ScenarioError(
            f"topology: {type(topology).__qualname__} cannot be hashed ({error}), and its graphs are kept by what it "
            "is: make it a frozen dataclass (@dataclass(frozen=True, kw_only=True)) whose keys are numbers, texts and "
            "tuples, such as tuple[int, ...] for a list in the scenario."
        ) from None
    return _cache(num_nodes)(topology, num_nodes, round_num if topology.dynamic else 0, seed)


def forget() -> None:
    """Graphs are drawn, or read from their files, anew: what a file holds may have changed since an earlier run."""
    _cache.cache_clear()


@functools.cache
def _cache(num_nodes: int) -> Callable[[Topology, int, int, int], Neighbors]:
    most = max(4, min(CACHED_ROUNDS, CACHED_NODES // max(1, num_nodes)))
    return functools.lru_cache(maxsize=most)(_drawn)


def _drawn(topology: Topology, num_nodes: int, round_num: int, seed: int) -> Neighbors:
    return topology.neighbors(num_nodes, round_num, seed)
