"""A figure that compares settings: a line each over rounds, simulated time or bytes, with a band over its seeds.

Needs matplotlib, the optional extra `plot`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.report.comparing.curves import Axis, Band, check_alike, curve_of, mean_curve, metric_of_measure
from ddlsim.report.comparing.groups import Group, group
from ddlsim.report.frame import shown_figure, styles
from ddlsim.report.records import Records
from ddlsim.report.text import unit_of_bytes, unit_of_joules, unit_of_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_INCHES, CHARACTER_INCHES = 6.4, 0.068


@dataclass(frozen=True)
class Drawn:
    """What lines show, on a page or in a figure.

    Args:
        x, y, group_by, band: see `lines_figure`.
        at: a value of y to be marked; None: none.
    """

    x: Axis = "time"
    y: str | None = None
    group_by: Sequence[str] | None = None
    band: Band = "std"
    at: float | None = None


def lines_figure(
    runs: Sequence[Records],
    x: Axis = "time",
    y: str | None = None,
    group_by: Sequence[str] | None = None,
    band: Band = "std",
    target: float | None = None,
) -> "Figure":
    """One line per setting: the mean over its seeds, a band around it and a mark at every evaluation.

    A line has the rounds that all of its runs have evaluated.

    Args:
        runs: all measured by the same metric.
        x: rounds, time (simulated), bytes or joules (of all nodes).
        y: a metric, or a view of it, see curves.py; None: what the nodes are judged by.
        group_by: dotted keys whose values make the lines; None: every key in which runs differ, but for the seed.
        band: std, ci (95 %) or none.
        target: a value of y to be marked by a line; None: none.
    Raises:
        DataMissing: if matplotlib is not installed. ScenarioError: if the runs do not share a metric, or have no such
            values.
    """
    check_alike(runs)
    groups = group(runs, group_by)
    curves = [mean_curve(own, x, y, band) for own in groups]
    labels = [legend(own) for own in groups]
    columns = max(1, int(WIDTH_INCHES / (0.6 + CHARACTER_INCHES * max(map(len, labels)))))
    lines = math.ceil(len(labels) / columns)
    figure, axes = shown_figure((WIDTH_INCHES, 3.8 + 0.19 * lines))
    judged_by = runs[0].judged_by
    shown = metric_of_measure(y or judged_by.name, runs[0])
    scale = shown.scale
    x_title, unit = axis_of(x, [curve.x for curve in curves])
    for curve, label, style in zip(curves, labels, styles(len(curves)), strict=True):
        axes.plot(curve.x / unit, scale * curve.y, label=label, markersize=3.5, linewidth=1.4, **style)
        if curve.spread.any():
            low, high = scale * (curve.y - curve.spread), scale * (curve.y + curve.spread)
            axes.fill_between(curve.x / unit, low, high, color=style["color"], alpha=0.18, linewidth=0)
    if target is not None:
        axes.axhline(scale * target, color="0.4", linewidth=0.9, linestyle=":")
    axes.set_xlabel(x_title)
    axes.locator_params(axis="x", integer=x == "rounds")
    view = "" if y in (None, shown.name) else f", {y}".replace("_", " ")
    axes.set_ylabel(f"{shown.words}{view}{' (%)' if shown.share else ''}")
    axes.grid(alpha=0.3)
    if not any(len(curve.y) for curve in curves):
        empty = "no evaluations" if y is None else f"no {y} in common".replace("_", " ")
        axes.text(0.5, 0.5, empty, transform=axes.transAxes, ha="center", color="0.4")
    figure.legend(loc="outside lower center", ncols=min(columns, len(labels)), fontsize=8, frameon=False)
    return figure


def axis_of(x: Axis, values: Sequence[np.ndarray]) -> tuple[str, float]:
    """The title of the x axis with its unit, and the unit's size, by the largest value of all lines."""
    largest = max((float(own.max()) for own in values if len(own)), default=0.0)
    if x == "bytes":
        unit, size = unit_of_bytes(largest)
        return f"sent by all nodes ({unit})", size
    if x == "joules":
        unit, size = unit_of_joules(largest)
        return f"spent by all nodes ({unit})", size
    if x == "time":
        unit, size = unit_of_seconds(largest)
        return f"simulated time ({unit})", size
    return "rounds", 1.0


def notes(runs: Sequence[Records], group_by: Sequence[str] | None = None, y: str | None = None) -> list[str]:
    """What a reader of the lines must know: settings that were averaged, and rounds that runs do not have.

    Args:
        runs, group_by, y: as of `lines_figure`.
    """
    found: list[str] = []
    for own in group(runs, group_by):
        if own.mixed:
            shown = ", ".join(own.mixed[:5]) + (", ..." if len(own.mixed) > 5 else "")
            found.append(f"{own.label}: averaged over runs that differ in {shown}")
        measured = [set(curve_of(records, "rounds", y).round.tolist()) for records in own.runs]
        where = _missing(measured, [records.curve.round.tolist() for records in own.runs])
        several = len(measured) > 1
        whose = f"all of its {len(measured)} runs have" if several else "its run has"
        what = "evaluated" if y is None else y.replace("_", " ")
        found += [f"{own.label}: {each} that {whose} {what}" for each in where]
    return found


def _missing(measured: Sequence[set[int]], evaluated: Sequence[list[int]]) -> list[str]:
    """Where a line of the rounds that all runs have begins and ends, if some have others."""
    common = set.intersection(*measured)
    if not common:
        return ["has no round"] if any(evaluated) else []
    late = min(common) > min(min(rounds) for rounds in evaluated if rounds)
    early = len({max(rounds) for rounds in measured}) > 1
    begins = [f"begins at round {min(common)}, the first"] * late
    return begins + [f"ends at round {max(common)}, the last"] * early


def legend(own: Group) -> str:
    """A group's label, with the number of its runs if there are several, and what is wrong with them."""
    words: list[Any] = [own.label]
    if len(own.runs) > 1:
        words.append(f"({len(own.runs)} seeds)" if len(set(own.seeds)) == len(own.runs) else f"({len(own.runs)} runs)")
    if any((records.manifest.get("data") or {}).get("fallback") for records in own.runs):
        words.append("FALLBACK DATA")
    return " ".join(words)
