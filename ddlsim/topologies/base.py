"""Contract of topologies, and the neighbors and mixing weights of every node in a round. __init__.py has the table.

Models are mixed by a matrix W: a node's new model is the sum over j of W[i, j] times the model of j. An undirected
graph has Metropolis-Hastings weights, which are symmetric and doubly stochastic (aggregation/base.py). On a directed
graph the weight of a sender is 1 / (1 + the larger of its number of receivers and the receiver's number of senders),
the rest is the node's own, so the rows sum to 1; the columns do if every node has as many senders as receivers. A
topology that declares `weighted` sets W itself: the attribute `weight` of the edge from j to i is W[i, j].
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import networkx as nx

from ddlsim.foundation.errors import ScenarioError, kind_of, listing
from ddlsim.foundation.registry import Part, Problem

CACHED_ROUNDS, CACHED_NODES = 64, 2_000_000
"""Number of rounds whose graphs are cached, and their maximum total number of nodes."""

ROUNDING = 1e-9
"""Largest deviation of a sum of weights from 1."""

Neighbors = Sequence[tuple[int, ...]]
"""For each node the ids of its neighbors, ascending; of a directed or weighted graph an object of Receivers."""


class Receivers(tuple[tuple[int, ...], ...]):
    """For each node the nodes that it sends to, ascending, in a graph that is directed or has mixing weights.

    Attributes:
        senders: for each node the nodes that it receives from, ascending.
        weights: for each node sender -> mixing weight, a row of W without its diagonal.
        weighted: whether the topology sets the weights.
        balanced: whether W is doubly stochastic.
    """

    senders: Neighbors
    weights: tuple[dict[int, float], ...]
    weighted: bool
    balanced: bool


def receivers_of(graph: nx.Graph, weighted: bool) -> Receivers:
    """Return the receivers of a graph of nodes 0..n-1, with senders and weights; see the head of this module."""

    nodes = range(len(graph))
    to, back = graph.adj, (graph.reverse() if isinstance(graph, nx.DiGraph) else graph).adj
    found = Receivers(tuple(sorted(map(int, to[node]))) for node in nodes)
    found.senders = tuple(tuple(sorted(map(int, back[node]))) for node in nodes)

    def weight(src: int, dst: int) -> float:
        if weighted:
            return float(to[src][dst].get("weight", math.nan))
        return 1 / (1 + max(len(found[src]), len(found.senders[dst])))

    found.weights = tuple({src: weight(src, node) for src in found.senders[node]} for node in nodes)
    found.weighted = weighted
    for node in nodes:
        _check_weights(found.weights[node], f"to node {node}")
        _check_weights({dst: found.weights[dst][node] for dst in found[node]}, f"from node {node}")
    sent = [math.fsum(found.weights[dst][node] for dst in found[node]) for node in nodes]
    found.balanced = all(abs(math.fsum(found.weights[node].values()) - sent[node]) < ROUNDING for node in nodes)
    return found


def _check_weights(weights: Mapping[int, float], where: str) -> None:
    wrong = {other: each for other, each in weights.items() if not 0 <= each <= 1}  # nan, of an edge without one, too
    total = math.fsum(weights.values())
    if wrong or total > 1 + ROUNDING:
        got = f"{dict(list(wrong.items())[:3])} (by node)" if wrong else f"a sum of {total:g}"
        raise ScenarioError(f"topology: expected weights of 0 to 1 on edges {where}, with a sum up to 1, got {got}.")


def among(graph: Sequence[Sequence[int]], joins: Sequence[bool]) -> Sequence[Sequence[int]]:
    """Return a graph without the edges of nodes that do not join; weights of other edges are unchanged."""

    def cut(rows: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        return [tuple(peer for peer in peers if joins[peer]) if joins[node] else () for node, peers in enumerate(rows)]

    if not isinstance(graph, Receivers):
        return cut(graph)
    found = Receivers(cut(graph))
    found.senders, found.weighted, found.balanced = cut(graph.senders), graph.weighted, graph.balanced
    found.weights = tuple(
        {src: row[src] for src in senders} for row, senders in zip(graph.weights, found.senders, strict=True)
    )
    return found


def spanning_tree(neighbors: Sequence[Sequence[int]]) -> Neighbors:
    """Return the neighbors of every node in the breadth-first spanning tree of an undirected graph from node 0; of a
    graph in several pieces, one tree from the lowest id of each.
    """
    graph = nx.from_dict_of_lists(dict(enumerate(neighbors)))
    tree = nx.create_empty_copy(graph)
    for root in map(min, nx.connected_components(graph)):
        tree.add_edges_from(nx.bfs_edges(graph, root))
    return tuple(tuple(sorted(tree.adj[node])) for node in range(len(neighbors)))


def mixing_weights(node: int, receivers: Receivers, received: Collection[int]) -> dict[int, float]:
    """Return one node's row of W, ordered by id, with the node's own weight.

    The weights of messages that did not arrive are added to the node's own. If a message of another round comes from a
    node that is not a sender in this round, all received messages have equal weights.
    """
    row = receivers.weights[node]
    weights = {src: row[src] for src in received} if row.keys() >= set(received) else {}
    weights = weights or dict.fromkeys(received, 1 / (1 + len(received)))
    weights[node] = 1 - math.fsum(weights.values())
    return dict(sorted(weights.items()))


class Topology(Part, ABC):
    """Rule for the pairs of nodes that may exchange messages in each round; entries of TOPOLOGIES are frozen
    dataclasses.

    A subclass defines `graph`; `check` if some numbers of nodes are invalid; `dynamic` if rounds differ; `directed` or
    `weighted` if its graphs are.
    """

    dynamic: bool = True
    """Whether each round has a new graph; false: one graph for all rounds."""
    directed: bool = False
    """Whether `graph` returns a networkx.DiGraph, in which an edge leads from the sender to the receiver."""
    weighted: bool = False
    """Whether the edges' attribute `weight` is the weight that the receiver gives to the sender's model."""

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if no such graph exists on this many nodes, without random draws. Default: no error."""

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the problems found by `check`."""
        self.check(num_nodes)
        return iter(())

    def edge_attributes(self, num_nodes: int) -> tuple[str, ...]:
        """Names of the attributes weight, bandwidth_mbps and latency_ms that edges of user-supplied graphs have."""
        return ()

    @abstractmethod
    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the graph of a round, nodes 0..num_nodes-1, without self-loops; undirected unless `directed`.

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
            ScenarioError: the graph's nodes are not 0..num_nodes-1, or its weights are no mixing weights.
        """
        graph, found = self.graph(num_nodes, round_num, seed), None
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            found = tuple(tuple(sorted(map(int, graph.adj[node]))) for node in range(num_nodes))  # numpy's are not JSON
        if found is None or len(graph) != num_nodes:
            nodes = f" of {len(graph)} nodes ({listing(list(graph), 3)})" if hasattr(graph, "adj") else ""
            text = f"graph of {type(self).__qualname__} returns a {type(graph).__name__}{nodes}"
            raise ScenarioError(f"topology: {text}, expected a networkx.Graph of the nodes 0..{num_nodes - 1}.")
        wrong = misdrawn(graph, self.directed)
        if wrong:
            raise ScenarioError(f"topology: graph of {type(self).__qualname__} {wrong}.")
        return receivers_of(graph, self.weighted) if self.directed or self.weighted else found


def misdrawn(graph: nx.Graph, directed: bool) -> str:
    """Return the reason why a graph does not define neighbors, "returns ..., expected ...", or an empty text."""
    if graph.is_directed() != directed or graph.is_multigraph():
        expected = "a networkx.DiGraph" if directed else "an undirected networkx.Graph"
        cure = "" if graph.is_directed() == directed else f". Set `directed = {not directed}` in the class"
        return f"returns {kind_of(graph)}, expected {expected}{cure}"
    if any(node in others for node, others in graph.adj.items()):
        return "returns a graph with self-loops, expected none"
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
