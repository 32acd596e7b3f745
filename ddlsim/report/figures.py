"""Figures: palette, size and title of all of them; the learned collaboration graph; pulls between nodes.

The learned graph is read from the rows `collaboration` (a node's row of weights), measured and drawn.

Pulls between nodes are described by the share of contacts within the cluster, the measured similarities, and merges
that help or harm. Source of these measures: Listo Zec et al., FL-IJCAI 2022, and Hagander's thesis (except heat maps,
see plots.py). All of them come from rows that pulling algorithms record: `pulled_from`, and if a scenario requests them
`similarity_<node>` (algorithm.record_similarities), `true_similarity_<node>` (records.true_similarities),
`accuracy_before_merge` and `accuracy_after_merge` (algorithm.record_merges).
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation.errors import DataMissing, ScenarioError
from ddlsim.report.json_lines import damage_of, json_lines
from ddlsim.report.records import Records
from ddlsim.tasks import metrics
from ddlsim.tasks.base import Metric

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe and Ito's palette: distinct for color-blind readers; dashes distinguish the lines in print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")


MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def styles(count: int) -> list[dict[str, Any]]:
    """Return color, dashes and marker of `count` lines; no color repeats, and lines with similar colors differ in
    dashes.

    Up to seven have the palette above; more have colors of equal distance along matplotlib's `turbo`.
    """
    colors: Sequence[Any] = COLORS
    if count > len(COLORS):
        from matplotlib import colormaps

        colors = [tuple(map(float, color)) for color in colormaps["turbo"](np.linspace(0.04, 0.96, count))]
    return [
        {"color": colors[index], "linestyle": DASHES[index % len(DASHES)], "marker": MARKERS[index % len(MARKERS)]}
        for index in range(count)
    ]


def shown_figure(inches: tuple[float, float]) -> "tuple[Figure, Axes]":
    """An empty figure that a notebook shows by itself, whether pyplot is in use or not, and its axes.

    Raises:
        DataMissing: if matplotlib is not installed.
    """
    need_matplotlib()
    from matplotlib.figure import Figure

    class Shown(Figure):
        """A figure with the method by which notebooks show objects."""

        def _repr_png_(self) -> bytes:
            file = io.BytesIO()
            self.savefig(file, format="png", dpi=110)
            return file.getvalue()

    figure = Shown(figsize=inches, layout="constrained")
    return figure, figure.add_subplot()


def new_figure(records: "Records"):
    """An empty figure and its axes, with the run's title."""
    need_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    about = records.manifest
    data = about.get("data") or {}
    title = f"{about.get('scenario')}, {about.get('algorithm')}, seed {about.get('seed')}"
    axes.set_title(f"{title}, FALLBACK DATA {data.get('name')}" if data.get("fallback") else title, fontsize=10)
    return figure, axes


def quality_scale(metric: "Metric", values: np.ndarray) -> str:
    """The scale of an axis of these values: a metric's own, unless none of them can be drawn on it (all diverged)."""
    return metric.axis_scale if (np.isfinite(values) & (values > 0)).any() else "linear"


@contextmanager
def written_below(folder: Path, option: str) -> Iterator[None]:
    """Make a folder for figures; errors of writing name the option of the command line."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        where = error.filename or folder
        reason = error.strerror or error
        raise ScenarioError(f"{option}: expected to write to {where}, got: {reason}. Name another path.") from error


def need_matplotlib():
    """The package, or a DataMissing that names the extra to install."""
    try:
        import matplotlib
    except ImportError as error:
        raise DataMissing("Figures need matplotlib, which is not installed: pip install 'ddlsim[plot]'.") from error
    return matplotlib


SHOWN = 4
"""Rounds whose matrices are drawn."""


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
    for row in json_lines(path) if path.is_file() else ():
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


def matrices_figure(records: "Records", graphs: Graphs) -> "Figure":
    """The weights as matrices at some rounds, first to last; nodes ordered by cluster."""
    from matplotlib.figure import Figure

    order = np.argsort(records.node_cluster, kind="stable")
    chosen = np.unique(np.linspace(0, len(graphs.round) - 1, SHOWN).round().astype(int))
    figure = Figure(figsize=(3.2 * len(chosen) + 1, 3.6), layout="constrained")
    axes = figure.subplots(1, len(chosen), squeeze=False)[0]
    largest = graphs.weights[chosen].max()
    for index, one in zip(chosen, axes, strict=True):
        image = one.imshow(graphs.weights[index][np.ix_(order, order)], cmap="viridis", vmin=0, vmax=largest)
        one.set_title(f"round {graphs.round[index]}")
        one.set_xlabel("learns from")
        for axis in (one.xaxis, one.yaxis):
            axis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("node (ordered by cluster)")
    figure.colorbar(image, ax=list(axes), label="weight")
    return figure


def network_figure(records: "Records", graphs: Graphs) -> "Figure":
    """The last graph as a network: nodes in a circle by cluster, edges as thick as their weight, both ways added."""
    import networkx as nx
    from matplotlib.figure import Figure

    weights, order = graphs.weights[-1], np.argsort(records.node_cluster, kind="stable")
    graph = nx.Graph()
    graph.add_nodes_from(int(node) for node in order)
    both = weights + weights.T
    graph.add_edges_from((int(a), int(b)) for a, b in zip(*np.nonzero(np.triu(both, 1)), strict=True))
    figure = Figure(figsize=(6, 6), layout="constrained")
    axes = figure.subplots()
    colors = [COLORS[int(records.node_cluster[node]) % len(COLORS)] for node in graph]
    widths = [6 * both[a, b] / max(both[~np.eye(len(both), dtype=bool)].max(), 1e-9) for a, b in graph.edges]
    nx.draw_networkx(
        graph,
        nx.circular_layout(graph),
        ax=axes,
        node_color=colors,
        font_color="white",
        width=widths,
        edge_color="#888888",
    )
    axes.set_title(f"round {graphs.round[-1]}: {graphs.edges()[-1]} directed edges")
    axes.set_axis_off()
    return figure


def sparsity_figure(records: "Records", graphs: Graphs) -> "Figure":
    """Directed edges, and the share of weight that stays in clusters (mean, and least of any node), over rounds."""
    from matplotlib.figure import Figure

    inside = graphs.inside(records.node_cluster)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(graphs.round, graphs.edges(), color="#0072B2", label="directed edges")
    axes.set_xlabel("rounds")
    axes.set_ylabel("directed edges")
    axes.set_ylim(bottom=0)
    right = axes.twinx()
    right.plot(graphs.round, inside.mean(1), color="#D55E00", linestyle="--", label="weight inside the cluster, mean")
    right.plot(graphs.round, inside.min(1), color="#009E73", linestyle=":", label="least of any node")
    right.set_ylim(0, 1.05)
    right.set_ylabel("share of weight")
    figure.legend(loc="outside upper center", ncols=3, fontsize="small")
    return figure


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
    own = cluster[rows.node]
    pulls, within = (np.zeros((len(rounds), cluster.max() + 1)) for _ in range(2))
    np.add.at(pulls, (index, own), 1)
    np.add.at(within, (index, own), own == cluster[rows.value.astype(int)])
    with np.errstate(invalid="ignore"):
        return rounds, within / pulls


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
    return {
        node: tuple(np.array(column) for column in zip(*sorted(measured), strict=True))
        for node, measured in sorted(found.items())
    }


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
