"""Sections on collaboration: heads, similarities, pulls, merges and learned graphs, over rounds."""

import numpy as np

from ddlsim.report.collaboration import (
    TRUE_SIMILARITY,
    in_cluster_share,
    measured_at_merges,
    merge_quality,
    pull_counts,
    read_graphs,
    similarities,
)
from ddlsim.report.record_files import read_samples
from ddlsim.report.records import Records
from ddlsim.report.section import Axis, Frame, Lines, Mark, Section, Series
from ddlsim.report.sections import tables
from ddlsim.report.sections.about import blocks_of, cluster_series
from ddlsim.tasks import metrics

GROUP = "Collaboration"
MOST_NODES = 8
"""Nodes whose similarities are drawn."""


def peer_sections(records: Records) -> list[Section]:
    """The sections, as far as the algorithm has recorded something to draw."""
    return [
        *heads(records),
        *pulls(records),
        *similarity_sections(records),
        *merges(records),
        *graphs(records),
        *samples(records),
    ]


def heads(records: Records) -> list[Section]:
    """Head of every node in every round, and how many nodes of each cluster use each head."""
    found = records.head_rounds()
    if found is None:
        return []
    rounds, chosen = found
    blocks, clusters = blocks_of(records.node_cluster), records.node_cluster
    num_heads = int(chosen.max()) + 1
    rows = blocks.most_common(chosen).T.astype(float)
    every = blocks.heat(
        [Frame("head", np.where(rows >= 0, rows, np.nan), "count")],
        [str(completed) for completed in rounds],
        "round",
        categories=[f"head {head}" for head in range(num_heads)],
    )
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
    return [
        Section("heads", title, GROUP, about, table, every, notes=blocks.notes),
        Section("agreement", "Agreement on a head", GROUP, agreed_about, figure=agreement),
    ]


def pulls(records: Records) -> list[Section]:
    """Number of pulls between nodes, and the share of pulls within a cluster over rounds."""
    counts, found = pull_counts(records), in_cluster_share(records)
    if counts is None or found is None:
        return []
    blocks = blocks_of(records.node_cluster)
    sums = blocks.pairs(counts)
    pairs = blocks.pair_heat([Frame("pulls", np.where(sums > 0, sums, np.nan), "count")], "puller", "from node")
    about = "How often a node (row) pulled from another (column) over the whole run."
    sections = [Section("pulls", "Pulls between nodes", GROUP, about, figure=pairs, notes=blocks.notes)]
    if not records.has_clusters:
        return sections
    rounds, share = found
    sizes = np.bincount(records.node_cluster)
    others = max(1, records.num_nodes - 1)
    marks = [Mark(f"uniform draws, cluster {c}", (size - 1) / others, c) for c, size in enumerate(sizes)]
    figure = Lines([Axis("round", rounds)], "share", cluster_series(records, share.T), "percent", marks, from_zero=True)
    about = "Share of a cluster's pulls that went to its own nodes; dotted: the share of uniform draws."
    return [*sections, Section("pulls-inside", "Pulls within the cluster", GROUP, about, figure=figure)]


def similarity_sections(records: Records) -> list[Section]:
    """Similarities of chosen nodes to others: per cluster of the peer mean and range."""
    found = []
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
                series.append(
                    Series(
                        f"{records.cluster_label(int(cluster))}{suffix}",
                        mean,
                        int(cluster),
                        low,
                        high,
                        dash=int(cluster),
                    )
                )
            figure = Lines([Axis("round", grid)], "similarity", series)
            about = "Mean over the peers of each cluster, and the range from the least to the most similar one."
            found.append(Section(f"{key}-{node}", f"{title} {node}", GROUP, about, figure=figure))
    return found


def merges(records: Records) -> list[Section]:
    """Validation accuracy, or what else is measured at merges, before and after them."""
    found = merge_quality(records)
    if found is None:
        return []
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
    return [Section("merges", title, GROUP, about, figure=figure)]


def graphs(records: Records) -> list[Section]:
    """A learned collaboration graph over rounds."""
    found = read_graphs(records.directory, records.num_nodes) if records.learns_graph else None
    if found is None:
        return []
    blocks = blocks_of(records.node_cluster)
    size = np.array([len(block) for block in blocks.nodes])
    frames = []
    for completed, weights in zip(found.round, found.weights, strict=True):
        mean = blocks.pairs(weights) / size[:, None]
        frames.append(Frame(str(completed), np.where(mean > 0, mean, np.nan)))
    axis = Axis("round", found.round)
    edges = Lines([axis], "edges", [Series("edges", found.edges(), 0)], "count", from_zero=True)
    inside = metrics.over_clusters(found.inside(records.node_cluster), records.node_cluster)
    within = Lines([axis], "share of weight", cluster_series(records, inside.T), "percent")
    about = "Weight with which a node (row) learns from another (column)."
    weights = blocks.pair_heat(frames, "", "learns from", frame_title="round", choose="slider")
    about_inside = "Mean share of a node's weights that stay in its cluster, including its weight on itself."
    sections = [
        Section("graph", "Learned collaboration graph", GROUP, about, figure=weights, notes=blocks.notes),
        Section("graph-edges", "Edges of the learned graph", GROUP, "Directed, of positive weight.", figure=edges),
        Section("graph-inside", "Weight within the cluster", GROUP, about_inside, figure=within),
    ]
    return sections if records.has_clusters else sections[:2]


def samples(records: Records) -> list[Section]:
    """Training samples of each node by class."""
    counts = read_samples(records.directory)
    if counts is None:
        return []
    blocks = blocks_of(records.node_cluster)
    sums = blocks.sums(counts.T.astype(float)).T
    columns = ["all"] if counts.shape[1] == 1 else [str(label) for label in range(counts.shape[1])]
    frame = Frame("training samples", np.where(sums > 0, sums, np.nan), "count")
    figure, about = blocks.heat([frame], columns, "class"), "How many of each class."
    return [Section("samples", "Training samples", "Data", about, figure=figure, notes=blocks.notes)]
