"""Curves of runs: a metric at each evaluation over its cost, and means over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.comparing.groups import Group, group
from ddlsim.report.records import Records
from ddlsim.report.summary import costs_of
from ddlsim.tasks import metrics
from ddlsim.tasks.base import Metric, metric_named

Axis = Literal["rounds", "time", "bytes", "joules"]
Band = Literal["std", "ci", "none"]

COSTS = {"rounds": "round", "time": "sim_time_s", "bytes": "bytes", "joules": "joules"}
"""Axis -> name of the cost in a summary."""
VIEWS = {
    "minority": "mean of the smallest cluster (the last of equals)",
    "majority": "mean of the largest cluster (the first of equals)",
    "worst_cluster": "mean of the cluster that is worst at that evaluation",
    "best_cluster": "mean of the cluster that is best at that evaluation",
    "worst_node": "the node that is worst at that evaluation",
    "fair_accuracy": "see docs/figures.md",
}
"""Measures available in addition to a metric's mean over all nodes; cluster_0, cluster_1, ... is the mean of that
cluster.
"""

LEAST_RUNS = 3
"""Runs from which on there are confidence intervals and tests."""

_T975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles at 0.975 of Student's t with 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class Curve:
    """A run's measure at its E evaluations, or the mean over n runs.

    Args:
        round: rounds completed, int [E].
        x: values of the axis: rounds, simulated seconds, bytes or joules of all nodes, float [E].
        y: the measure, float [E]; accuracies 0 to 1.
        spread: half the height of the band around it, float [E]; 0 for a single run.
    """

    round: np.ndarray
    x: np.ndarray
    y: np.ndarray
    spread: np.ndarray


def metric_of_measure(measure: str, records: Records) -> Metric:
    """Return the metric of a measure: one of the run's metrics, or for a view of the judging metric that metric."""
    measure, judged_by = measure.removesuffix("_lowest_test_loss"), records.judged_by
    for metric in records.also_measured:
        if metric.name == measure:
            return metric
    if measure == "fair_accuracy":
        return Metric(measure, share=True)
    if measure in (judged_by.name, *VIEWS) or measure.startswith("cluster_"):
        return judged_by
    if measure.endswith(("loss", "distance")):
        return Metric(measure, higher_is_better=False, digits=4)
    return metric_named(measure)


def curve_of(records: Records, x: Axis, y: str | None = None) -> Curve:
    """A run's curve.

    Args:
        records: of the run.
        x: rounds, time, bytes or joules.
        y: a metric that evaluations record, or one of VIEWS; None for the judging metric.
    Raises:
        ScenarioError: if the run has no such values or costs, or x is unknown.
    """
    if x not in COSTS:
        raise ScenarioError(f"--x {x}: expected {', '.join(COSTS)}.")
    cost, rounds = costs_of(records).get(COSTS[x]), records.curve.round
    if cost is None:
        raise ScenarioError(f"--x joules: {records.directory} has not counted them: its scenario has no energy.")
    values = measure_of(records, y)
    known = ~np.isnan(values)
    return Curve(rounds[known], cost[known].astype(float), values[known], np.zeros(int(known.sum())))


def mean_curve(group: Group, x: Axis, y: str | None = None, band: Band = "std") -> Curve:
    """The mean of a group's runs, at the rounds that all of them have.

    Args:
        group: at least one run.
        x, y: see `curve_of`; at each round, x is the mean over runs as well.
        band: std: the population standard deviation over runs; ci: of the 95 % confidence interval of the mean, by
            Student's t, from three runs on; none.
    """
    curves = [curve_of(records, x, y) for records in group.runs]
    rounds = curves[0].round
    for curve in curves[1:]:
        rounds = np.intersect1d(rounds, curve.round)
    at = [np.searchsorted(curve.round, rounds) for curve in curves]
    xs = np.array([curve.x[index] for curve, index in zip(curves, at, strict=True)])
    ys = np.array([curve.y[index] for curve, index in zip(curves, at, strict=True)])
    count = len(curves)
    spread = np.zeros(len(rounds))
    with np.errstate(invalid="ignore"):  # infinite ones, of runs that have diverged
        if count > 1 and band == "std":
            spread = ys.std(0)
        elif count >= LEAST_RUNS and band == "ci":
            spread = quantile_975(count - 1) * ys.std(0, ddof=1) / np.sqrt(count)
    return Curve(rounds, xs.mean(0), ys.mean(0), spread)


def quantile_975(freedom: int) -> float:
    """Return the quantile of Student's t; above 10 degrees of freedom by the first terms in 1 / freedom, within
    0.001.
    """
    large = 1.95996 + 2.37227 / freedom + 2.8225 / freedom**2 + 2.556 / freedom**3
    return _T975[freedom - 1] if freedom <= len(_T975) else large


def check_alike(runs: Sequence[Records]) -> None:
    """Raise ScenarioError if runs are measured by different metrics."""
    kinds = {records.metric for records in runs}
    if len(kinds) > 1:
        raise ScenarioError(f"compare: runs measured by {' and '.join(sorted(kinds))} do not share an axis.")


def measure_of(records: Records, y: str | None = None) -> np.ndarray:
    """A measure at every evaluation, float [E], nan if not known; y and errors as in `curve_of`."""
    measure = records.metric if y is None else str(y)
    evaluations, sizes = records.curve, np.bincount(records.node_cluster)
    if not len(evaluations):
        return np.zeros(0)
    if measure in evaluations.values:
        return metrics.over_nodes(evaluations.honest(measure)[:, : records.num_nodes])
    falling = records.judged_by.falling
    values = evaluations.quality[:, : records.num_nodes]
    clusters = metrics.over_clusters(values, records.node_cluster)
    judged = clusters[:, records.judged_clusters]  # nan, as fairness is, until each of them has a node
    worst, best = (judged.max(1), judged.min(1)) if falling else (judged.min(1), judged.max(1))
    views = {
        "minority": clusters[:, len(sizes) - 1 - int(np.argmin(sizes[::-1]))],
        "majority": clusters[:, int(np.argmax(sizes))],
        "worst_cluster": worst,
        "best_cluster": best,
        "worst_node": (np.fmax if falling else np.fmin).reduce(values, axis=1),
        **{f"cluster_{cluster}": curve for cluster, curve in enumerate(clusters.T)},
    }
    if measure == "fair_accuracy" and not records.has_clusters:
        raise ScenarioError(f"--y fair_accuracy: compares clusters, and {records.directory} has one. Use accuracy.")
    if "accuracy" in evaluations.values:
        accuracy = metrics.over_clusters(evaluations.honest("accuracy")[:, : records.num_nodes], records.node_cluster)
        views["fair_accuracy"] = metrics.fair_accuracy(accuracy[:, records.judged_clusters], records.fair_lambda)
    if measure in views:
        return np.asarray(views[measure])
    known = ", ".join([*evaluations.values, *views])
    raise ScenarioError(f"--y {measure}: {records.directory} has no such values. Known: {known}.")


@dataclass(frozen=True)
class Target:
    """A value whose cost is compared, instead of the scenario's target.

    Args:
        value: accuracies 0 to 1.
        measure: its measure, see `measure_of`; None for the judging metric.
    """

    value: float
    measure: str | None = None


@dataclass(frozen=True)
class Drawn:
    """Contents of the lines on a page or in a figure.

    Args:
        x: rounds, time (simulated), bytes or joules (of all nodes).
        y: a metric, or a view of it; None for the judging metric.
        group_by: dotted keys whose values make the lines; None: every key in which runs differ, but for the seed.
        band: std, ci (95 %) or none.
        at: a value of y to be marked; None for the scenarios' targets.
    """

    x: Axis = "time"
    y: str | None = None
    group_by: Sequence[str] | None = None
    band: Band = "std"
    at: float | None = None

    @property
    def target(self) -> Target | None:
        """The value whose cost is compared; None for the target of each scenario."""
        return None if self.at is None else Target(self.at, self.y)


def notes(runs: Sequence[Records], group_by: Sequence[str] | None = None, y: str | None = None) -> list[str]:
    """Return notes on the lines: settings that were averaged, and rounds that some runs lack.

    Args:
        runs, group_by, y: see `Drawn`.
    """
    found: list[str] = []
    for setting in group(runs, group_by):
        if setting.mixed:
            shown = ", ".join(setting.mixed[:5]) + (", ..." if len(setting.mixed) > 5 else "")
            found.append(f"{setting.label}: averaged over runs that differ in {shown}")
        measure = (y or setting.runs[0].metric).replace("_", " ")
        measured = [set(curve_of(records, "rounds", y).round.tolist()) for records in setting.runs]
        evaluated = [number for records in setting.runs for number in records.curve.round.tolist()]
        common = set.intersection(*measured)
        if evaluated and not common:
            found.append(f"{setting.label}: shows no round, since none has {measure} in all its runs")
        elif common and (min(common) > min(evaluated) or max(common) < max(set().union(*measured))):
            rounds = f"{min(common)} to {max(common)}"
            found.append(f"{setting.label}: shows rounds {rounds} alone, in which all its runs have {measure}")
    return found
