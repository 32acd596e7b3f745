"""Hyper-parameter search by Optuna: one process per run, stopped early if other runs are better.

Ask and tell: Optuna chooses the values of the next run, and receives the run's metric at every evaluation. If its
pruner rejects the run, the process gets SIGTERM, ends after its round, and counts as pruned. The study is a journal in
the folder of the runs, search.journal, so the same command continues it: open runs are resumed, then further ones
follow up to the requested number.

Source: Akiba et al., "Optuna: A Next-generation Hyperparameter Optimization Framework", KDD 2019.

Dimensions of a search, in the syntax of grids:

    training.learning_rate=0.001..0.1:log      floats between two bounds; with :log evenly in orders of magnitude
    training.local_steps=1..20                 integers including both bounds, if both are integers
    topology.name=ring,complete                one of these values, as in a grid

The objective is a value on validation samples, never on test data.
"""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import DdlsimError, ScenarioError, did_you_mean
from ddlsim.report.figures import written_below
from ddlsim.report.reading import read
from ddlsim.report.records import Records
from ddlsim.runs.sweeps import pool
from ddlsim.runs.sweeps.axes import Value, parse_grid
from ddlsim.runs.sweeps.points import Base, Point, point_of, words_of
from ddlsim.scenario import Scenario, digest
from ddlsim.tasks import metrics
from ddlsim.tasks.base import VALIDATION, VALIDATION_LOSS, Metric

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution


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
        found = [self._value_of(each, records) for each in evaluations.honest(self.rows)]
        curve = [(int(number), value) for number, value in zip(evaluations.round, found, strict=True)]
        half = any(np.isnan(values[-1]).any() for values in evaluations.values.values())
        return curve[:-1] if half and not ended else curve

    def _value_of(self, values: np.ndarray, records: Records) -> float:
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


_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*(?::\s*(\w+))?\s*", re.ASCII)

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


def import_optuna() -> Any:
    """Return the module.

    Raises:
        DataMissing: Optuna is not installed.
    """
    optuna: Any = needed("optuna", "optuna", "--search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def parse_dimension(text: str) -> "tuple[str, BaseDistribution]":
    """Return the key and the distribution of a search's `--grid`; choices are options' values as YAML.

    Raises:
        ScenarioError: it is neither a range nor a list of values.
    """
    distributions = import_optuna().distributions
    key, _, values = text.partition("=")
    found = _RANGE.fullmatch(values)
    if found is None:
        choices = [value.option.partition("=")[2] for value in parse_grid(text)]
        return key.strip(), distributions.CategoricalDistribution(choices)
    low, high, scale = found.groups()
    if scale not in (None, "log"):
        raise ScenarioError(f"--grid {text[:200]}: expected :log or nothing after a range, got :{scale}.")
    is_whole = _WHOLE.fullmatch(low) and _WHOLE.fullmatch(high)
    try:
        if is_whole:
            return key.strip(), distributions.IntDistribution(int(low), int(high), log=scale == "log")
        return key.strip(), distributions.FloatDistribution(float(low), float(high), log=scale == "log")
    except ValueError as error:
        raise ScenarioError(f"--grid {text[:200]}: invalid range: {error}") from None


JOURNAL = "search.journal"
FALLBACK = "fallback"
"""Attribute of the study: name of the fallback's data if the runs use it, else empty."""

INTERRUPTED = 130
"""Exit code of a run that a signal ended after its round."""


@dataclass(frozen=True)
class Search:
    """A requested search.

    Args:
        base: the common part of all runs.
        scenario: the checked common scenario.
        space: key -> distribution.
        objective: the objective.
        trials: number of runs, including the runs of earlier commands.
        pruner: median (worse than the median of the others at that round), hyperband or none.
        options: further arguments of `ddlsim run`.
    """

    base: Base
    scenario: Scenario
    space: "dict[str, BaseDistribution]"
    objective: Objective
    trials: int
    pruner: str = "median"
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended:
    """Result of a trial.

    Args:
        name: name of the trial, with its values.
        state: complete, pruned or failed.
        value: last known value of the objective.
        cause: reason of a failure.
    """

    name: str
    state: str
    value: float | None
    cause: str = ""


@dataclass
class _Trial:
    """A running trial."""

    trial: "optuna.Trial"
    point: Point
    process: pool.Started
    reported: set[int]
    size: int = -1
    value: float | None = None
    pruned: bool = False


def search(wanted: Search, at_once: int, report: Callable[[Ended, int], None]) -> "optuna.Study":
    """Run trials until the study has the requested number.

    Args:
        wanted: the requested search.
        at_once: number of simultaneous runs.
        report: called with every finished trial and the number of finished trials.
    Raises:
        ScenarioError: Optuna is not installed, the folder has another study, or only some runs use the fallback's data.
        KeyboardInterrupt: the runs are interrupted too; the same command continues them.
    """
    study, optuna = open_study(wanted), import_optuna()
    from optuna.trial import TrialState

    running: dict[int, _Trial] = {}
    left = [
        optuna.Trial(study, frozen._trial_id)
        for frozen in study.trials
        if not frozen.state.is_finished() and frozen.params.keys() == wanted.space.keys()
    ]
    try:
        while True:
            for slot in range(at_once):
                if slot in running or (not left and len(study.trials) >= wanted.trials):
                    continue
                trial = left.pop(0) if left else study.ask(wanted.space)
                started = _start(wanted, study, trial, pool.cores(slot, at_once))
                if isinstance(started, Ended):
                    study.tell(trial, state=TrialState.FAIL)
                    report(started, _count(study))
                else:
                    running[slot] = started
            if not running:
                if not left and len(study.trials) >= wanted.trials:
                    return study
                continue
            for slot, one in list(running.items()):
                ended = one.process.process.poll() is not None  # before reading, so that nothing is written after it
                _look(wanted, study, one, ended)
                if ended:
                    report(_close(study, running.pop(slot)), _count(study))
            time.sleep(pool.POLL_S)
    finally:
        pool.end_all([one.process for one in running.values()])


def open_study(wanted: Search) -> "optuna.Study":
    """Open or create the study in the folder of the runs.

    Raises:
        ScenarioError: Optuna is not installed, or the folder has a study of another search.
    """
    optuna = import_optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    pruners: dict[str, Callable[[], Any]] = {
        "median": optuna.pruners.MedianPruner,
        "hyperband": optuna.pruners.HyperbandPruner,
        "none": optuna.pruners.NopPruner,
    }
    folder = wanted.base.out
    with written_below(folder, "--out"):
        path = str(folder / JOURNAL)
        storage = JournalStorage(JournalFileBackend(path, lock_obj=JournalFileOpenLock(path)))
    study = optuna.create_study(
        storage=storage,
        study_name=wanted.base.name,
        direction="minimize" if wanted.objective.metric.falling else "maximize",
        pruner=pruners[wanted.pruner](),
        load_if_exists=True,
    )
    # Every process starts a sampler: with the same seed it would propose the same values again.
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), constant_liar=True)
    about = {
        "metric": wanted.objective.name,
        "space": {key: optuna.distributions.distribution_to_json(each) for key, each in wanted.space.items()},
        "scenario": digest(wanted.scenario),
    }
    held = study.user_attrs.get("search")
    if held is None:
        study.set_user_attr("search", about)
    elif held != about:
        differ = ", ".join(sorted(key for key in {*held, *about} if held.get(key) != about.get(key)))
        raise ScenarioError(f"--out {folder}: holds a search with another {differ}. Name another folder.")
    return study


def _start(wanted: Search, study: "optuna.Study", trial: "optuna.Trial", cores: set[int]) -> _Trial | Ended:
    """Start the run of a trial; return its end if its scenario is invalid."""
    values = [Value("", f"{key}={value}") for key, value in trial.params.items()]
    name = f"trial {trial.number} ({', '.join(value.option for value in values)})"
    place = wanted.base.out / f"trial-{trial.number:04d}"
    point = replace(point_of(wanted.base, values, None), name=name, directory=place)
    if point.scenario is None:
        return Ended(name, "failed", None, point.refusal)
    reported = set(study.trials[trial.number].intermediate_values)
    return _Trial(trial, point, pool.start(pool.Job(name, words_of(point, wanted.options)), cores), reported)


def _look(wanted: Search, study: "optuna.Study", one: _Trial, ended: bool) -> None:
    """Report new evaluations to Optuna, and stop a run that its pruner rejects."""
    try:
        size = (one.point.directory / "metrics.jsonl").stat().st_size
        if size == one.size and not ended:  # the last evaluation of an ended run counts even if it is incomplete
            return
        records = read(one.point.directory)
    except (OSError, DdlsimError):  # the run has just started, or a row is incomplete
        return
    if one.size < 0:
        _compare_data(wanted, study, one, records)
    one.size = size
    for step, value in wanted.objective.curve(records, ended):
        one.value = value
        if step in one.reported:
            continue
        one.reported.add(step)
        one.trial.report(one.value, step)
        if not ended and not one.pruned and one.trial.should_prune():
            one.pruned = True
            one.process.process.terminate()


def _compare_data(wanted: Search, study: "optuna.Study", one: _Trial, records: Records) -> None:
    """Raise ScenarioError if only this run, or only earlier runs, use the fallback's data."""
    data = records.manifest["data"]
    now, before = data["name"] if data["fallback"] else "", study.user_attrs.get(FALLBACK)
    if before is None:
        study.set_user_attr(FALLBACK, now)
    elif bool(before) != bool(now):
        kinds = [f"{name} (fallback)" if name else "the scenario's data" for name in (now, before)]
        raise ScenarioError(
            f"--out {wanted.base.out}: {one.point.name} runs on {kinds[0]}, the trials before it ran on {kinds[1]}. "
            "Name another folder."
        )


def _close(study: "optuna.Study", one: _Trial) -> Ended:
    """Report the end of a trial to Optuna."""
    from optuna.trial import TrialState

    how = one.process.ended()
    if one.point.summary() is not None and one.value is not None:
        study.tell(one.trial, one.value)
        return Ended(one.point.name, "complete", one.value)
    if one.pruned and how.code == INTERRUPTED:
        study.tell(one.trial, state=TrialState.PRUNED)
        return Ended(one.point.name, "pruned", one.value)
    study.tell(one.trial, state=TrialState.FAIL)
    return Ended(one.point.name, "failed", one.value, how.cause or "it has ended without an evaluation")


def _count(study: "optuna.Study") -> int:
    """Return the number of finished trials."""
    return sum(frozen.state.is_finished() for frozen in study.get_trials(deepcopy=False))
