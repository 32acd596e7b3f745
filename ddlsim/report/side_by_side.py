"""One figure of several runs: quality of the best and worst cluster over simulated time, and the bytes by cause.

Needs matplotlib, the optional extra `plot`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.comparing.curves import Drawn, axis_of, check_alike, lines_figure, notes
from ddlsim.report.figures import need_matplotlib, styles, written_below
from ddlsim.report.panels import merge_panels, sweep_figure, title_of
from ddlsim.report.reading import find_runs, read
from ddlsim.report.records import Records
from ddlsim.report.summary import summary_of
from ddlsim.tasks import metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FigureName = Literal["lines", "quality", "merges", "sweep", "fair"]

CAUSES = (("payload", ""), ("header", "//"), ("wasted", "xx"), ("in_flight", ".."))
"""Causes of bytes sent, in order, with the hatch of each bar."""


def save_comparison(
    run_dirs: Iterable[str | Path],
    path: str | Path,
    figure: FigureName = "lines",
    over: str = "algorithm.tau",
    drawn: Drawn | None = None,
) -> list[str]:
    """Write the figure; the file's ending (png, pdf, svg) names its format.

    Args:
        run_dirs: run directories, or folders with runs below them.
        path: the file.
        figure: lines (comparing/lines.py); quality and bytes (here); merges or sweep (panels.py); or fair: lines of
            fair accuracy over rounds.
        over: of a sweep, the scenario's dotted key.
        drawn: contents of the lines.
    Returns:
        Notes on the lines.
    Raises:
        DataMissing: if matplotlib is not installed.
        ScenarioError: if a path is not a run and holds none, the runs have different metrics or lack the records for
            the figure, or the ending is unknown.
    """
    matplotlib = need_matplotlib()
    path = Path(path)
    if path.suffix not in (".png", ".pdf", ".svg"):
        found = path.suffix or "no ending"
        raise ScenarioError(f"{path}: expected a file ending in .png, .pdf or .svg, got {found!r}.")
    runs = [read(run) for run in find_runs(run_dirs)]
    drawn = drawn or Drawn()
    if figure == "fair":
        drawn = Drawn("rounds", "fair_accuracy", drawn.group_by, drawn.band)
    said: list[str] = []
    if figure in ("lines", "fair"):
        made = lines_figure(runs, drawn.x, drawn.y, drawn.group_by, drawn.band, drawn.at)
        said = notes(runs, drawn.group_by, drawn.y)
    elif figure == "sweep":
        made = sweep_figure(runs, over)
    else:
        made = merge_panels(runs) if figure == "merges" else comparison_figure(runs)
    settings = {"pdf.fonttype": 42, "svg.hashsalt": "ddlsim"}  # the same runs give the same file
    with written_below(path.parent, "--plot"), matplotlib.rc_context(settings):
        made.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return said


def comparison_figure(runs: Sequence[Records]) -> "Figure":
    """Left: the judging metric (accuracy in percent, say), of each run's largest cluster (solid) and its worst other
    cluster (dashed) over simulated time. Right: bytes of all nodes by cause. A run is named by its directory.
    """
    need_matplotlib()
    from matplotlib.figure import Figure

    check_alike(runs)
    figure = Figure(figsize=(9, 3.4 + 0.2 * len(runs)), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    x_title, unit_s = axis_of("time", [records.curve.time_s for records in runs])
    traffic = [summary_of(records)["bytes"] for records in runs]
    totals = [np.array([_total(sent)], dtype=float) for sent in traffic]
    bytes_title, unit_bytes = axis_of("bytes", totals)
    for index, (records, style) in enumerate(zip(runs, styles(len(runs)), strict=True)):
        _draw_curves(left, records, style, unit_s)
        _draw_bytes(right, index, traffic[index], style["color"], unit_bytes)
    left.set_xlabel(x_title)
    left.set_ylabel(f"{runs[0].judged_by.axis}, largest cluster\n(dashed: worst other at the end)")
    left.grid(alpha=0.3)
    if left.get_legend_handles_labels()[0]:  # network-only runs have no curves
        figure.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    right.set_yticks(range(len(runs)), [title_of(records) for records in runs])
    right.invert_yaxis()
    right.set_xlim(0, 1.04 * max(float(total[0]) for total in totals) / unit_bytes or 1)
    pale = "; pale: under way" if any(sent[CAUSES[0][0]] is None for sent in traffic) else ""
    right.set_xlabel(f"{bytes_title}\n(crossed: wasted{pale})")
    return figure


def _draw_curves(axes, records: Records, style: dict, unit_s: float) -> None:
    evaluations = records.curve
    if not len(evaluations):
        return
    metric = records.judged_by
    curves = metric.scale * metrics.over_clusters(evaluations.quality, records.node_cluster)
    last = [curve if metric.higher_is_better else -curve for curve in curves[-1]]
    sizes = [int((records.node_cluster == cluster).sum()) for cluster in range(curves.shape[1])]
    known = [cluster for cluster in range(len(sizes)) if not np.isnan(last[cluster])]  # others attack, or are not there
    largest = max(known or range(len(sizes)), key=lambda cluster: (sizes[cluster], -cluster))
    times = evaluations.time_s / unit_s
    mark = {"color": style["color"], "marker": style["marker"], "markersize": 3}
    axes.plot(times, curves[:, largest], "-", label=title_of(records), **mark)
    others = [cluster for cluster in known if cluster != largest]
    if others:
        axes.plot(times, curves[:, min(others, key=lambda cluster: last[cluster])], "--", **mark)


def _total(traffic: dict) -> float:
    """Return the bytes that all nodes have sent; their causes are unknown for an unfinished run."""
    known = [traffic[cause] for cause, _ in CAUSES if traffic[cause] is not None]
    return float(sum(known) if known else traffic["total"])


def _draw_bytes(axes, row: int, traffic: dict, color: str, unit: float) -> None:
    left = 0.0
    if all(traffic[cause] is None for cause, _ in CAUSES):
        axes.barh(row, _total(traffic) / unit, color=color, alpha=0.4, edgecolor="black", linewidth=0.5)
        return
    for cause, hatch in CAUSES:
        width = (traffic[cause] or 0) / unit
        if width == 0:
            continue
        axes.barh(
            row,
            width,
            left=left,
            color=color if cause == "payload" else "none",
            edgecolor="black",
            hatch=hatch,
            linewidth=0.5,
        )
        left += width
