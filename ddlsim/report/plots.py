"""Figures of one run: accuracy per cluster, traffic by pair and content, samples per node, heads.

Needs matplotlib, the optional extra `plot`.

The distribution of samples over nodes and classes is read from samples.jsonl (see runs/directory.py).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ddlsim.report.comparing.curves import Axis, axis_of
from ddlsim.report.figures import (
    COLORS,
    DASHES,
    contact_figures,
    matrices_figure,
    need_matplotlib,
    network_figure,
    new_figure,
    quality_scale,
    read_graphs,
    sparsity_figure,
    written_below,
)
from ddlsim.report.json_lines import damage_of, json_lines
from ddlsim.report.payload_table import contents_figure, read_contents
from ddlsim.report.reading import read
from ddlsim.report.records import Records
from ddlsim.tasks import metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def class_counts(directory: Path) -> np.ndarray | None:
    """Training samples per node and class, int [N, C]; of a regression [N, 1]; None if it was not recorded."""
    path = directory / "samples.jsonl"
    rows = list(json_lines(path, {"train": int})) if path.is_file() else []
    with damage_of(path):
        return np.array([row.get("classes", [row["train"]]) for row in rows], dtype=int) if rows else None


def distribution_figure(records: "Records", counts: np.ndarray) -> "Figure":
    """Heat map of the training samples, nodes ordered by cluster; white if a node has no sample of a class."""
    order = np.argsort(records.node_cluster, kind="stable")
    figure, axes = new_figure(records)
    image = axes.imshow(
        np.ma.masked_equal(counts[order], 0), cmap="viridis", aspect="auto", interpolation="nearest", vmin=0
    )
    figure.colorbar(image, label="training samples")
    for border in np.flatnonzero(np.diff(records.node_cluster[order])) + 0.5:
        axes.axhline(border, color="black", linewidth=1)
    if counts.shape[1] == 1:
        axes.set_xticks([0], ["all"])
    elif counts.shape[1] <= 20:
        axes.set_xticks(range(counts.shape[1]))
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="class", ylabel="node (ordered by cluster)")
    return figure


def save_plots(run_dir: str | Path, out_dir: str | Path, format: Literal["png", "pdf", "svg"] = "png") -> list[Path]:
    """Every figure that the run's records allow, one file each.

    Args:
        run_dir: a run directory.
        out_dir: folder for the files, made if it is not there.
        format: file type.
    Returns:
        The files written.
    Raises:
        DataMissing: if matplotlib is not installed.
        ScenarioError: if the directory is no run.
    """
    matplotlib = need_matplotlib()
    records = read(run_dir)
    figures = {}
    if len(records.evaluations):
        axes: tuple[Axis, ...] = ("rounds", "time", "bytes")
        axes = axes if records.evaluations.joules is None else (*axes, "joules")
        figures |= {f"{records.metric}_{axis}": quality_figure(records, axis) for axis in axes}
        figures["spread"] = spread_figure(records)
    graphs = read_graphs(records.directory, records.num_nodes)
    if graphs is not None:
        figures |= {
            "graph_matrices": matrices_figure(records, graphs),
            "graph": network_figure(records, graphs),
            "graph_sparsity": sparsity_figure(records, graphs),
        }
    if records.communication is not None and records.communication.by_pair:
        figures["communication"] = communication_figure(records)
    counts, contents = class_counts(records.directory), read_contents(records.directory)
    if counts is not None:
        figures["samples"] = distribution_figure(records, counts)
    if contents is not None:
        figures["contents"] = contents_figure(records, *contents)
    figures |= contact_figures(records)
    if records.heads() is not None:
        figures["heads"] = heads_figure(records)
    out_dir = Path(out_dir)
    paths = []
    with written_below(out_dir, "--plots"), matplotlib.rc_context({"pdf.fonttype": 42}):  # text in a PDF stays text
        for name, figure in figures.items():
            paths.append(out_dir / f"{name}.{format}")
            figure.savefig(paths[-1], dpi=150)
    return paths


def quality_figure(records: Records, axis: Axis = "rounds") -> "Figure":
    """Draw the judging metric (shares in percent) per cluster and over all nodes, over rounds, simulated time or bytes
    of all nodes.
    """
    evaluations = records.curve
    costs = {"rounds": evaluations.round, "time": evaluations.time_s, "bytes": evaluations.bytes_sent}
    x = costs.get(axis, evaluations.joules)
    label, unit = axis_of(axis, [x])
    x = x / unit
    figure, axes = new_figure(records)
    sizes = np.bincount(records.node_cluster)
    metric = records.judged_by
    of_clusters = metrics.over_clusters(evaluations.quality, records.node_cluster).T if records.has_clusters else ()
    for cluster, curve in enumerate(of_clusters):
        color, dash = COLORS[cluster % len(COLORS)], DASHES[cluster % len(DASHES)]
        name = f"cluster {cluster} ({sizes[cluster]} nodes)"
        axes.plot(x, metric.scale * curve, dash, color=color, label=name, marker="o", markersize=3)
    everyone = metrics.over_nodes(evaluations.quality)
    axes.plot(
        x, metric.scale * everyone, color="0.5", linewidth=1, label=records.judged_nodes, marker="o", markersize=2
    )
    axes.set_xlabel(label)
    axes.set_ylabel(metric.axis)
    axes.set_yscale(quality_scale(metric, evaluations.quality))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def spread_figure(records: Records) -> "Figure":
    """Draw the judging metric of every node over rounds, thin, and each cluster's mean with one population standard
    deviation over its nodes.
    """
    evaluations = records.curve
    metric = records.judged_by
    figure, axes = new_figure(records)
    for cluster in range(records.node_cluster.max() + 1):
        values = metric.scale * evaluations.quality[:, records.node_cluster == cluster]
        if np.isnan(values).all():
            continue
        color, dash = COLORS[cluster % len(COLORS)], DASHES[cluster % len(DASHES)]
        axes.plot(evaluations.round, values, color=color, linewidth=0.4, alpha=0.4)
        known = ~np.isnan(values).all(1)
        label = f"cluster {cluster}" if records.has_clusters else records.judged_nodes
        with np.errstate(invalid="ignore"):  # infinite ones, of nodes that have diverged
            mean, std = np.nanmean(values[known], axis=1), np.nanstd(values[known], axis=1)
        axes.plot(evaluations.round[known], mean, dash, color=color, label=label, linewidth=1.8)
        axes.fill_between(evaluations.round[known], mean - std, mean + std, color=color, alpha=0.15, linewidth=0)
    axes.set(xlabel="rounds", ylabel=metric.axis, yscale=quality_scale(metric, evaluations.quality))
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def communication_figure(records: Records) -> "Figure":
    """Heat map of the bytes sent from node to node, nodes ordered by cluster."""
    groups = list(records.group_of.values())
    order = np.concatenate(groups)
    matrix = records.traffic_matrix[np.ix_(order, order)]
    figure, axes = new_figure(records)
    image = axes.imshow(matrix / 1e6, cmap="viridis", interpolation="nearest")
    figure.colorbar(image, label="MB sent")
    for border in np.cumsum([len(group) for group in groups])[:-1] - 0.5:
        axes.axhline(border, color="white", linewidth=1)
        axes.axvline(border, color="white", linewidth=1)
    axes.set_xlabel("to node (ordered by cluster)")
    axes.set_ylabel("from node (ordered by cluster)")
    return figure


def heads_figure(records: Records) -> "Figure":
    """Head chosen by every node in every round, nodes ordered by cluster; white if a node chose none."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    rounds, heads = records.head_rounds()
    order = np.argsort(records.node_cluster, kind="stable")
    shown = np.ma.masked_less(heads[:, order].T, 0)
    num_heads = heads.max() + 1
    colors = ListedColormap([COLORS[head % len(COLORS)] for head in range(num_heads)])
    figure, axes = new_figure(records)
    norm = BoundaryNorm(np.arange(num_heads + 1) - 0.5, num_heads)
    edges = np.append(rounds - 0.5, rounds[-1] + 0.5)
    image = axes.pcolormesh(edges, np.arange(records.num_nodes + 1) - 0.5, shown, cmap=colors, norm=norm)
    figure.colorbar(image, label="head", ticks=range(num_heads))
    for border in np.flatnonzero(np.diff(records.node_cluster[order])) + 0.5:
        axes.axhline(border, color="white", linewidth=1)
    axes.set_xlabel("round")
    axes.set_ylabel("node (ordered by cluster)")
    return figure
