"""Sections on collaboration: heads, similarities, pulls, merges and learned graphs, over rounds.

The learned graph is read from the rows `collaboration` (a node's row of weights).

Pulls between nodes are described by the share of contacts within the cluster, the measured similarities, and merges
that help or harm. Source of these measures: Listo Zec et al., FL-IJCAI 2022, and Hagander's thesis. All come from
rows that pulling algorithms record: `pulled_from`, and if a scenario requests them `similarity_<node>`
(algorithm.record_similarities), `true_similarity_<node>` (records.true_similarities), `accuracy_before_merge` and
`accuracy_after_merge` (algorithm.record_merges).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ddlsim.report.record_files import damage_of, json_lines, read_samples
from ddlsim.report.records import Records
from ddlsim.report.section import Axis, Frame, Lines, Mark, Section, Series
from ddlsim.report.sections import tables
from ddlsim.report.sections.about import blocks_of, cluster_series
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
    for completed in rounds:  # fast nodes write rows of later rounds before slow nodes write rows of this one
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
    if rows is None:
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
    if rows is None:
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


GROUP = "Collaboration"
MOST_NODES = 8
"""Nodes whose similarities are drawn."""


def peer_sections(records: Records) -> Iterator[Section]:
    """Yield the sections, as far as the algorithm has recorded something to draw."""
    for part in (heads, pulls, similarity_sections, merges, graphs, samples):
        yield from part(records)


def heads(records: Records) -> Iterator[Section]:
    """Head of every node in every round, and how many nodes of each cluster use each head."""
    found = records.head_rounds()
    if found is None:
        return
    rounds, chosen = found
    blocks, clusters = blocks_of(records.node_cluster), records.node_cluster
    num_heads = int(chosen.max()) + 1
    rows = blocks.most_common(chosen).T.astype(float)
    frame = Frame("head", np.where(rows >= 0, rows, np.nan), "count")
    names = [f"head {head}" for head in range(num_heads)]
    every = blocks.heat([frame], [str(completed) for completed in rounds], "round", categories=names)
    shares = []
    for cluster in range(clusters.max() + 1):
        of_cluster = chosen[:, clusters == cluster]
        online = (of_cluster >= 0).sum(1)
        agreed = np.stack([(of_cluster == head).sum(1) for head in range(num_heads)]).max(0)
        shares.append(np.where(online > 0, agreed / np.maximum(online, 1), np.nan))
    agreement = Lines([Axis("round", rounds)], "share of nodes", cluster_series(records, shares), "percent")
    about = "The head that each node chose; nothing where it chose none."
    about += "" if blocks.single else " Of a block the most common one."
    table, title = tables.heads(records), "Head of every node over rounds"
    agreed_about = "Share of a cluster's nodes on the head that most of them use. Clusters may agree on the same head."
    yield Section("heads", title, GROUP, about, table, every, notes=blocks.notes)
    yield Section("agreement", "Agreement on a head", GROUP, agreed_about, figure=agreement)


def pulls(records: Records) -> Iterator[Section]:
    """Number of pulls between nodes, and the share of pulls within a cluster over rounds."""
    counts, found = pull_counts(records), in_cluster_share(records)
    if counts is None or found is None:
        return
    blocks = blocks_of(records.node_cluster)
    sums = blocks.pairs(counts)
    pairs = blocks.pair_heat([Frame("pulls", np.where(sums > 0, sums, np.nan), "count")], "puller", "from node")
    about = "How often a node (row) pulled from another (column) over the whole run."
    yield Section("pulls", "Pulls between nodes", GROUP, about, figure=pairs, notes=blocks.notes)
    if not records.has_clusters:
        return
    rounds, share = found
    sizes = np.bincount(records.node_cluster)
    others = max(1, records.num_nodes - 1)
    marks = [Mark(f"uniform draws, cluster {c}", (size - 1) / others, c) for c, size in enumerate(sizes)]
    figure = Lines([Axis("round", rounds)], "share", cluster_series(records, share.T), "percent", marks, from_zero=True)
    about = "Share of a cluster's pulls that went to its own nodes; dotted: the share of uniform draws."
    yield Section("pulls-inside", "Pulls within the cluster", GROUP, about, figure=figure)


def similarity_sections(records: Records) -> Iterator[Section]:
    """Similarities of chosen nodes to others: per cluster of the peer mean and range."""
    for title, key, values in (
        ("Similarities measured by node", "similarities", similarities(records)),
        ("True similarities to node", "true-similarities", similarities(records, TRUE_SIMILARITY)),
    ):
        for node, (rounds, peer_ids, value) in list(values.items())[:MOST_NODES]:
            grid, at = np.unique(rounds, return_inverse=True)
            clusters, series = records.node_cluster[peer_ids], []
            for cluster in np.unique(clusters):
                chosen = clusters == cluster
                low, high = np.full(len(grid), np.inf), np.full(len(grid), -np.inf)
                np.minimum.at(low, at[chosen], value[chosen])
                np.maximum.at(high, at[chosen], value[chosen])
                counts = np.bincount(at[chosen], minlength=len(grid))
                sums = np.bincount(at[chosen], value[chosen], len(grid))
                suffix = " (its own)" if cluster == records.node_cluster[node] and records.has_clusters else ""
                mean, low, high = (np.where(counts > 0, v, np.nan) for v in (sums / np.maximum(counts, 1), low, high))
                label, color = f"{records.cluster_label(int(cluster))}{suffix}", int(cluster)
                series.append(Series(label, mean, color, low, high, dash=color))
            figure = Lines([Axis("round", grid)], "similarity", series)
            about = "Mean over the peers of each cluster, and the range from the least to the most similar one."
            yield Section(f"{key}-{node}", f"{title} {node}", GROUP, about, figure=figure)


def merges(records: Records) -> Iterator[Section]:
    """Validation accuracy, or what else is measured at merges, before and after them."""
    found = merge_quality(records)
    if found is None:
        return
    rounds, quality = found
    measured, series, algorithm = measured_at_merges(records), [], records.scenario["algorithm"]
    clusters = [algorithm["deluded_cluster"]] if "deluded_cluster" in algorithm else range(quality.shape[1])
    for cluster in clusters:
        before, after = quality[:, cluster].T
        label = records.cluster_label(cluster)
        series.append(Series(f"{label}, before merging", before, cluster, thin=True, dash=1))
        series.append(Series(f"{label}, after merging", after, cluster))
    figure = Lines([Axis("round", rounds)], f"validation {measured.words}", series, measured.unit)
    about = f"Mean validation {measured.words} over the nodes of a cluster."
    if algorithm.get("deluded"):
        about += f" {algorithm['deluded']} deluded nodes from round {algorithm['delusion_start'] + 1} on."
    title = f"{measured.words[0].upper()}{measured.words[1:]} before and after merging"
    yield Section("merges", title, GROUP, about, figure=figure)


def graphs(records: Records) -> Iterator[Section]:
    """A learned collaboration graph over rounds."""
    found = read_graphs(records.directory, records.num_nodes) if records.learns_graph else None
    if found is None:
        return
    blocks = blocks_of(records.node_cluster)
    size = np.array([len(block) for block in blocks.nodes])
    frames = []
    for completed, weights in zip(found.round, found.weights, strict=True):
        mean = blocks.pairs(weights) / size[:, None]
        frames.append(Frame(str(completed), np.where(mean > 0, mean, np.nan)))
    about = "Weight with which a node (row) learns from another (column)."
    weights = blocks.pair_heat(frames, "", "learns from", frame_title="round", choose="slider")
    yield Section("graph", "Learned collaboration graph", GROUP, about, figure=weights, notes=blocks.notes)
    axis = Axis("round", found.round)
    edges = Lines([axis], "edges", [Series("edges", found.edges(), 0)], "count", from_zero=True)
    yield Section("graph-edges", "Edges of the learned graph", GROUP, "Directed, of positive weight.", figure=edges)
    if records.has_clusters:
        inside = metrics.over_clusters(found.inside(records.node_cluster), records.node_cluster)
        within = Lines([axis], "share of weight", cluster_series(records, inside.T), "percent")
        about = "Mean share of a node's weights that stay in its cluster, including its weight on itself."
        yield Section("graph-inside", "Weight within the cluster", GROUP, about, figure=within)


def samples(records: Records) -> Iterator[Section]:
    """Training samples of each node by class."""
    counts = read_samples(records.directory)
    if counts is None:
        return
    blocks = blocks_of(records.node_cluster)
    sums = blocks.sums(counts.T.astype(float)).T
    columns = ["all"] if counts.shape[1] == 1 else [str(label) for label in range(counts.shape[1])]
    frame = Frame("training samples", np.where(sums > 0, sums, np.nan), "count")
    figure, about = blocks.heat([frame], columns, "class"), "How many of each class."
    yield Section("samples", "Training samples", "Data", about, figure=figure, notes=blocks.notes)
