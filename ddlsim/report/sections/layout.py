"""What sections have in common: axes of time, nodes by cluster, large runs in blocks of nodes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ddlsim.report.records import Records
from ddlsim.report.section import Axis

MOST_ROWS = 64
"""Nodes that are drawn one by one; of larger runs each row is a block of nodes with neighboring numbers."""


@dataclass(frozen=True)
class Blocks:
    """Nodes as rows of a figure, ordered by cluster; no block holds nodes of two clusters.

    Args:
        nodes: the nodes of each row, int arrays.
        labels: a row's name.
        clusters: a row's cluster.
    """

    nodes: list[np.ndarray]
    labels: list[str]
    clusters: list[int]

    @property
    def borders(self) -> list[int]:
        """Rows before which another cluster begins."""
        return (np.flatnonzero(np.diff(self.clusters)) + 1).tolist()

    @property
    def single(self) -> bool:
        """Whether every row is one node."""
        return all(len(block) == 1 for block in self.nodes)

    @property
    def row_title(self) -> str:
        """What a row is."""
        return "node (by cluster)" if self.single else "nodes (in blocks, by cluster)"

    @property
    def notes(self) -> list[str]:
        """A sentence on blocks, where there are any."""
        return [] if self.single else [f"{sum(map(len, self.nodes)):,} nodes are shown in {len(self.nodes)} blocks."]

    def means(self, values: np.ndarray) -> np.ndarray:
        """Mean over the known values of each block; [..., N] -> [..., B], nan where none is known."""
        return self._each(values, lambda of_block: _mean_of_known(of_block))

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sum over each block, [..., N] -> [..., B]."""
        return self._each(values, lambda of_block: np.nansum(of_block, axis=-1))

    def most_common(self, values: np.ndarray) -> np.ndarray:
        """The most common value of each block, whole numbers with -1 for none; [..., N] -> [..., B]."""
        most = int(values.max(initial=-1))

        def common(of_block: np.ndarray) -> np.ndarray:
            counts = np.stack([(of_block == value).sum(-1) for value in range(most + 1)], axis=-1)
            return np.where(counts.any(-1), counts.argmax(-1), -1)

        return self._each(values, common) if most >= 0 else self.means(values)

    def pairs(self, matrix: np.ndarray) -> np.ndarray:
        """Sums over pairs of blocks, [N, N] -> [B, B]."""
        return self.sums(self.sums(matrix).swapaxes(-1, -2)).swapaxes(-1, -2)

    def of_node(self) -> np.ndarray:
        """The row of each node, int [N]."""
        rows = np.zeros(sum(map(len, self.nodes)), dtype=int)
        for row, block in enumerate(self.nodes):
            rows[block] = row
        return rows

    def _each(self, values: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        if self.single:
            return values[..., np.concatenate(self.nodes)]
        return np.stack([function(values[..., block]) for block in self.nodes], axis=-1)


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    known = np.isfinite(values)
    count = known.sum(-1)
    return np.where(count > 0, np.where(known, values, 0).sum(-1) / np.maximum(count, 1), np.nan)


def blocks_of(node_cluster: np.ndarray, most: int = MOST_ROWS) -> Blocks:
    """Rows for so many nodes: each on its own, or blocks of as many nodes as keep their number below `most`."""
    clusters = range(int(node_cluster.max()) + 1)
    members = [np.flatnonzero(node_cluster == cluster) for cluster in clusters]
    size = 1
    while sum(-(-len(of_cluster) // size) for of_cluster in members) > max(most, len(members)):
        size += 1
    nodes = [of_cluster[i : i + size] for of_cluster in members for i in range(0, len(of_cluster), size)]
    labels = [str(block[0]) if len(block) == 1 else f"{block[0]}–{block[-1]}" for block in nodes]
    return Blocks(nodes, labels, [int(node_cluster[block[0]]) for block in nodes])


def axes(records: Records) -> list[Axis]:
    """Rounds, simulated time, bytes and, where it was counted, energy at the evaluations."""
    evaluations = records.curve
    found = [Axis("round", evaluations.round), Axis("simulated time", evaluations.time_s, "seconds")]
    sent = evaluations.bytes_sent
    if np.isfinite(sent).all():
        found.append(Axis("bytes sent by all nodes", sent, "bytes"))
    if evaluations.joules is not None:
        found.append(Axis("energy of all nodes", evaluations.joules, "joules"))
    return found


def cluster_name(cluster: int, sizes: np.ndarray) -> str:
    """A cluster with its number of nodes; all nodes, where there is one cluster."""
    if len(sizes) == 1:
        return f"all {sizes[0]} nodes"
    return f"cluster {cluster} ({sizes[cluster]} node{'s' if sizes[cluster] > 1 else ''})"
