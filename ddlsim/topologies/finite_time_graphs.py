"""Graphs on which nodes reach their mean fast, mostly after a known number of rounds, with a new graph per round.

Sources: exponential graphs: Assran et al., "Stochastic gradient push", ICML 2019, and Ying, Yuan, Chen, Hu, Pan, Yin,
"Exponential Graph is Provably Efficient for Decentralized Deep Training", NeurIPS 2021. Base-(k+1) graphs: Takezawa,
Sato, Bao, Niwa, Yamada, "Beyond Exponential Graph: Communication-Efficient Topologies for Decentralized Learning via
Finite-time Convergence", NeurIPS 2023, algorithms 1 to 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain

import networkx as nx

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import Count, CountOrZero
from ddlsim.topologies.base import StaticTopology, Topology

Edge = tuple[int, int, float]
"""Two nodes, and the weight that each gives to the other's model."""


@dataclass(frozen=True, kw_only=True)
class Exponential(StaticTopology):
    """Directed: every node sends to the nodes 1, 2, 4, ... places further in the order of ids; the same in all rounds.

    Every node has ceil(log2 n) senders and as many receivers, so mixing weights are equal.
    """

    directed = True

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.DiGraph:
        """Return the graph of all hops."""
        return _hops(num_nodes, [2**power for power in range((num_nodes - 1).bit_length())])


@dataclass(frozen=True, kw_only=True)
class OnePeerExponential(Topology):
    """Directed: every node sends to one node, 1, 2, 4, ... places further in the order of ids in successive rounds.

    If the number of nodes is a power of 2, nodes have their mean after log2 n rounds; otherwise only in the limit.
    """

    directed = True

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.DiGraph:
        """Return the graph of the round's hop."""
        powers = (num_nodes - 1).bit_length()
        return _hops(num_nodes, [2 ** (round_num % powers)] if powers else [])


def _hops(num_nodes: int, hops: Sequence[int]) -> nx.DiGraph:

    graph = nx.empty_graph(num_nodes, create_using=nx.DiGraph)
    graph.add_edges_from((node, (node + hop) % num_nodes) for hop in hops for node in range(num_nodes))
    return graph


@dataclass(frozen=True, kw_only=True)
class Hypercube(Topology):
    """Nodes whose ids differ in one binary digit are linked; the number of nodes is a power of 2.

    Args:
        dynamic: whether each round has the edges of one digit, the lowest first, so that nodes have their mean after
            log2 n rounds; false: the edges of all digits in every round.
    """

    dynamic: bool = False

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError unless the number of nodes is a power of 2."""
        if num_nodes & (num_nodes - 1):
            near = 2 ** num_nodes.bit_length()
            text = f"hypercube: expected a power of 2 as number of nodes ({near // 2}, {near}, ...), got {num_nodes}"
            raise ScenarioError(f"topology: {text}. Use base_k for other numbers.")

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the edges of the round's digit, or of all digits."""

        self.check(num_nodes)
        digits = list(range(num_nodes.bit_length() - 1))
        if self.dynamic and digits:
            digits = [round_num % len(digits)]
        graph = nx.empty_graph(num_nodes)
        graph.add_edges_from((node, node ^ (1 << digit)) for digit in digits for node in range(num_nodes))
        return graph


@dataclass(frozen=True, kw_only=True)
class RandomMatching(Topology):
    """Random pairs of nodes in each round; one node has no peer if the number of nodes is odd.

    Args:
        seed: seed of the graphs, independent of the scenario's; null: the scenario's seed.
    """

    seed: CountOrZero | None = None

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the pairs of the round."""

        order = stream(seed if self.seed is None else self.seed, "topology", round_num).permutation(num_nodes)
        graph = nx.empty_graph(num_nodes)
        graph.add_edges_from(order[: num_nodes // 2 * 2].reshape(-1, 2).tolist())
        return graph


@dataclass(frozen=True, kw_only=True)
class BaseK(Topology):
    """Base-(k+1) graph: at most k neighbors per node and round, and the exact mean after finitely many rounds.

    It exists for any number n of nodes; with k = 1 and n a power of 2 it is the hypercube with one digit per round.
    Edges have mixing weights. After its last graph the sequence starts again.

    Args:
        max_degree: k, the largest number of neighbors of a node in a round; below the number of nodes.
    """

    weighted = True

    max_degree: Count = 1

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError unless `max_degree` is below the number of nodes."""
        if self.max_degree >= max(2, num_nodes):
            text = f"expected less than the number of nodes ({num_nodes}), got {self.max_degree}"
            raise ScenarioError(f"topology.max_degree: {text}.")

    def graph(self, num_nodes: int, round_num: int, seed: int) -> nx.Graph:
        """Return the weighted graph of the round."""

        self.check(num_nodes)
        graphs = base_graphs(num_nodes, self.max_degree)
        graph = nx.empty_graph(num_nodes)
        graph.add_weighted_edges_from(graphs[round_num % len(graphs)] if graphs else ())
        return graph


@cache
def base_graphs(num_nodes: int, k: int) -> tuple[tuple[Edge, ...], ...]:
    """Return the shorter of the Simple Base-(k+1) and the Base-(k+1) graphs (algorithms 2 and 3), round by round."""
    smooth = num_nodes
    while factor := next((f for f in range(2, k + 2) if smooth % f == 0), 0):
        smooth //= factor
    groups = num_nodes // smooth  # p, with prime factors up to k + 1; each of `smooth` = q nodes
    simple = _simple(range(num_nodes), k)
    parallel = [_simple(range(first, first + smooth), k) for first in range(0, num_nodes, smooth)]
    across = [_hyper_hypercube(range(first, num_nodes, smooth), k) for first in range(smooth)]
    whole = [list(chain.from_iterable(stage)) for stage in (*zip(*parallel, strict=True), *zip(*across, strict=True))]
    return tuple(map(tuple, simple if len(simple) <= len(whole) or groups == 1 else whole))


def _simple(nodes: Sequence[int], k: int) -> list[list[Edge]]:
    """Return the Simple Base-(k+1) graphs (algorithm 2).

    The digits of the number of nodes in base k + 1 divide the nodes into sets: a digit a at place p is a set of a parts
    of (k + 1)^p nodes. Every set averages its nodes. Then set after set gives each node of the later sets the mean of
    both, by one edge to each of its parts; its parts, whose means are then equal, average in parallel.
    """
    if _factors(len(nodes), k + 1) is not None:
        return _hyper_hypercube(nodes, k)
    sets, first = [], 0
    for size in ((k + 1) ** place for place in range(len(nodes).bit_length(), -1, -1)):
        digit = (len(nodes) - first) // size
        if digit:
            sets.append([nodes[first + part * size : first + (part + 1) * size] for part in range(digit)])
            first += digit * size
    starts = [_hyper_hypercube([node for part in parts for node in part], k) for parts in sets]
    stages = [[start[number] for start in starts if number < len(start)] for number in range(max(map(len, starts)))]
    before, left = len(stages), len(nodes)
    for number, parts in enumerate(sets[:-1]):
        members = len(parts) * len(parts[0])
        later = [node for others in sets[number + 1 :] for part in others for node in part]
        weight = members / (len(parts) * left)
        left -= members
        exchange = [(node, part[at], weight) for at, node in enumerate(later) for part in parts]
        inside = [
            list(chain.from_iterable(stage))
            for stage in zip(*(_hyper_hypercube(part, k) for part in parts), strict=True)
        ]
        for stage, edges in enumerate([exchange, *inside], before + number):
            stages.extend([] for _ in range(stage + 1 - len(stages)))
            stages[stage].append(edges)
    return [list(chain.from_iterable(stage)) for stage in stages]


def _hyper_hypercube(nodes: Sequence[int], k: int) -> list[list[Edge]]:
    """Return the k-peer hyper-hypercube graphs (algorithm 1): each round links and averages the nodes whose numbers
    differ in one digit of the mixed base of the factors of their count.
    """
    found, stride = [], 1
    factors = _factors(len(nodes), k + 1)
    assert factors is not None
    for factor in factors:
        pairs = (
            (low, low + steps * stride)
            for low in range(len(nodes))
            for steps in range(1, factor - low // stride % factor)
        )
        found.append([(nodes[low], nodes[high], 1 / factor) for low, high in pairs])
        stride *= factor
    return found


@cache
def _factors(number: int, most: int) -> tuple[int, ...] | None:
    """Return the fewest factors of 2 to `most` whose product is `number`; None if it has a larger prime factor."""
    if number == 1:
        return ()
    rests = ((factor, _factors(number // factor, most)) for factor in range(most, 1, -1) if number % factor == 0)
    return min(((factor, *rest) for factor, rest in rests if rest is not None), key=len, default=None)
