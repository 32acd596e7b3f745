"""Random regular graphs of many nodes, in numpy: a pairing of stubs, repaired until it is a simple graph.

The configuration model (Bollobas, "A probabilistic proof of an asymptotic formula for the number of labeled regular
graphs", 1980): every node has `degree` stubs, all stubs are paired at random. Loops and double edges, about (degree^2 -
1) / 4 of them for any size, are each switched with an edge drawn at random, which keeps all degrees, until none is left
(McKay and Wormald, "Uniform generation of random regular graphs of moderate degree", 1990). Their method also rejects
some switchings to be exactly uniform; this module does not, because few of millions of edges are switched.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ddlsim.foundation.errors import DdlsimError

MAX_REPAIRS = 1_000


class EqualLists(Sequence[tuple[int, ...]]):
    """Equally long tuples of node ids, one per node, stored in one array with 4 bytes an entry instead of 40 until
    requested.

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
    """Whether every node can be reached from every other: labels decrease to the least neighboring label, with
    shortcuts.
    """
    label = np.arange(len(graph), dtype=np.int32)
    while True:
        lower = np.minimum(label, label[graph.table].min(axis=1))
        # A label that decreases takes the whole tree under its root along.
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
