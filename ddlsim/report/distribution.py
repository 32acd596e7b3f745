"""How samples lie over nodes and classes, from samples.jsonl (see runs/directory.py)."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ddlsim.report.frame import new_figure
from ddlsim.report.json_lines import damage_of, json_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ddlsim.report.records import Records


def class_counts(directory: Path) -> np.ndarray | None:
    """Training samples per node and class, int [N, C]; of a regression [N, 1]; None if it was not recorded."""
    path = directory / "samples.jsonl"
    rows = list(json_lines(path, {"train": int})) if path.is_file() else []
    with damage_of(path):
        return np.array([row.get("classes", [row["train"]]) for row in rows], dtype=int) if rows else None


def distribution_figure(records: "Records", counts: np.ndarray) -> "Figure":
    """Heat map of the training samples, nodes ordered by cluster; white where a node has none of a class."""
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
