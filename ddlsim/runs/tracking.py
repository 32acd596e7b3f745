"""Trackers that follow a run: a callback that hands them every evaluation, and never ends the run."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ddlsim import metrics
from ddlsim.report.trackers import make_tracker, parse
from ddlsim.report.trackers.base import Point, Tracker, about_run
from ddlsim.runs.callbacks import Callback, Evaluation, Started


class Tracked(Callback):
    """Trackers of a run.

    They write what the nodes are judged by, under the names that an export of the finished run has for it; the export
    has other metrics (test_loss) as well. A tracker that fails is left out from then on, with one warning.

    Args:
        texts: such as "tensorboard" or "wandb:my-project".
        tell: takes the warning.
    Raises:
        ScenarioError: if there is no tracker of a name. DataMissing: if its package is not installed.
    """

    def __init__(self, texts: Sequence[str], tell: Callable[[str], None]):
        self._trackers: dict[str, tuple[Tracker, str | None]] = {}
        for text in texts:
            name, project = parse(text)
            self._trackers[text] = make_tracker(name), project
        self._tell = tell
        self._fair_lambda = metrics.FAIR_LAMBDA

    def on_start(self, started: Started) -> None:
        self._fair_lambda = started.scenario["evaluation"]["fair_lambda"]
        for text, (tracker, project) in list(self._trackers.items()):
            self._guarded(text, tracker.begin, about_run(started.directory, started.scenario, project))

    def on_evaluation(self, evaluation: Evaluation) -> None:
        point = _point(evaluation, self._fair_lambda)
        for text, (tracker, _) in list(self._trackers.items()):
            self._guarded(text, tracker.point, point)

    def on_end(self, summary: dict[str, Any]) -> None:
        for text, (tracker, _) in list(self._trackers.items()):
            self._guarded(text, tracker.end, summary)

    def _guarded(self, text: str, call: Callable[[Any], None], about: Any) -> None:
        try:
            call(about)
        except Exception as error:
            del self._trackers[text]
            why = " ".join(f"{type(error).__name__}: {error}".split())
            self._tell(
                f"WARNING: the tracker {text} has failed and is left out: {why:.300}. The run goes on; `ddlsim export "
                f"RUN --to {text}` writes it afterwards."
            )


def _point(evaluation: Evaluation, fair_lambda: float) -> Point:
    metric, clusters = evaluation.metric, evaluation.clusters
    known = evaluation.honest[~np.isnan(evaluation.honest)]
    found = {
        "time_s": evaluation.time_s,
        "bytes": float(evaluation.bytes_sent),
        metric: evaluation.mean,
        f"{metric}_std": float(np.std(known)),
        **{f"{metric}_{cluster}": float(value) for cluster, value in enumerate(clusters)},
    }
    if metric == "accuracy":
        judged = metrics.clusters_with_honest_nodes(evaluation.node_cluster, evaluation.attacked)
        found["fair_accuracy"] = float(metrics.fair_accuracy(clusters[judged], fair_lambda))
    return Point(evaluation.round, {name: value for name, value in found.items() if math.isfinite(value)})
