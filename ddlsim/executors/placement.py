"""Which worker computes for which node: as many nodes for each, give or take one, few messages between them if asked.

graph: nodes in reverse Cuthill-McKee order (E. Cuthill and J. McKee, "Reducing the bandwidth of sparse symmetric
matrices", ACM 1969), which brings neighbors together, cut into blocks; the cut between blocks is then made smaller by
exchanging nodes (B. W. Kernighan and S. Lin, Bell System Technical Journal 1970), both by networkx.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import networkx as nx

    from ddlsim.executors.options import Shards

MOST_EXCHANGED = 500
"""Nodes of two blocks between which nodes are exchanged; networkx takes about a minute for a few thousand."""


def deal(
    shards: "Shards", workers: int, node_cluster: np.ndarray, neighbors: Callable[[], Sequence[Sequence[int]]]
) -> list[int]:
    """Per node its worker; at the end, one more, that of a server and of what belongs to no node.

    Args:
        shards: contiguous: blocks of node ids; clusters: nodes of a cluster together; graph: neighbors together.
        workers: how many.
        node_cluster: int [N].
        neighbors: gives the neighbors of every node in the first round's graph.
    """
    count = len(node_cluster)
    if shards == "clusters":
        order = np.argsort(node_cluster, kind="stable").tolist()
    elif shards == "graph" and workers > 1:
        return [*_cut(neighbors(), workers), 0]
    else:
        order = list(range(count))
    return [*_blocks(order, workers), 0]


def _blocks(order: Sequence[int], workers: int) -> list[int]:
    """Per node its block when an order of all nodes is cut into blocks."""
    found = [0] * len(order)
    for place, node in enumerate(order):
        found[node] = place * workers // len(order)
    return found


def _cut(neighbors: Sequence[Sequence[int]], workers: int) -> list[int]:
    import networkx as nx
    from networkx.utils import reverse_cuthill_mckee_ordering

    graph: nx.Graph = nx.Graph()
    graph.add_nodes_from(range(len(neighbors)))
    graph.add_edges_from((node, peer) for node, own in enumerate(neighbors) for peer in own)
    found = _blocks(list(reverse_cuthill_mckee_ordering(graph)), workers)
    blocks = [{node for node, block in enumerate(found) if block == own} for own in range(workers)]
    for first in range(workers):
        for second in range(first + 1, workers):
            if len(blocks[first]) + len(blocks[second]) <= MOST_EXCHANGED:
                blocks[first], blocks[second] = _exchanged(graph, blocks[first], blocks[second])
    return [next(place for place, block in enumerate(blocks) if node in block) for node in range(len(neighbors))]


def _exchanged(graph: "nx.Graph", first: set[int], second: set[int]) -> tuple[set[int], set[int]]:
    """Two blocks of the same sizes with a smaller cut between them, if one is found."""
    from networkx.algorithms.community import kernighan_lin_bisection

    if abs(len(first) - len(second)) > 1 or not first or not second:
        return first, second
    a, b = kernighan_lin_bisection(graph.subgraph(first | second), (first, second), max_iter=10, seed=0)
    return set(a), set(b)
