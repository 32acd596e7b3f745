"""One figure of several runs: quality of the best and worst cluster over simulated time, and the bytes by cause.

Needs matplotlib, the optional extra `plot`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ddlsim import metrics
from ddlsim.errors import ScenarioError
from ddlsim.report.frame import written_below
from ddlsim.report.panels import fair_figure, merge_panels, sweep_figure
from ddlsim.report.plots import COLORS, need_matplotlib
from ddlsim.report.records import Records, find_runs, read
from ddlsim.report.summary import summary_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FigureName = Literal["quality", "merges", "sweep", "fair"]

CAUSES = (("payload", ""), ("header", "//"), ("wasted", "xx"), ("in_flight", ".."))
"""What became of the bytes sent, one beside the other, with the hatch of its bar."""


def save_comparison(
    run_dirs: Iterable[str | Path], path: str | Path, figure: FigureName = "quality", over: str = "algorithm.tau"
) -> None:
    """Writes the figure; the file's ending (png, pdf, svg) names its format.

    Args:
        run_dirs: run directories, or folders with runs below them.
        path: the file.
        figure: quality and bytes (here), or merges, sweep or fair (panels.py).
        over: of a sweep, the scenario's dotted key.
    Raises:
        DataMissing: if matplotlib is not installed.
        ScenarioError: if a path is no run and holds none, the runs are not measured alike or did not record what is to
            be drawn, or the ending is unknown.
    """
    matplotlib = need_matplotlib()
    path = Path(path)
    if path.suffix not in (".png", ".pdf", ".svg"):
        found = path.suffix or "no ending"
        raise ScenarioError(f"{path}: expected a file ending in .png, .pdf or .svg, got {found!r}.")
    runs = [read(run) for run in find_runs(run_dirs)]
    drawn = sweep_figure(runs, over) if figure == "sweep" else _FIGURES[figure](runs)
    settings = {"pdf.fonttype": 42, "svg.hashsalt": "ddlsim"}  # the same runs give the same file
    with written_below(path.parent, "--plot"), matplotlib.rc_context(settings):
        drawn.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def comparison_figure(runs: Sequence[Records]) -> "Figure":
    """Left: what the nodes are judged by (accuracy in percent, say), of each run's largest cluster (solid) and its
    worst other cluster (dashed) over simulated time. Right: bytes of all nodes by cause. A run is named by its
    directory.
    """
    need_matplotlib()
    from matplotlib.figure import Figure

    kinds = {records.metric for records in runs}
    if len(kinds) > 1:
        raise ScenarioError(f"compare: runs measured by {' and '.join(sorted(kinds))} do not share an axis.")
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(2, 1))
    longest_s = max((records.evaluations.time_s[-1] for records in runs if len(records.evaluations)), default=0.0)
    unit, unit_s = ("h", 3600) if longest_s >= 7200 else ("min", 60)
    for index, records in enumerate(runs):
        color = COLORS[index % len(COLORS)]
        _draw_curves(left, records, color, unit_s)
        _draw_bytes(right, index, summary_of(records)["bytes"], color)
    left.set_xlabel(f"simulated time ({unit})")
    left.set_ylabel(f"{runs[0].judged_by.axis}, dashed: worst cluster")
    left.grid(alpha=0.3)
    if left.get_legend_handles_labels()[0]:  # network-only runs have no curves
        left.legend(fontsize=8)
    right.set_yticks(range(len(runs)), [records.directory.name for records in runs])
    right.invert_yaxis()
    right.set_xlim(0, 1.04 * max(bar.get_x() + bar.get_width() for bar in right.patches) if right.patches else 1)
    right.set_xlabel("GB sent by all nodes (crossed: wasted)")
    return figure


_FIGURES = {"quality": comparison_figure, "merges": merge_panels, "fair": fair_figure}


def _draw_curves(axes, records: Records, color: str, unit_s: float) -> None:
    evaluations = records.evaluations
    if not len(evaluations):
        return
    metric = records.judged_by
    curves = metric.scale * metrics.over_clusters(evaluations.quality, records.node_cluster)
    last = [curve if metric.higher_is_better else -curve for curve in curves[-1]]
    sizes = [int((records.node_cluster == cluster).sum()) for cluster in range(curves.shape[1])]
    largest = max(range(len(sizes)), key=lambda cluster: (sizes[cluster], -cluster))
    times = evaluations.time_s / unit_s
    axes.plot(times, curves[:, largest], "-", color=color, label=records.directory.name)
    others = [cluster for cluster in range(len(sizes)) if cluster != largest]
    if others:
        axes.plot(times, curves[:, min(others, key=lambda cluster: last[cluster])], "--", color=color)


def _draw_bytes(axes, row: int, traffic: dict, color: str) -> None:
    left = 0.0
    for cause, hatch in CAUSES:
        width = (traffic[cause] or 0) / 1e9
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
