"""Measures of collaboration: learned graphs, pulls between nodes, similarities, and effects of merges.

The learned graph is read from the rows `collaboration` (a node's row of weights).

Pulls between nodes are described by the share of contacts within the cluster, the measured similarities, and merges
that help or harm. Source of these measures: Listo Zec et al., FL-IJCAI 2022, and Hagander's thesis. All come from
rows that pulling algorithms record: `pulled_from`, and if a scenario requests them `similarity_<node>`
(algorithm.record_similarities), `true_similarity_<node>` (records.true_similarities), `accuracy_before_merge` and
`accuracy_after_merge` (algorithm.record_merges).
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ddlsim.report.record_files import damage_of, json_lines
from ddlsim.report.records import Records
from ddlsim.tasks import metrics
from ddlsim.tasks.base import Metric


@dataclass(frozen=True)
class Graphs:
    """Weights over rounds.

    Args:
        round: int [R], completed rounds, ascending.
        weights: float [R, N, N]; row: the node that learns, column: the one it learns from. A node without a row in a
            round keeps its last.
    """

    round: np.ndarray
    weights: np.ndarray

    def edges(self) -> np.ndarray:
        """Number of directed edges of positive weight between different nodes, int [R]."""
        others = ~np.eye(self.weights.shape[1], dtype=bool)
        return ((self.weights > 0) & others).sum((1, 2))

    def inside(self, node_cluster: np.ndarray) -> np.ndarray:
        """Share of each node's weight that stays in its cluster, itself included, float [R, N]."""
        return (self.weights * (node_cluster[:, None] == node_cluster[None, :])).sum(2)


def read_graphs(directory: Path, num_nodes: int) -> Graphs | None:
    """The graphs of a run; None if no node learned one."""
    path = directory / "metrics.jsonl"
    learned: dict[int, dict[int, list[float]]] = {}
    for row in json_lines(path):
        if row["name"] == "collaboration":
            with damage_of(path):
                learned.setdefault(row["round"], {})[row["node"]] = row["value"]
    if not learned:
        return None
    rounds, found = sorted(learned), []
    present = np.full((num_nodes, num_nodes), 1 / num_nodes)
    for completed in rounds:  # a fast node writes its rows of later rounds before a slow one those of this
        for node, weights in learned[completed].items():
            with damage_of(path):
                present[node] = weights
        found.append(present.copy())
    return Graphs(np.array(rounds), np.stack(found))


SIMILARITY = "similarity_"
TRUE_SIMILARITY = "true_similarity_"
MERGES = ("{}_before_merge", "{}_after_merge")


def in_cluster_share(records: Records) -> tuple[np.ndarray, np.ndarray] | None:
    """Share of a round's pulls that stayed within the puller's cluster.

    Returns:
        Rounds [R] in which any node pulled, and the share per cluster, float [R, C], NaN if a cluster pulled nothing;
            None if no node ever pulled.
    """
    rows = records.rows.get("pulled_from")
    if rows is None or not len(rows):
        return None
    cluster = records.node_cluster
    rounds, index = np.unique(rows.round, return_inverse=True)
    puller = cluster[rows.node]
    pulls, within = (np.zeros((len(rounds), cluster.max() + 1)) for _ in range(2))
    np.add.at(pulls, (index, puller), 1)
    np.add.at(within, (index, puller), puller == cluster[rows.value.astype(int)])
    with np.errstate(invalid="ignore"):
        return rounds, within / pulls


def pull_counts(records: Records) -> np.ndarray | None:
    """Number of pulls of each node (row) from each other one (column), float [N, N]; None if no node ever pulled."""
    rows = records.rows.get("pulled_from")
    if rows is None or not len(rows):
        return None
    counts = np.zeros((records.num_nodes, records.num_nodes))
    np.add.at(counts, (rows.node, rows.value.astype(int)), 1)
    return counts


def similarities(records: Records, rows_of: str = SIMILARITY) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return the similarities that chosen nodes measured, or would have measured: node -> rounds [M], peers [M],
    similarities [M], by round and peer.
    """
    found: dict[int, list[tuple[int, int, float]]] = {}
    for name, rows in records.rows.items():
        if name.startswith(rows_of):
            peer = int(name.removeprefix(rows_of))
            for node, round_num, value in zip(rows.node, rows.round, rows.value, strict=True):
                found.setdefault(int(node), []).append((int(round_num), peer, float(value)))
    columns = {node: np.array(sorted(measured)).T for node, measured in sorted(found.items())}
    return {node: (rounds.astype(int), peers.astype(int), values) for node, (rounds, peers, values) in columns.items()}


def measured_at_merges(records: Records) -> Metric:
    """Return the metric that a run records at merges: the judging metric if more is better, else the loss."""
    return Metric("loss", higher_is_better=False) if records.judged_by.falling else records.judged_by


def merge_quality(records: Records) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the mean of validation accuracy (or the metric of `measured_at_merges`) before and after the merges of a
    round, over all honest nodes of a cluster.

    A node that stopped early counts in all later rounds with its last value, as in the published curves.

    Returns:
        Rounds [R], and float [R, C, 2] per cluster; None if not recorded.
    """
    names = [name.format(measured_at_merges(records).name) for name in MERGES]
    if any(name not in records.rows for name in names):
        return None
    cluster = records.node_cluster
    rounds = np.unique(records.rows[names[0]].round)
    found = np.full((len(rounds), len(cluster), 2), np.nan)
    for which, name in enumerate(names):
        rows = records.rows[name]
        found[np.searchsorted(rounds, rows.round), rows.node, which] = rows.value
    stopped = records.rows.get("stopped")
    for node in () if stopped is None else np.unique(stopped.node):
        last = np.flatnonzero(~np.isnan(found[:, node, 0]))
        if len(last):
            found[last[-1] + 1 :, node] = found[last[-1], node]
    found[:, records.attacked] = np.nan
    return rounds, metrics.over_clusters(found.transpose(0, 2, 1), cluster).transpose(0, 2, 1)
