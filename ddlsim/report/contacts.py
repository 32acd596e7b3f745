"""Pulls between nodes: share of contacts within the cluster, similarities they measured, merges that help or harm.

Source of the measures: Listo Zec et al., FL-IJCAI 2022, and Hagander's thesis (heat maps aside: plots.py). All of it
comes from rows that pulling algorithms record: `pulled_from`, and where a scenario asks for them `similarity_<node>`
(algorithm.record_similarities), `true_similarity_<node>` (records.true_similarities), `accuracy_before_merge` and
`accuracy_after_merge` (algorithm.record_merges).
"""

from typing import TYPE_CHECKING

import numpy as np

from ddlsim import metrics
from ddlsim.report.frame import COLORS, DASHES, new_figure
from ddlsim.report.records import Records
from ddlsim.tasks.metric import Metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIMILARITY = "similarity_"
TRUE_SIMILARITY = "true_similarity_"
MERGES = ("{}_before_merge", "{}_after_merge")


def in_cluster_share(records: Records) -> tuple[np.ndarray, np.ndarray] | None:
    """Share of a round's pulls that stayed within the puller's cluster.

    Returns:
        Rounds [R] in which any node pulled, and the share per cluster, float [R, C], NaN where a cluster pulled
        nothing; None if no node ever pulled.
    """
    rows = records.rows.get("pulled_from")
    if rows is None or not len(rows):
        return None
    cluster = records.node_cluster
    rounds, index = np.unique(rows.round, return_inverse=True)
    own = cluster[rows.node]
    pulls, within = (np.zeros((len(rounds), cluster.max() + 1)) for _ in range(2))
    np.add.at(pulls, (index, own), 1)
    np.add.at(within, (index, own), own == cluster[rows.value.astype(int)])
    with np.errstate(invalid="ignore"):
        return rounds, within / pulls


def similarities(records: Records, rows_of: str = SIMILARITY) -> dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """What chosen nodes measured, or would have: node -> rounds [M], peers [M], similarities [M], by round and peer."""
    found: dict[int, list[tuple[int, int, float]]] = {}
    for name, rows in records.rows.items():
        if name.startswith(rows_of):
            peer = int(name.removeprefix(rows_of))
            for node, round_num, value in zip(rows.node, rows.round, rows.value, strict=True):
                found.setdefault(int(node), []).append((int(round_num), peer, float(value)))
    return {
        node: tuple(np.array(column) for column in zip(*sorted(measured), strict=True))
        for node, measured in sorted(found.items())
    }


def measured_at_merges(records: Records) -> Metric:
    """What a run records of its merges: what its nodes are judged by where more is better, else the loss."""
    return Metric("loss", higher_is_better=False) if records.judged_by.falling else records.judged_by


def merge_quality(records: Records) -> tuple[np.ndarray, np.ndarray] | None:
    """Mean validation accuracy, or whatever `measured_at_merges` says, before and after the merges of a round, over all
    honest nodes of a cluster.

    A node that early stopping has ended counts in all later rounds with what it then held, as in the published curves.

    Returns:
        Rounds [R], and float [R, C, 2] per cluster; None if it was not recorded.
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


def contact_figures(records: Records) -> "dict[str, Figure]":
    """Every figure of contacts that the records allow, by file name."""
    figures = {}
    share = in_cluster_share(records)
    if share is not None:
        figures |= {"contacts": share_figure(records, *share)} if records.has_clusters else {}
        figures["pulls"] = pulls_figure(records)
    for node, measured in similarities(records).items():
        figures[f"similarities_{node}"] = similarity_figure(records, node, *measured)
    for node, measured in similarities(records, TRUE_SIMILARITY).items():
        figures[f"true_similarities_{node}"] = true_similarity_figure(records, node, *measured)
    merged = merge_quality(records)
    if merged is not None:
        figures["merges"] = merges_figure(records, *merged)
    return figures


def share_figure(records: Records, rounds: np.ndarray, share: np.ndarray) -> "Figure":
    """Share of in-cluster pulls over rounds, with what uniform draws would give as a thin line."""
    figure, axes = new_figure(records)
    sizes = np.bincount(records.node_cluster)
    for cluster, curve in enumerate(share.T):
        color = COLORS[cluster % len(COLORS)]
        axes.plot(rounds, 100 * curve, DASHES[cluster % len(DASHES)], color=color, label=records.cluster_label(cluster))
        axes.axhline(100 * (sizes[cluster] - 1) / (records.num_nodes - 1), color=color, linewidth=0.5)
    axes.set(xlabel="round", ylabel="pulls within the cluster (%)", ylim=(0, 102))
    axes.legend()
    return figure


def pulls_figure(records: Records) -> "Figure":
    """Heat map of how often each node pulled from each other one, nodes ordered by cluster; white: never."""
    order = np.argsort(records.node_cluster, kind="stable")
    rows, counts = records.rows["pulled_from"], np.zeros((records.num_nodes, records.num_nodes))
    np.add.at(counts, (rows.node, rows.value.astype(int)), 1)
    figure, axes = new_figure(records)
    shown = np.ma.masked_equal(counts[np.ix_(order, order)], 0)
    figure.colorbar(axes.imshow(shown, cmap="viridis", vmin=0, interpolation="nearest"), label="pulls")
    for border in np.flatnonzero(np.diff(records.node_cluster[order])) + 0.5:
        axes.axhline(border, color="black", linewidth=1)
        axes.axvline(border, color="black", linewidth=1)
    axes.set(xlabel="from node (ordered by cluster)", ylabel="node that pulled (ordered by cluster)")
    return figure


def similarity_figure(
    records: Records, node: int, rounds: np.ndarray, peers: np.ndarray, values: np.ndarray
) -> "Figure":
    """One node's measured similarities over rounds, colored by the peer's cluster."""
    figure, axes = new_figure(records)
    clusters = records.node_cluster[peers]
    for cluster in np.unique(clusters):
        chosen, own = clusters == cluster, cluster == records.node_cluster[node]
        color = COLORS[cluster % len(COLORS)]
        label = records.cluster_label(int(cluster)) + (" (its own)" if own and records.has_clusters else "")
        axes.plot(rounds[chosen], values[chosen], "o" if own else "x", markersize=3, color=color, label=label)
    axes.set(xlabel="round", ylabel=f"similarity measured by node {node}")
    axes.legend()
    return figure


def true_similarity_figure(
    records: Records, node: int, rounds: np.ndarray, peers: np.ndarray, values: np.ndarray
) -> "Figure":
    """One node's similarities to all others at the evaluations: per cluster the mean, and from least to largest."""
    figure, axes = new_figure(records)
    clusters, grid = records.node_cluster[peers], np.unique(rounds)
    for cluster in np.unique(clusters):
        of_round = [values[(clusters == cluster) & (rounds == completed)] for completed in grid]
        known = [i for i, found in enumerate(of_round) if len(found)]
        own = cluster == records.node_cluster[node]
        color, dash = COLORS[cluster % len(COLORS)], DASHES[cluster % len(DASHES)]
        label = records.cluster_label(int(cluster)) + (" (its own)" if own and records.has_clusters else "")
        axes.plot(
            grid[known],
            [of_round[i].mean() for i in known],
            dash,
            color=color,
            label=label,
            linewidth=2.2 if own else 1.2,
        )
        axes.fill_between(
            grid[known],
            [of_round[i].min() for i in known],
            [of_round[i].max() for i in known],
            color=color,
            alpha=0.15,
            linewidth=0,
        )
    axes.set(xlabel="round", ylabel=f"true similarity to node {node}")
    axes.legend()
    return figure


def merges_figure(records: Records, rounds: np.ndarray, quality: np.ndarray) -> "Figure":
    """Mean validation accuracy (see measured_at_merges) per cluster before (thin) and after (thick) merging."""
    figure, axes = new_figure(records)
    measured = measured_at_merges(records)
    for cluster in range(quality.shape[1]):
        color = COLORS[cluster % len(COLORS)]
        before = f"{records.cluster_label(cluster)}, before"
        axes.plot(rounds, measured.scale * quality[:, cluster, 0], color=color, linewidth=0.7, label=before)
        axes.plot(rounds, measured.scale * quality[:, cluster, 1], color=color, linewidth=1.8, label="after merging")
    axes.set(xlabel="round", ylabel=f"validation {measured.axis}")
    axes.legend(ncols=2)
    return figure
