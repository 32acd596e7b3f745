"""The objective of a hyper-parameter search: a value on validation samples, never on test data."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ddlsim.foundation.errors import ScenarioError, did_you_mean
from ddlsim.report.records import Records
from ddlsim.scenario import Scenario
from ddlsim.tasks import metrics
from ddlsim.tasks.base import VALIDATION, VALIDATION_LOSS, Metric

LOSS = Metric("validation_loss", "validation loss", higher_is_better=False, digits=4)


@dataclass(frozen=True)
class Objective:
    """The objective of a search.

    Args:
        name: the name for `--metric`.
        metric: its format and better direction.
        rows: name of the metric's rows.
        over: the mean over all nodes, over the worst cluster, or fair accuracy (metrics.py: fair_accuracy).
    """

    name: str
    metric: Metric
    rows: str
    over: Literal["nodes", "worst cluster", "fairness"] = "nodes"

    def curve(self, records: Records, ended: bool) -> list[tuple[int, float]]:
        """Return completed rounds and value of every evaluation so far.

        Args:
            records: records of a run.
            ended: whether the run has ended; if not, an incomplete last evaluation is left out.
        Raises:
            ScenarioError: the run does not record it.
        """
        evaluations = records.evaluations
        if not len(evaluations):
            return []
        if self.rows not in evaluations.values:
            raise ScenarioError(f"--metric {self.name}: runs of {records.scenario.get('name')} do not record it.")
        found = [self._judged(each, records) for each in evaluations.honest(self.rows)]
        curve = [(int(number), value) for number, value in zip(evaluations.round, found, strict=True)]
        half = any(np.isnan(values[-1]).any() for values in evaluations.values.values())
        return curve[:-1] if half and not ended else curve

    def _judged(self, values: np.ndarray, records: Records) -> float:
        """Return the value of one evaluation; infinity in the worse direction if the run has diverged."""
        clusters = metrics.over_clusters(values, records.node_cluster)
        if self.over == "nodes":
            found = float(metrics.over_nodes(values))
        elif self.over == "fairness":
            found = float(metrics.fair_accuracy(clusters[records.judged_clusters], records.fair_lambda))
        else:
            judged = clusters[records.judged_clusters]
            found = float(judged.max() if self.metric.falling else judged.min())
        return found if math.isfinite(found) else math.inf if self.metric.falling else -math.inf


def objective_of(name: str | None, scenario: Scenario) -> Objective:
    """Return the objective of a search: a value on validation samples, never on test data.

    Args:
        name: a metric of the task (accuracy or validation_accuracy), or validation_loss, worst_cluster or
            fair_accuracy; None for the task's main metric.
        scenario: a scenario of the search.
    Raises:
        ScenarioError: the name is unknown, or the scenario has no validation samples.
    """
    task = scenario.learned
    judged = task.judged_by
    rows = {each.name: f"{VALIDATION}{each.name}" for each in task.metrics}
    known = {rows[each.name]: Objective(rows[each.name], each, rows[each.name]) for each in task.metrics}
    known["validation_loss"] = Objective("validation_loss", LOSS, VALIDATION_LOSS)
    known["worst_cluster"] = Objective("worst_cluster", judged, rows[judged.name], "worst cluster")
    if "accuracy" in rows:
        accuracy = known[rows["accuracy"]]
        known["fair_accuracy"] = Objective("fair_accuracy", accuracy.metric, accuracy.rows, "fairness")
    if scenario.validation.source == "none":
        raise ScenarioError(
            "--search: chooses by validation samples, never by test data, and this scenario sets none aside. Add --set "
            "validation.source=node (a part of each node's samples), train or own."
        )
    if name == "test_loss":
        raise ScenarioError("--metric test_loss: a search must not choose by test data. Use validation_loss.")
    if name is None:
        return known[rows[judged.name]]
    name = rows.get(name, name)
    if name not in known:
        raise ScenarioError(f"--metric {name[:60]}: unknown.{did_you_mean(name, known)} Known: {', '.join(known)}.")
    return known[name]
