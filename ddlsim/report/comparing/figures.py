"""One figure of several runs: a line per setting, costs to the target, or the effect of a setting on quality."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.comparing.curves import Drawn, check_alike, notes
from ddlsim.report.comparing.groups import Group, group, settings_of
from ddlsim.report.comparing.rows import compared
from ddlsim.report.comparing.sections import chart, costs_to_target
from ddlsim.report.figures import draw, need_matplotlib, save_drawing, written_below
from ddlsim.report.records import Records
from ddlsim.report.section import Axis, Figure, Lines, Series
from ddlsim.tasks import metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FigureName = Literal["lines", "sweep", "costs"]
Panels = list[tuple[str, Figure]]


def save_comparison(
    runs: Sequence[Records],
    path: str | Path,
    figure: FigureName = "lines",
    over: str = "algorithm.tau",
    drawn: Drawn | None = None,
) -> list[str]:
    """Write the figure; the file's ending (png, pdf, svg) names its format.

    Args:
        runs: their records.
        path: the file.
        figure: lines; sweep; costs: bars of the cost to the target.
        over: of a sweep, the scenario's dotted key.
        drawn: contents of the lines.
    Returns:
        Notes on the lines.
    Raises:
        DataMissing: if matplotlib is not installed.
        ScenarioError: if the runs have different metrics or lack the records for the figure, or the ending is unknown.
    """
    need_matplotlib()
    path, drawn = Path(path), drawn or Drawn()
    if path.suffix not in (".png", ".pdf", ".svg"):
        found = path.suffix or "no ending"
        raise ScenarioError(f"{path}: expected a file ending in .png, .pdf or .svg, got {found!r}.")
    remarks: list[str] = []
    if figure == "costs":
        bars = list(costs_to_target(compared(runs, drawn.group_by, drawn.target)))
        if not bars:
            raise ScenarioError("--figure costs: no run reached a target. Give one with --at.")
        drawing = draw([(section.title, section.figure) for section in bars if section.figure is not None])
    elif figure == "sweep":
        drawing = draw(sweep_panels(runs, over))
    else:
        drawing, remarks = lines_figure(runs, drawn), notes(runs, drawn.group_by, drawn.y)
    with written_below(path.parent, "--plot"):
        save_drawing(drawing, path)
    return remarks


def lines_figure(runs: Sequence[Records], drawn: Drawn) -> "Drawing":
    """Draw one line per setting, as the comparison's page does.

    Raises:
        DataMissing: if matplotlib is not installed. ScenarioError: if the runs do not share a metric, or have no such
            values.
    """
    check_alike(runs)
    section = chart(group(runs, drawn.group_by), drawn.y or runs[0].metric, drawn)
    assert isinstance(section.figure, Lines)
    return draw([("", replace(section.figure, x=section.figure.x[:1]))])


def sweep_panels(runs: Sequence[Records], key: str) -> Panels:
    """Return the effect of a setting: quality after the last evaluation over the setting's values, and if every run
    recorded validation losses, the mean over nodes of its lowest.

    Runs that differ in another key make separate lines; seeds are averaged, with their standard deviation. Values that
    are not numbers (topology.name) are in alphabetical order.

    Args:
        runs: at least two values of the setting.
        key: dotted key of the scenario, algorithm.tau.
    Raises:
        ScenarioError: if a run lacks the key, its value is a list or nothing, or the runs do not share a metric.
    """
    check_alike(runs)
    names = _names([(records, settings_of(records.scenario).get(key)) for records in runs], key)
    groups = sorted(group(runs, apart=key), key=lambda each: each.label)
    metric = runs[0].judged_by
    panels: Panels = []
    for words, unit, outcome in ((metric.words, metric.unit, _quality), ("lowest validation loss", "number", _loss)):
        series = []
        for number, each in enumerate(groups):
            offset = 0.6 * ((number + 0.5) / len(groups) - 0.5) if names else 0.0  # no mark covers another
            series.append(_effect(each, key, names, outcome, number, offset))
        values = np.concatenate([one.values for one in series])
        positive = all((one.x[0] > 0).all() for one in series if one.x is not None)
        axis = Axis(key, np.empty(0), "number", names, log=positive and not names)
        log = metric.falling and bool((values[np.isfinite(values)] > 0).all())
        if not np.isnan(values).any():
            panels.append((words, Lines([axis], words, series, unit, style="points" if names else "line", log=log)))
    return panels


def _names(values: Sequence[tuple[Records, Any]], key: str) -> list[str]:
    """The values as texts in order; empty if all are numbers."""
    for records, value in values:
        if not isinstance(value, bool | int | float | str):
            raise ScenarioError(f"{records.directory}: {key}: expected a number or a name to draw over, got {value!r}.")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for _, value in values)
    return [] if numbers else sorted({str(value) for _, value in values})


def _effect(runs: Group, key: str, names: list[str], outcome: Any, number: int, offset: float) -> Series:
    """Return a line over the values of a setting: mean and population standard deviation over runs."""
    found: dict[float, list[float]] = {}
    for records in runs.runs:
        value = settings_of(records.scenario)[key]
        found.setdefault(names.index(str(value)) if names else float(value), []).append(outcome(records))
    places = sorted(found)
    mean = np.array([np.mean(found[place]) for place in places])
    with np.errstate(invalid="ignore"):  # infinite ones, of runs that have diverged
        spread = np.array([np.std(found[place]) for place in places])
    x = [np.array(places, dtype=float) + offset]
    return Series(runs.label, mean, number, mean - spread, mean + spread, dash=number, x=x)


def _quality(records: Records) -> float:
    """Quality after the last evaluation, over all honest nodes."""
    if not len(records.evaluations):
        raise ScenarioError(f"{records.directory}: has no evaluation (yet).")
    return float(metrics.over_nodes(records.evaluations.quality[-1]))


def _loss(records: Records) -> float:
    """Mean over honest nodes of their lowest validation loss: nan where none was recorded, infinite with a node whose
    losses were no numbers.
    """
    rows = records.rows.get("validation_loss")
    if rows is None:
        return np.nan
    losses = np.where(np.isnan(rows.value), np.inf, rows.value)
    honest = [node for node in np.unique(rows.node) if not records.attacked[node]]
    return float(np.mean([losses[rows.node == node].min() for node in honest])) if honest else np.nan
