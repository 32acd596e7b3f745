"""A learned collaboration graph: read from the rows `collaboration` (a node's row of weights), measured and drawn."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddlsim.report.frame import COLORS
from ddlsim.report.json_lines import damage_of, json_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ddlsim.report.records import Records

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
