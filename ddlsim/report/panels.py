"""Figures of several runs beyond side_by_side.py's: what merges did in each, what a setting does to quality, and fair
accuracy over rounds.

All come from records alone: `accuracy_before_merge` and `accuracy_after_merge` (algorithm.record_merges), evaluations,
and `validation_loss` where the best model is evaluated.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim import metrics
from ddlsim.errors import ScenarioError
from ddlsim.report.contacts import merge_accuracy
from ddlsim.report.frame import COLORS, DASHES, need_matplotlib
from ddlsim.report.records import Records

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 4


def title_of(records: Records) -> str:
    """A run's directory; of a matrix, where that is only a seed, its cell as well."""
    directory = records.directory.resolve()
    name = directory.name
    return f"{directory.parent.name}, {name.replace('-', ' ')}" if name.startswith("seed-") else name


def fair_figure(runs: Sequence[Records]) -> "Figure":
    """Fair accuracy in percent over rounds, a line per run, as in figures 10 to 12 of the FACADE paper.

    Raises:
        ScenarioError: if a run is not judged by accuracy, or has not been evaluated.
    """
    need_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    axes = figure.subplots()
    for index, records in enumerate(runs):
        if records.metric != "accuracy" or not len(records.evaluations):
            raise ScenarioError(
                f"{records.directory}: expected a run with accuracies, which it has none of (fair accuracy is defined "
                "for classifications that are judged by accuracy)."
            )
        fair_lambda = (records.scenario.get("evaluation") or {}).get("fair_lambda", metrics.FAIR_LAMBDA)
        per_cluster = metrics.over_clusters(records.evaluations.quality, records.node_cluster)
        axes.plot(
            records.evaluations.round,
            100 * metrics.fair_accuracy(per_cluster, fair_lambda),
            DASHES[index % len(DASHES)],
            color=COLORS[index % len(COLORS)],
            label=title_of(records),
        )
    axes.set(xlabel="rounds", ylabel="fair accuracy (%)")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def merge_panels(runs: Sequence[Records]) -> "Figure":
    """Per run a panel: mean validation accuracy of a cluster before (thin) and after (thick) each merge, over rounds.

    Drawn is the cluster that has deluded nodes (algorithm.deluded_cluster), with a dotted line where they begin; of an
    algorithm that knows none, every cluster.

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
        found = merge_accuracy(records)
        if found is None:
            raise ScenarioError(
                f"{records.directory}: its merges were not recorded (expected accuracy_before_merge and "
                "accuracy_after_merge). Run it with --set algorithm.record_merges=true."
            )
        _draw_merges(axes, records, *found)
        axes.set_title(title_of(records), fontsize=10)
        axes.set_xlabel("round")
    for axes in list(panels)[len(runs) :]:
        axes.set_axis_off()
    first = figure.axes[0]
    first.set_ylabel("validation accuracy (%)")
    first.legend(fontsize=8)
    return figure


def _draw_merges(axes, records: Records, rounds: np.ndarray, accuracy: np.ndarray) -> None:
    algorithm = records.scenario["algorithm"]
    clusters = [algorithm["deluded_cluster"]] if "deluded_cluster" in algorithm else range(accuracy.shape[1])
    for cluster in clusters:
        color = COLORS[cluster % len(COLORS)]
        for after, width in ((0, 0.7), (1, 1.6)):
            label = f"cluster {cluster}, {('before', 'after')[after]} merging"
            axes.plot(rounds, 100 * accuracy[:, cluster, after], color=color, linewidth=width, label=label)
    if algorithm.get("deluded"):
        axes.axvline(algorithm["delusion_start"] + 0.5, color="black", linestyle=":", linewidth=0.8)
    axes.grid(alpha=0.3)


def sweep_figure(runs: Sequence[Records], key: str) -> "Figure":
    """What a setting does: quality after the last evaluation over the setting's values, and where every node's
    validation loss is recorded, the mean over nodes of its lowest. Runs that differ in something else (the seed apart,
    which is averaged, with its standard deviation) make lines of their own.

    Values that are no numbers (topology.name) stand side by side in the order of the alphabet.

    Args:
        runs: at least two values of the setting.
        key: dotted key of the scenario, algorithm.tau.
    Raises:
        ScenarioError: if a run lacks the key, its value is a list or nothing, or the runs do not share a metric.
    """
    need_matplotlib()
    from matplotlib.figure import Figure

    kinds = {records.metric for records in runs}
    if len(kinds) > 1:
        raise ScenarioError(f"compare: runs measured by {' and '.join(sorted(kinds))} do not share an axis.")
    lines: dict[str, dict[float, list[tuple[float, float]]]] = {}
    settings = [_settings(records.scenario) for records in runs]
    categories = _categories(runs, [own.get(key) for own in settings], key)
    shared = {name for name in settings[0] if all(own.get(name) == settings[0][name] for own in settings)}
    for records, own in zip(runs, settings, strict=True):
        value = categories.index(str(own[key])) if categories else float(own[key])
        differs = [
            f"{name.rsplit('.', 1)[-1]}={own[name]}"
            for name in own
            if name not in {*shared, key, *_NAMES} and not _goes_with(name, key)
        ]
        lines.setdefault(", ".join(differs), {}).setdefault(value, []).append(_outcome(records))
    both = all(np.isfinite(loss) for line in lines.values() for found in line.values() for _, loss in found)
    figure = Figure(figsize=(9 if both else 5.5, 3.6), layout="constrained")
    panels = figure.subplots(1, 2 if both else 1, squeeze=False)[0]
    metric = runs[0].judged_by
    for index, axes in enumerate(panels):
        for number, (label, found) in enumerate(sorted(lines.items())):
            values = sorted(found)
            columns = [np.array([outcome[index] for outcome in found[value]]) for value in values]
            axes.errorbar(
                values,
                [(1 if index else metric.scale) * column.mean() for column in columns],
                [(1 if index else metric.scale) * column.std() for column in columns],
                label=label or None,
                marker="o",
                markersize=4,
                capsize=2,
                color=COLORS[number % len(COLORS)],
                linestyle="none" if categories else DASHES[number % len(DASHES)],
            )
        positive = not categories and all(value > 0 for line in lines.values() for value in line)
        axes.set(xlabel=key, xscale="log" if positive else "linear", yscale=metric.axis_scale)
        if categories:
            axes.set_xticks(range(len(categories)), categories)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(metric.axis)
    if both:
        panels[1].set_ylabel("lowest validation loss")
    if any(lines):
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize="small")
    return figure


def _categories(runs: Sequence[Records], values: Sequence[Any], key: str) -> list[str]:
    """The values as texts in order; empty if all are numbers."""
    for records, value in zip(runs, values, strict=True):
        if not isinstance(value, bool | int | float | str):
            raise ScenarioError(f"{records.directory}: {key}: expected a number or a name to draw over, got {value!r}.")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return [] if numbers else sorted(set(map(str, values)))


def _goes_with(name: str, key: str) -> bool:
    """Whether a setting belongs to the part whose name is drawn over: other names have other keys."""
    part, _, last = key.rpartition(".")
    return last == "name" and name.startswith(f"{part}.")


_NAMES = ("name", "seed", "description")
"""Keys by which runs may differ and still be one line."""


def _settings(scenario: dict, path: str = "") -> dict[str, Any]:
    """Every key of a scenario by its dotted path; lists as text."""
    found: dict[str, Any] = {}
    for name, value in scenario.items():
        if isinstance(value, dict):
            found |= _settings(value, f"{path}{name}.")
        else:
            found[f"{path}{name}"] = json.dumps(value) if isinstance(value, list) else value
    return found


def _outcome(records: Records) -> tuple[float, float]:
    """Quality after the last evaluation, over all nodes; and the mean over nodes of their lowest validation loss."""
    rows = records.rows.get("validation_loss")
    loss = np.nan if rows is None else np.mean([rows.value[rows.node == node].min() for node in np.unique(rows.node)])
    if not len(records.evaluations):
        raise ScenarioError(f"{records.directory}: has no evaluation (yet).")
    return float(metrics.over_nodes(records.evaluations.quality[-1])), float(loss)
