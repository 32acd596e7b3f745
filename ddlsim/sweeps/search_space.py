"""What a search varies, in the syntax of grids, and by which metric it judges runs.

training.learning_rate=0.001..0.1:log      floats between two bounds; with :log by their orders of magnitude
training.local_steps=1..20                 whole numbers, both bounds counted, if both are written so
topology.name=ring,complete                one of these, as for a grid
"""

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from ddlsim import metrics
from ddlsim.errors import ScenarioError
from ddlsim.sweeps.points import Value, parse_grid, values_of_key
from ddlsim.tasks.metric import VALIDATION, VALIDATION_LOSS, Metric

if TYPE_CHECKING:
    from optuna import Trial

    from ddlsim.report.records import Records
    from ddlsim.scenario import Scenario

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*(?::\s*(\w+))?\s*", re.ASCII)
LOSS = Metric("validation_loss", "validation loss", higher_is_better=False, digits=4)

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds.

    Args:
        key: dotted key of a scenario.
        low, high: the bounds, both of them included.
        log: whether orders of magnitude are searched evenly.
        whole: whether only whole numbers count.
    """

    key: str
    low: float
    high: float
    log: bool
    whole: bool

    def suggest(self, trial: "Trial") -> Value:
        """The value that a trial is to have."""
        if self.whole:
            chosen: float = trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log)
        else:
            chosen = trial.suggest_float(self.key, self.low, self.high, log=self.log)
        return values_of_key(self.key, [chosen])[0]


@dataclass(frozen=True)
class Choice:
    """One of several values.

    Args:
        key: dotted key of a scenario.
        values: as along an axis of a grid.
    """

    key: str
    values: tuple[Value, ...]

    def suggest(self, trial: "Trial") -> Value:
        """The value that a trial is to have."""
        labels = {value.option.partition("=")[2]: value for value in self.values}
        return labels[trial.suggest_categorical(self.key, list(labels))]


def parse_dimension(text: str) -> Range | Choice:
    """What a `--grid` of a search says.

    Raises:
        ScenarioError: if it is no range and no list of values.
    """
    key, _, values = text.partition("=")
    found = _RANGE.fullmatch(values)
    if found is None:
        return Choice(key.strip(), parse_grid(text))
    low, high, scale = float(found[1]), float(found[2]), found[3]
    if scale not in (None, "log"):
        raise ScenarioError(f"--grid {text[:200]}: expected :log or nothing behind a range, got :{scale}.")
    if not low < high:
        raise ScenarioError(f"--grid {text[:200]}: expected a range from a lower to a higher bound.")
    if scale == "log" and low <= 0:
        raise ScenarioError(f"--grid {text[:200]}: expected bounds above 0 for orders of magnitude (:log).")
    whole = all(_WHOLE.fullmatch(found[place]) is not None for place in (1, 2))
    return Range(key.strip(), low, high, scale == "log", whole)


@dataclass(frozen=True)
class Aim:
    """What a search makes best.

    Args:
        name: as `--metric` says.
        metric: how its values read, and which direction is better.
        rows: of which metric's rows it is made.
        over: the mean over all nodes, that of the worst cluster, or accuracy with evenness (metrics.py: fair_accuracy).
    """

    name: str
    metric: Metric
    rows: str
    over: Literal["nodes", "worst cluster", "fairness"] = "nodes"

    def curve(self, records: "Records", ended: bool) -> list[tuple[int, float]]:
        """Rounds completed, and the value, of every evaluation so far.

        Args:
            records: of a run.
            ended: whether nothing more is written; if not, a last evaluation that lacks nodes is left out.
        Raises:
            ScenarioError: if the run does not record it.
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

    def _judged(self, values: np.ndarray, records: "Records") -> float:
        """One evaluation; of runs that have diverged, or have a cluster without a node, the worst number there is."""
        clusters = metrics.over_clusters(values, records.node_cluster)
        if self.over == "nodes":
            found = float(metrics.over_nodes(values))
        elif self.over == "fairness":
            found = float(metrics.fair_accuracy(clusters[records.judged_clusters], records.fair_lambda))
        else:
            judged = clusters[records.judged_clusters]
            found = float(judged.max() if self.metric.falling else judged.min())
        return found if math.isfinite(found) else math.inf if self.metric.falling else -math.inf


def aim_named(name: str | None, scenario: "Scenario") -> Aim:
    """What a search of a scenario makes best: a value on validation samples, never on test data.

    Args:
        name: of a metric of its task (accuracy or validation_accuracy), or validation_loss, worst_cluster or
            fair_accuracy; None: what its task judges by.
        scenario: one of those that are searched.
    Raises:
        ScenarioError: if there is none of that name, or the scenario sets no validation samples aside.
    """
    from ddlsim.scenario.problems import did_you_mean

    task = scenario.learned
    judged = task.judged_by
    rows = {each.name: f"{VALIDATION}{each.name}" for each in task.metrics}
    known = {rows[each.name]: Aim(rows[each.name], each, rows[each.name]) for each in task.metrics}
    known["validation_loss"] = Aim("validation_loss", LOSS, VALIDATION_LOSS)
    known["worst_cluster"] = Aim("worst_cluster", judged, rows[judged.name], "worst cluster")
    if "accuracy" in rows:
        accuracy = known[rows["accuracy"]]
        known["fair_accuracy"] = Aim("fair_accuracy", accuracy.metric, accuracy.rows, "fairness")
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
