"""Records of a run in other tools: TensorBoard, Weights & Biases, MLflow, Trackio.

A tracker takes the description of a run, each evaluation, and the run's end. Everything is local unless the tool's own
variables say otherwise (WANDB_MODE, MLFLOW_TRACKING_URI, TRACKIO_SPACE_ID). A new one needs a class that implements
Tracker, and a line in TRACKERS.
"""

import hashlib
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.report.columns import rounds, write_tables
from ddlsim.report.comparing.groups import settings_of
from ddlsim.report.records import Records
from ddlsim.report.summary import honest_part, summary_of

Scalar = str | int | float | bool


@dataclass(frozen=True)
class About:
    """Description of a run.

    Args:
        directory: of the run.
        project: name under which runs are collected.
        group: runs of one scenario.
        name: of this run: algorithm and seed.
        config: dotted key of the scenario -> value; lists and null are JSON text.
    """

    directory: Path
    project: str
    group: str
    name: str
    config: dict[str, Scalar]


@dataclass(frozen=True)
class Point:
    """Measurements of an evaluation.

    Args:
        round: rounds completed.
        values: time_s (simulated), bytes (of all nodes); per metric its mean over nodes (accuracy), the standard
            deviation over nodes (accuracy_std) and the mean of each cluster (accuracy_0, ...); fair_accuracy. Only
            finite ones.
    """

    round: int
    values: dict[str, float]


class Tracker(Protocol):
    """Writes one run to one tool; its exceptions end the tracker and not the run."""

    def begin(self, about: About) -> None:
        """Before the first point."""

    def point(self, point: Point) -> None:
        """After an evaluation; rounds grow."""

    def end(self, summary: dict[str, Any]) -> None:
        """After the last point; the summary as in summary.json."""


def about_run(directory: Path, scenario: dict[str, Any], project: str | None = None) -> About:
    """Return the description of a run from its resolved scenario."""
    algorithm = str((scenario.get("algorithm") or {}).get("name"))
    label = algorithm.rpartition(":")[2] or algorithm
    name = str(scenario.get("name"))
    return About(directory, project or "ddlsim", name, f"{label}-s{scenario.get('seed', 0)}", settings_of(scenario))


def points(records: Records) -> Iterator[Point]:
    """The evaluations of a run; of a network-only run its rounds."""
    columns = rounds(records)
    for index, completed in enumerate(columns["round"].tolist()):
        found = {name: float(column[index]) for name, column in columns.items() if name != "round"}
        yield Point(completed, {name: value for name, value in found.items() if math.isfinite(value)})


def ended_with(summary: dict[str, Any]) -> dict[str, float]:
    """The numbers of a summary that a table of runs shows: final values (of honest nodes), costs, cost to target."""
    target = summary.get("target") or {}
    metric = summary["metric"]
    found = {
        f"final_{metric}": (honest_part(summary).get(metric) or {}).get("all"),
        "total_bytes": summary["bytes"]["total"],
        "sim_time_s": summary["sim_time_s"],
        "wall_s": summary["wall_s"],
        "total_joules": (summary.get("energy") or {}).get("joules"),
        **{f"target_{name}": target.get(name) for name in ("round", "bytes", "sim_time_s", "joules")},
    }
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}


class TensorBoard:
    """TensorBoard: event files in RUN/tensorboard, a tag per value and the round as step.

    Values of the scenario are text under `scenario`.
    """

    def begin(self, about: About) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: SummaryWriter = SummaryWriter(str(about.directory / "tensorboard"))
        rows = [f"|{key}|{str(value).replace('|', '/')}|" for key, value in about.config.items()]
        self._writer.add_text("scenario", "\n".join(["|key|value|", "|---|---|", *rows]))

    def point(self, point: Point) -> None:
        for name, value in point.values.items():
            self._writer.add_scalar(name, value, point.round)
        self._writer.flush()

    def end(self, summary: dict[str, Any]) -> None:
        for name, value in ended_with(summary).items():
            self._writer.add_scalar(f"end/{name}", value, summary["evaluated_round"] or 0)
        self._writer.close()


class WeightsAndBiases:
    """Weights & Biases: offline runs in RUN/wandb, which `wandb sync` uploads; online if WANDB_MODE is set so.

    Runs of one scenario are a group, and a resumed run continues under its identifier.
    """

    def begin(self, about: About) -> None:
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self._run = wandb.init(
            project=about.project,
            group=about.group,
            name=about.name,
            config=dict(about.config),
            dir=str(about.directory),
            id=hashlib.sha256(str(about.directory.resolve()).encode()).hexdigest()[:12],
            resume="allow",
            mode=mode,
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._run.define_metric("*", step_metric="round")

    def point(self, point: Point) -> None:
        self._run.log({"round": point.round, **point.values})

    def end(self, summary: dict[str, Any]) -> None:
        self._run.summary.update({"status": summary["status"], **ended_with(summary)})
        self._run.finish(exit_code=0 if summary["status"] in ("done", "stopped") else 1)


MOST_PARAMS, MOST_TEXT = 100, 500
"""Parameters that MLflow takes at once, and characters of one."""
STATES = {"done": "FINISHED", "stopped": "FINISHED", "interrupted": "KILLED"}


class MLflow:
    """MLflow: its store in ./mlruns as files, or the one at MLFLOW_TRACKING_URI; projects are experiments.

    The round is the step, keys of the scenario are parameters.
    """

    def begin(self, about: About) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        where = os.environ.get("MLFLOW_TRACKING_URI")
        if not where:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions require it for files
            where = Path("mlruns").absolute().as_uri()
        self._client = MlflowClient(where)
        found = self._client.get_experiment_by_name(about.project)
        experiment = found.experiment_id if found else self._client.create_experiment(about.project)
        tags = {"ddlsim.directory": str(about.directory.resolve()), "ddlsim.scenario": about.group}
        self._id = self._client.create_run(experiment, run_name=about.name, tags=tags).info.run_id
        # MLflow's keys have letters, digits and some signs.
        params = [Param(re.sub(r"[^\w\-. /]", "_", key), str(value)[:MOST_TEXT]) for key, value in about.config.items()]
        for start in range(0, len(params), MOST_PARAMS):
            self._client.log_batch(self._id, params=params[start : start + MOST_PARAMS])

    def point(self, point: Point) -> None:
        self._log(point.values, point.round)

    def end(self, summary: dict[str, Any]) -> None:
        self._log(ended_with(summary), summary["evaluated_round"] or 0)
        self._client.set_terminated(self._id, STATES.get(summary["status"], "FAILED"))

    def _log(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now_ms = int(1000 * time.time())
        self._client.log_batch(self._id, metrics=[Metric(name, value, now_ms, step) for name, value in values.items()])


class Trackio:
    """Trackio: its local database (TRACKIO_DIR); nothing is sent unless TRACKIO_SPACE_ID names a space.

    The round is the step. Trackio's output goes to standard error.
    """

    def begin(self, about: About) -> None:
        import trackio

        with redirect_stdout(sys.stderr):
            self._run = trackio.init(
                project=about.project,
                name=about.name,
                group=about.group,
                config=dict(about.config),
                auto_log_cpu=False,
                auto_log_gpu=False,
            )

    def point(self, point: Point) -> None:
        self._run.log({"round": point.round, **point.values}, step=point.round)

    def end(self, summary: dict[str, Any]) -> None:
        with redirect_stdout(sys.stderr):
            self._run.log({f"end/{name}": value for name, value in ended_with(summary).items()})
            self._run.finish()


TRACKERS: dict[str, Callable[[], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
    "trackio": Trackio,
}
"""Name of the package, which is the name of ddlsim's extra as well -> its class."""
FILES = ("csv", "parquet")
"""Files to which runs can be exported, in addition to trackers."""


def make_tracker(name: str) -> Tracker:
    """Return a tracker that has not started.

    Raises:
        DataMissing: if its package is not installed.
    """
    needed(name, name, f"tracker {name}")
    return TRACKERS[name]()


def parse(text: str) -> tuple[str, str | None]:
    """Split "wandb:my-project" into name and project; the project is optional.

    Raises:
        ScenarioError: if the name is unknown.
    """
    name, _, project = text.partition(":")
    if name not in TRACKERS:
        raise ScenarioError(f"--track {text}: expected one of {', '.join(TRACKERS)}, optionally followed by :PROJECT.")
    return name, project or None


def export_run(records: Records, to: str, out: Path | None = None, project: str | None = None) -> list[Path]:
    """Write a run to a tool.

    Args:
        records: of the run.
        to: tensorboard, wandb, mlflow, trackio, csv or parquet.
        out: folder for files (csv, parquet); None for a folder of that name in the run directory.
        project: of a tracker.
    Returns:
        The written files, if any.
    Raises:
        ScenarioError: if the tool is unknown, or has no projects. DataMissing: if its package is not installed.
        DdlsimError: if the tool fails.
    """
    if to in FILES and project is None:
        return write_tables(records, out or records.directory / to, to)
    if to not in TRACKERS:
        names = ", ".join(TRACKERS)
        raise ScenarioError(f"--to {to}: expected {' or '.join(FILES)} without a project, or one of {names}.")
    tracker = make_tracker(to)
    try:
        tracker.begin(about_run(records.directory, records.scenario, project))
        for point in points(records):
            tracker.point(point)
        tracker.end(summary_of(records))
    except Exception as error:
        raise DdlsimError(f"--to {to}: {type(error).__name__}: {error}") from error
    return []
