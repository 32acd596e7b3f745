"""MLflow: its store in ./mlruns as files, or the one at MLFLOW_TRACKING_URI; projects are experiments."""

import os
from pathlib import Path
from typing import Any

from ddlsim.report.trackers.base import About, Point, ended_with

MOST_PARAMS, MOST_TEXT = 100, 500
"""Parameters that MLflow takes at once, and characters of one."""
STATES = {"done": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED"}


class MLflow:
    """Tracker of MLflow; the round is the step, keys of the scenario are parameters."""

    def begin(self, about: About) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        where = os.environ.get("MLFLOW_TRACKING_URI")
        if not where:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions want to be asked for files
            where = Path("mlruns").absolute().as_uri()
        self._client = MlflowClient(where)
        found = self._client.get_experiment_by_name(about.project)
        experiment = found.experiment_id if found else self._client.create_experiment(about.project)
        tags = {"ddlsim.directory": str(about.directory.resolve()), "ddlsim.scenario": about.group}
        self._id = self._client.create_run(experiment, run_name=about.name, tags=tags).info.run_id
        params = [Param(_key(key), str(value)[:MOST_TEXT]) for key, value in about.config.items()]
        for start in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + MOST_PARAMS])

    def point(self, point: Point) -> None:
        self._log(point.values, point.round)

    def end(self, summary: dict[str, Any]) -> None:
        self._log(ended_with(summary), summary["evaluated_round"] or 0)
        self._client.set_terminated(self._id, STATES.get(summary["status"], "FAILED"))

    def _log(self, values: dict[str, float], step: int) -> None:
        import time

        from mlflow.entities import Metric

        now_ms = int(1000 * time.time())
        self._client.log_batch(self._id, metrics=[Metric(name, value, now_ms, step) for name, value in values.items()])


def _key(key: str) -> str:
    """A key as MLflow takes it: letters, digits and some signs."""
    return "".join(char if char.isalnum() or char in "_-. /" else "_" for char in key)
