"""Figures of several runs in addition to side_by_side.py's: effects of merges in each, and of a setting on quality.

All come from records alone: `accuracy_before_merge` and `accuracy_after_merge` (algorithm.record_merges), evaluations,
and `validation_loss` if the best model is evaluated.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.comparing.curves import check_alike
from ddlsim.report.comparing.groups import Group, group, settings_of
from ddlsim.report.figures import (
    COLORS,
    DASHES,
    measured_at_merges,
    merge_quality,
    need_matplotlib,
    quality_scale,
    styles,
)
from ddlsim.report.records import Records
from ddlsim.tasks import metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 4


def title_of(records: Records) -> str:
    """A run's directory; of a matrix, where that is only a seed, its cell as well."""
    directory = records.directory.resolve()
    name = directory.name
    return f"{directory.parent.name}, {name.replace('-', ' ')}" if name.startswith("seed-") else name


def merge_panels(runs: Sequence[Records]) -> "Figure":
    """Draw a panel per run: mean validation accuracy of a cluster before (thin) and after (thick) each merge, over
    rounds.

    It shows the cluster with deluded nodes (algorithm.deluded_cluster), with a dotted line where they begin, or every
    cluster if the algorithm has no deluded nodes.

    Raises:
        ScenarioError: if a run did not record its merges.
    """
    need_matplotlib()
    from matplotlib.figure import Figure

    columns = min(COLUMNS, len(runs))
    lines = -(-len(runs) // columns)
    figure = Figure(figsize=(2.9 * columns + 0.6, 2.9 * lines + 0.3), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat
    for axes, records in zip(panels, runs, strict=False):
        found, name = merge_quality(records), measured_at_merges(records).name
        if found is None:
            raise ScenarioError(
                f"{records.directory}: its merges were not recorded (expected {name}_before_merge and "
                f"{name}_after_merge). Run it with --set algorithm.record_merges=true."
            )
        _draw_merges(axes, records, *found)
        axes.set_title(title_of(records), fontsize=10)
        axes.set_xlabel("round")
    for axes in list(panels)[len(runs) :]:
        axes.set_axis_off()
    first = figure.axes[0]
    first.set_ylabel(f"validation {measured_at_merges(runs[0]).axis}")
    first.legend(fontsize=8)
    return figure


def _draw_merges(axes, records: Records, rounds: np.ndarray, quality: np.ndarray) -> None:
    algorithm = records.scenario["algorithm"]
    clusters = [algorithm["deluded_cluster"]] if "deluded_cluster" in algorithm else range(quality.shape[1])
    for cluster in clusters:
        color = COLORS[cluster % len(COLORS)]
        for after, width in ((0, 0.7), (1, 1.6)):
            label = f"{records.cluster_label(cluster)}, {('before', 'after')[after]} merging"
            values = measured_at_merges(records).scale * quality[:, cluster, after]
            axes.plot(rounds, values, color=color, linewidth=width, label=label)
    if algorithm.get("deluded"):
        axes.axvline(algorithm["delusion_start"] + 0.5, color="black", linestyle=":", linewidth=0.8)
    axes.grid(alpha=0.3)


def sweep_figure(runs: Sequence[Records], key: str) -> "Figure":
    """Draw the effect of a setting: quality after the last evaluation over the setting's values, and if every node's
    validation loss is recorded, the mean over nodes of its lowest. Runs that differ in another key make separate lines;
    seeds are averaged, with their standard deviation.

    Values that are not numbers (topology.name) are in alphabetical order.

    Args:
        runs: at least two values of the setting.
        key: dotted key of the scenario, algorithm.tau.
    Raises:
        ScenarioError: if a run lacks the key, its value is a list or nothing, or the runs do not share a metric.
    """
    need_matplotlib()
    from matplotlib.figure import Figure

    check_alike(runs)
    settings = [settings_of(records.scenario) for records in runs]
    categories = _categories(runs, [own.get(key) for own in settings], key)
    groups = sorted(group(runs, apart=key), key=lambda own: own.label)
    lines = [_outcomes(own, key, categories) for own in groups]
    both = not any(np.isnan(loss) for line in lines for found in line.values() for _, loss in found)
    figure = Figure(figsize=(9 if both else 5.5, 3.6), layout="constrained")
    panels = figure.subplots(1, 2 if both else 1, squeeze=False)[0]
    metric = runs[0].judged_by
    colors = [style["color"] for style in styles(len(lines))]
    for index, axes in enumerate(panels):
        for number, found in enumerate(lines):
            values = sorted(found)
            beside = 0.6 * ((number + 0.5) / len(lines) - 0.5) if categories else 0.0  # none hides another
            columns = [np.array([outcome[index] for outcome in found[value]]) for value in values]
            scale = 1 if index else metric.scale
            with np.errstate(invalid="ignore"):  # infinite ones, of runs that have diverged
                spreads = [scale * column.std() for column in columns]
            axes.errorbar(
                [value + beside for value in values],
                [scale * column.mean() for column in columns],
                spreads,
                label=groups[number].label,
                marker="o",
                markersize=4,
                capsize=2,
                color=colors[number],
                linestyle="none" if categories else DASHES[number % len(DASHES)],
            )
        positive = not categories and all(value > 0 for line in lines for value in line)
        axes.set(xlabel=key, xscale="log" if positive else "linear")
        shown = np.array([outcome[index] for line in lines for found in line.values() for outcome in found])
        axes.set_yscale(quality_scale(metric, shown))
        if categories:
            axes.set_xticks(range(len(categories)), categories)
            axes.set_xlim(-0.5, len(categories) - 0.5)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(metric.axis)
    if both:
        panels[1].set_ylabel("lowest validation loss")
    if len(lines) > 1:
        longest = max(len(own.label) for own in groups)
        columns = max(1, int(figure.get_figwidth() / (0.6 + 0.068 * longest)))
        figure.set_figheight(3.6 + 0.19 * -(-len(groups) // columns))
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)
    return figure


def _categories(runs: Sequence[Records], values: Sequence[Any], key: str) -> list[str]:
    """The values as texts in order; empty if all are numbers."""
    for records, value in zip(runs, values, strict=True):
        if not isinstance(value, bool | int | float | str):
            raise ScenarioError(f"{records.directory}: {key}: expected a number or a name to draw over, got {value!r}.")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return [] if numbers else sorted(set(map(str, values)))


def _outcomes(own: Group, key: str, categories: list[str]) -> dict[float, list[tuple[float, float]]]:
    """Place of a value along the axis -> the outcomes of its runs."""
    found: dict[float, list[tuple[float, float]]] = {}
    for records in own.runs:
        value = settings_of(records.scenario)[key]
        place = categories.index(str(value)) if categories else float(value)
        found.setdefault(place, []).append(_outcome(records))
    return found


def _outcome(records: Records) -> tuple[float, float]:
    """Quality after the last evaluation, and the mean over nodes of their lowest validation loss, both over all honest
    nodes; the loss is nan where none was recorded, infinite with a node whose losses were no numbers."""
    rows = records.rows.get("validation_loss")
    loss = np.nan
    if rows is not None:
        losses = np.where(np.isnan(rows.value), np.inf, rows.value)
        honest = [node for node in np.unique(rows.node) if not records.attacked[node]]
        loss = np.mean([losses[rows.node == node].min() for node in honest]) if honest else np.nan
    if not len(records.evaluations):
        raise ScenarioError(f"{records.directory}: has no evaluation (yet).")
    return float(metrics.over_nodes(records.evaluations.quality[-1])), float(loss)
