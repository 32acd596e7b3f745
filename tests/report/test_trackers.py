"""Trackers: values are read back from the tools' files; a failing tracker never ends a run."""

import csv
import json
import os
import sqlite3
import struct
import time

import numpy as np
import pytest
from typer.testing import CliRunner

import ddlsim
from ddlsim.cli import app
from ddlsim.foundation.errors import DataMissing, ScenarioError
from ddlsim.report.reading import read
from ddlsim.report.trackers import TRACKERS, Point, about_run, ended_with, export_run, make_tracker, points

SMALL = {
    "name": "small",
    "rounds": 2,
    "nodes": {"clusters": [2, 1]},
    "algorithm": {"name": "local"},
    "model": {"name": "mlp", "hidden": [4]},
    "data": {"name": "fashion-mnist-mini"},
    "topology": {"name": "ring"},
    "training": {"learning_rate": 0.1, "local_steps": 1},
    "evaluation": {"every": 1},
}


class Notes:
    """A tracker that stores all calls."""

    def __init__(self):
        self.calls = []

    def begin(self, about):
        self.calls.append(about)

    def point(self, point):
        self.calls.append(point)

    def end(self, summary):
        self.calls.append(summary["status"])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return ddlsim.run(SMALL, out=tmp_path_factory.mktemp("tracked") / "run")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("WANDB_", "MLFLOW_", "TRACKIO_"))]:
        monkeypatch.delenv(name)
    return tmp_path


def curve(run, name="accuracy"):
    return {point.round: point.values[name] for point in points(run.records)}


def test_points_are_the_evaluations_with_time_and_bytes(run):
    found = list(points(run.records))
    assert [point.round for point in found] == [1, 2]
    assert found[-1].values["accuracy"] == run.summary["accuracy"]["all"]
    assert found[-1].values["bytes"] == run.summary["bytes"]["total"]
    assert found[-1].values["time_s"] == pytest.approx(run.summary["sim_time_s"])


def test_run_is_described_by_scenario_algorithm_and_seed(run):
    about = about_run(run.dir, run.scenario, "mine")
    assert (about.project, about.group, about.name) == ("mine", "small", "local-s0")
    assert about.config["training.learning_rate"] == 0.1 and about.config["nodes.clusters"] == "[2, 1]"


def test_tracker_receives_during_the_run_the_values_of_the_records(tmp_path, monkeypatch):
    notes = Notes()
    monkeypatch.setattr("ddlsim.runs.callbacks.make_tracker", lambda name: notes)
    run = ddlsim.run(SMALL, out=tmp_path / "run", track=["tensorboard:mine"])
    about, *calls, status = notes.calls
    assert about.project == "mine" and status == "done"
    for live, recorded in zip(calls, points(run.records), strict=True):
        assert isinstance(live, Point) and live.round == recorded.round
        assert live.values == pytest.approx({name: recorded.values[name] for name in live.values})
        only_exported = ("test_loss", "train_loss", "consensus_distance")
        assert all(name.startswith(only_exported) for name in set(recorded.values) - set(live.values))


def test_two_projects_of_one_tracker_both_receive_values(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("ddlsim.runs.callbacks.make_tracker", lambda name: made.append(Notes()) or made[-1])
    ddlsim.run(SMALL, out=tmp_path / "run", track=["wandb:mine", "wandb:ours"])
    assert [notes.calls[0].project for notes in made] == ["mine", "ours"]
    assert all(notes.calls[-1] == "done" for notes in made)


def test_files_have_no_project(run):
    with pytest.raises(ScenarioError, match="--to csv: expected csv or parquet without a project"):
        export_run(run.records, "csv", project="mine")


@pytest.mark.parametrize("method", ["begin", "point", "end"])
def test_failing_tracker_is_one_warning_and_the_run_continues(tmp_path, monkeypatch, capsys, method):
    def broken(self, about):
        raise OSError("no\nroom")

    monkeypatch.setattr(Notes, method, broken)
    monkeypatch.setattr("ddlsim.runs.callbacks.make_tracker", lambda name: Notes())
    run = ddlsim.run(SMALL, out=tmp_path / "run", track="wandb")
    said = capsys.readouterr().err
    assert run.status == "done" and said.count("WARNING") == 1
    assert "the tracker wandb has failed and is ignored from now on: OSError: no room. The run continues" in said


def test_unknown_tracker_is_an_error_before_the_run(tmp_path):
    with pytest.raises(ScenarioError, match=r"--track nix: expected one of tensorboard, wandb, mlflow, trackio"):
        ddlsim.run(SMALL, out=tmp_path / "run", track=["nix"])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", TRACKERS)
def test_missing_package_is_named_with_its_extra(name, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(DataMissing, match=rf"pip install 'ddlsim\[{name}\]'"):
        make_tracker(name)


def test_tensorboard_reads_back_every_value(run, here):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    export_run(run.records, "tensorboard")
    events = EventAccumulator(str(run.dir / "tensorboard"))
    events.Reload()
    for name in ("accuracy", "accuracy_1", "bytes", "test_loss"):
        written = {event.step: event.value for event in events.Scalars(name)}
        assert written == pytest.approx(curve(run, name), rel=1e-6)
    assert events.Scalars("end/final_accuracy")[0].value == pytest.approx(run.summary["accuracy"]["all"], rel=1e-6)


def test_mlflow_reads_back_metrics_parameters_and_state(run, here):
    mlflow = pytest.importorskip("mlflow")
    export_run(run.records, "mlflow", project="mine")
    client = mlflow.MlflowClient((here / "mlruns").as_uri())
    (found,) = client.search_runs([client.get_experiment_by_name("mine").experiment_id])
    written = {metric.step: metric.value for metric in client.get_metric_history(found.info.run_id, "accuracy")}
    assert written == pytest.approx(curve(run))
    assert found.data.params["training.learning_rate"] == "0.1" and found.info.status == "FINISHED"
    assert found.data.tags["ddlsim.directory"] == str(run.dir.resolve())


def records_of(path):
    """Return the records of a W&B file: 7 bytes, then blocks of 32 KiB with pieces of CRC, length and kind."""
    data, at, whole = path.read_bytes(), 7, b""
    while at < len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or its last piece
            yield whole
            whole = b""


@pytest.mark.slow
def test_wandb_leaves_an_offline_run_with_every_value(run, here):
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    export_run(run.records, "wandb", project="mine")
    (path,) = (run.dir / "wandb").glob("offline-run-*/run-*.wandb")
    written, until = {}, time.monotonic() + 30
    while len(written) < 2 and time.monotonic() < until:  # a separate process of W&B writes it
        time.sleep(0.1)
        for data in records_of(path):
            record = Record()
            record.ParseFromString(data)
            items = {(item.key or ".".join(item.nested_key)): item.value_json for item in record.history.item}
            if "accuracy" in items:
                written[json.loads(items["round"])] = json.loads(items["accuracy"])
    assert written == pytest.approx(curve(run))


@pytest.mark.slow
def test_trackio_has_every_value_in_its_database_and_prints_none_of_it(run, here, monkeypatch, capsys):
    monkeypatch.setenv("TRACKIO_DIR", str(here / "trackio"))  # read at the first import
    pytest.importorskip("trackio")
    export_run(run.records, "trackio", project="mine")
    with sqlite3.connect(here / "trackio" / "mine.db") as database:
        rows = [json.loads(text) for (text,) in database.execute("select metrics from metrics order by id")]
    assert {row["round"]: row["accuracy"] for row in rows if "accuracy" in row} == pytest.approx(curve(run))
    assert capsys.readouterr().out == ""


def test_csv_has_a_file_per_table(run, here):
    done = CliRunner().invoke(app, ["export", str(run.dir), "--to", "csv", "-o", "tables"])
    assert done.exit_code == 0 and "tables/evaluations.csv" in done.stdout
    rows = list(csv.DictReader((here / "tables" / "evaluations.csv").open()))
    last = [float(row["value"]) for row in rows if row["metric"] == "accuracy" and row["round"] == "2"]
    assert np.mean(last) == pytest.approx(run.summary["accuracy"]["all"]) and len(last) == 3


def test_parquet_has_the_types_of_the_columns(run, here):
    parquet = pytest.importorskip("pyarrow.parquet")
    found = {path.name for path in export_run(run.records, "parquet", here / "tables")}
    assert {"evaluations.parquet", "rounds.parquet", "links.parquet", "rows.parquet"} <= found
    table = parquet.read_table(here / "tables" / "evaluations.parquet")
    assert str(table.schema.field("node").type) == "int64" and str(table.schema.field("metric").type) == "string"
    assert table.num_rows == len(run.evaluations()["value"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "export: expected --node NUMBER -o FILE for a model, --to TOOL for the records, or --trace FILE."),
        (["--node", "1", "--to", "csv"], "export: expected --node NUMBER"),
        (["--node", "1"], "export: expected --node NUMBER -o FILE"),
        (
            ["--to", "nix"],
            "--to nix: expected csv or parquet without a project, or one of tensorboard, wandb, mlflow, trackio.",
        ),
    ],
)
def test_invalid_arguments_of_export_are_one_clear_error(run, words, text):
    done = CliRunner().invoke(app, ["export", str(run.dir), *words])
    assert done.exit_code == 2 and text in done.stderr


def test_export_of_a_folder_of_runs_is_refused(tmp_path):
    done = CliRunner().invoke(app, ["export", str(tmp_path), "--node", "0", "-o", str(tmp_path / "net.safetensors")])
    assert done.exit_code == 2 and f"{tmp_path} is not a run: it has no manifest.json" in done.stderr


def test_the_last_values_of_a_run_under_attack_are_of_honest_nodes(tmp_path):
    attacked = {**SMALL, "algorithm": {"name": "dpsgd"}, "attacks": [{"name": "sign_flip", "nodes": [1]}]}
    made = ddlsim.run(attacked, out=tmp_path / "run")
    *_, last = points(read(made.dir))
    assert (
        ended_with(made.summary)["final_accuracy"]
        == last.values["accuracy"]
        == made.summary["honest"]["accuracy"]["all"]
    )
    assert made.summary["accuracy"]["all"] != made.summary["honest"]["accuracy"]["all"]
