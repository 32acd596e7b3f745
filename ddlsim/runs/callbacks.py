"""Callbacks: Python code that a run calls, and that may end it; two of them are the live report and trackers."""

import copy
import math
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.engine.evaluator import Evaluated
from ddlsim.foundation import own_code
from ddlsim.foundation.errors import DdlsimError, ScenarioError, kind_of
from ddlsim.report.columns import metric_columns
from ddlsim.report.html.live import LiveServer
from ddlsim.report.trackers import Point, Tracker, about_run, make_tracker, parse
from ddlsim.tasks import metrics


class StopRun(Exception):
    """Exception with which a callback ends the run in good order.

    Args:
        reason: for summary.json and reports.
    """

    def __init__(self, reason: str = "a callback ended the run"):
        super().__init__(reason)


class CallbackFailed(DdlsimError):
    """A callback raised an error; the run has ended, and its records so far are kept."""


@dataclass(frozen=True)
class Started:
    """A run before its first round.

    Args:
        directory: of the run.
        scenario: the resolved scenario, with the keys of scenario.yaml.
        rounds: communication rounds of each node.
        node_cluster: the cluster of each node, int [N].
        after_round: rounds that a resumed run has completed before; 0: a new run.
    """

    directory: Path
    scenario: dict[str, Any]
    rounds: int
    node_cluster: np.ndarray
    after_round: int


@dataclass(frozen=True)
class Completed:
    """A round that all participating nodes have completed.

    Args:
        round: rounds completed, from 1.
        rounds: of the run.
        time_s: simulated seconds.
        bytes_sent: bytes that all nodes together have sent.
    """

    round: int
    rounds: int
    time_s: float
    bytes_sent: int


@dataclass(frozen=True, kw_only=True)
class Evaluation(Evaluated):
    """An evaluation of all nodes; see `Evaluated` for the other arguments.

    Args:
        node_cluster: the cluster of each node, int [N].
    """

    node_cluster: np.ndarray

    @property
    def metric(self) -> str:
        """Name of the metric: accuracy (0 to 1), mse, ..."""
        return self.judged_by.name

    @property
    def clusters(self) -> np.ndarray:
        """Mean over the honest nodes of each cluster, float [K]."""
        return metrics.over_clusters(self.honest, self.node_cluster)


class Callback:
    """Base class of callbacks for `ddlsim.run` and `ddlsim.resume`; every method does nothing by default.

    A run calls them in the order of the list, in its own process and thread, while simulated time stands still: they
    change no result. Raising `StopRun` in `on_start`, `on_round` or `on_evaluation` ends the run at once with status
    `stopped`; the summary has the round and the reason. Any other exception ends the run as failed; records so far are
    kept. A resumed run does not call them for the rounds that it repeats.
    """

    def on_start(self, started: Started) -> None:
        """Called before the first round, when the directory and all objects exist."""

    def on_round(self, completed: Completed) -> None:
        """Called after each round that all participating nodes have completed, before an evaluation of that round."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Called after each evaluation of all nodes."""

    def on_end(self, summary: dict[str, Any]) -> None:
        """Called when the run has ended, in whatever way, and summary.json is written; `status` is its outcome."""


class Callbacks:
    """The callbacks of a run, called one after the other.

    Args:
        callbacks: objects from Python code.
    Raises:
        ScenarioError: if an object is not a Callback.
    """

    def __init__(self, callbacks: Sequence[Callback] = ()):
        for each in callbacks:
            if not isinstance(each, Callback):
                raise ScenarioError(
                    f"callbacks: expected objects of classes that extend ddlsim.Callback, got {kind_of(each)}."
                )
        self._callbacks = tuple(callbacks)

    def call(self, hook: str, event: Any) -> str | None:
        """Call a method of every callback, also after one of them has asked for the end.

        Returns:
            The reason to end the run; None: continue.
        Raises:
            CallbackFailed: if one raises another error than StopRun.
        """
        reason = None
        for each in self._callbacks:
            try:
                getattr(each, hook)(copy.deepcopy(event))  # a copy, which the callback may change
            except StopRun as stop:
                reason = reason or str(stop)
            except Exception as error:
                raise _callback_error(each, hook, error) from error
        return reason

    def end(self, summary: dict[str, Any]) -> CallbackFailed | None:
        """Call `on_end` of every callback, also after one of them has raised; return the first failure."""
        failure = None
        for each in self._callbacks:
            try:
                with suppress(StopRun):
                    each.on_end(copy.deepcopy(summary))
            except Exception as error:
                failure = failure or _callback_error(each, "on_end", error)
        return failure


def _callback_error(callback: Callback, hook: str, error: Exception) -> CallbackFailed:
    """Return the error for an exception of a callback, with the line in the callback's file."""
    files = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    line = own_code.user_frame(error, files - {__file__}) or f"{type(error).__name__}: {error}"
    failure = CallbackFailed(f"the callback {type(callback).__name__} has raised in {hook}: {line}.")
    failure.__cause__ = error
    return failure


class LiveReport(Callback):
    """Serves the report page of a run while the run lasts.

    Args:
        server: closed at the end of the run.
    """

    def __init__(self, server: LiveServer):
        self._server = server

    def on_start(self, started: Started) -> None:
        self._server.show(started.directory)

    def on_end(self, summary: dict[str, Any]) -> None:
        self._server.close()


class Tracked(Callback):
    """Trackers of a run, which write every evaluation.

    They write the metric that judges the nodes, under the names of an export of the finished run; the export has other
    values (test_loss, train_loss, consensus_distance) as well. A tracker that fails is ignored from then on, with one
    warning.

    Args:
        texts: such as "tensorboard" or "wandb:my-project".
        warn: prints the warning.
    Raises:
        ScenarioError: if no tracker has the name. DataMissing: if its package is not installed.
    """

    def __init__(self, texts: Sequence[str], warn: Callable[[str], None]):
        self._trackers: dict[str, tuple[Tracker, str | None]] = {}
        for text in texts:
            name, project = parse(text)
            self._trackers[text] = make_tracker(name), project
        self._warn = warn
        self._fair_lambda = metrics.FAIR_LAMBDA

    def on_start(self, started: Started) -> None:
        self._fair_lambda = started.scenario["evaluation"]["fair_lambda"]
        directory, scenario = started.directory, started.scenario
        self._each(lambda tracker, project: tracker.begin(about_run(directory, scenario, project)))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        point = _point(evaluation, self._fair_lambda)
        self._each(lambda tracker, _: tracker.point(point))

    def on_end(self, summary: dict[str, Any]) -> None:
        self._each(lambda tracker, _: tracker.end(summary))

    def _each(self, call: Callable[[Tracker, str | None], None]) -> None:
        for text, (tracker, project) in list(self._trackers.items()):
            try:
                call(tracker, project)
            except Exception as error:
                del self._trackers[text]
                why = " ".join(f"{type(error).__name__}: {error}".split())
                self._warn(
                    f"WARNING: the tracker {text} has failed and is ignored from now on: {why:.300}. The run "
                    f"continues; `ddlsim export RUN --to {text}` writes it afterwards."
                )


def _point(evaluation: Evaluation, fair_lambda: float) -> Point:
    judged = metrics.clusters_with_honest_nodes(evaluation.node_cluster, evaluation.attacked)
    honest, clusters = evaluation.honest[np.newaxis], evaluation.node_cluster
    columns = metric_columns(evaluation.metric, honest, clusters, judged, fair_lambda)
    found = {"time_s": evaluation.time_s, "bytes": float(evaluation.bytes_sent)}
    found |= {name: float(column[0]) for name, column in columns.items()}
    return Point(evaluation.round, {name: value for name, value in found.items() if math.isfinite(value)})
