"""Records of a run after external failures: signals, full disks, lost directories, closed streams."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddlsim import runs
from ddlsim.engine.simulation import Simulation
from ddlsim.foundation.errors import RecordsFailed
from ddlsim.report.summary import summarize
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

ROOT = Path(__file__).parents[2]
SMOKE = str(ROOT / "tests" / "helpers" / "smoke.yaml")
EL = "algorithm={name: el}"
COMMAND = [sys.executable, "-m", "ddlsim"]
ENV = {**os.environ, "PYTHONPATH": str(ROOT)}


def after_round(monkeypatch, number, act):
    """Call a function once when all nodes have completed so many rounds."""
    complete, done = Simulation._complete, []

    def then_act(self, node):
        complete(self, node)
        if self._run.completed_by_all == number and not done:
            done.append(True)
            act()

    monkeypatch.setattr(Simulation, "_complete", then_act)


def heeds_hangup():
    """Restore the handling of SIGHUP, even if the tests were started by nohup."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def under_way(tmp_path):
    """Start a long run in another process and wait for its first rows."""
    started = []

    def start(*words, **options):
        out = tmp_path / "run"
        command = [*COMMAND, "run", SMOKE, "--set", "rounds=2000", "--set", EL, "--out", str(out), "-q", *words]
        options = {"preexec_fn": heeds_hangup, **options}
        process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=ENV, **options)
        started.append(process)
        while not ((out / "metrics.jsonl").is_file() and (out / "metrics.jsonl").stat().st_size):
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.05)
        return process, out

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.full
def test_second_run_into_a_directory_is_refused_without_harm(under_way):
    first, out = under_way()
    second = subprocess.run(
        [*COMMAND, "run", SMOKE, "--set", "rounds=1", "--out", str(out)], capture_output=True, env=ENV, text=True
    )
    assert second.returncode == 2
    assert "a run has been writing into it since 20" in second.stderr and f"(process {first.pid} on" in second.stderr
    assert first.poll() is None
    assert json.loads((out / "manifest.json").read_text())["rounds"] == 2000


@pytest.mark.full
@pytest.mark.parametrize("signals", [["SIGINT"], ["SIGTERM"], ["SIGHUP"], ["SIGINT", "SIGINT", "SIGTERM", "SIGINT"]])
def test_repeated_signals_end_a_run_with_complete_records(under_way, signals):
    process, out = under_way()
    for name in signals:
        process.send_signal(getattr(signal, name))
        time.sleep(0.02)
    assert process.wait(60) == 130, process.stderr.read()
    assert json.loads((out / "summary.json").read_text())["status"] == "interrupted"
    assert {path.name for path in out.iterdir()} >= {"communication.jsonl", "links.jsonl", "contents.jsonl"}
    assert b"Interrupted. The records so far are in" in process.stderr.read()


def test_interrupt_swallowed_by_a_destructor_ends_the_run_at_the_next_round(tmp_path, monkeypatch):
    class Dying:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    after_round(monkeypatch, 2, Dying)
    rounds = []
    monkeypatch.setattr(Progress, "round", lambda self, completed, *_: rounds.append(completed))
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    summary = runs.run(load(SMOKE, (EL, "rounds=20")), out=tmp_path / "run")
    assert summary["status"] == "interrupted" and max(rounds) <= 3


@pytest.mark.full
def test_ignored_signal_stays_ignored(under_way):
    process, _ = under_way(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))  # as under nohup
    process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    assert process.poll() is None


@pytest.mark.full
def test_closed_progress_pipe_does_not_end_the_run(tmp_path):
    words = [*COMMAND, "run", SMOKE, "--set", "rounds=3", "--set", EL, "--out", str(tmp_path / "run")]
    read, write = os.pipe()
    os.close(read)
    code = subprocess.run(words, stdout=write, stderr=write, env=ENV).returncode
    os.close(write)
    assert code == 1  # the summary could not be printed
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "done"


@pytest.mark.full
def test_a_run_without_standard_error_runs_and_keeps_it_out_of_its_records(tmp_path):
    words = [*COMMAND, "run", SMOKE, "--set", "rounds=1", "--set", EL, "--out", str(tmp_path / "run")]
    done = subprocess.run(words, stdout=subprocess.PIPE, env=ENV, preexec_fn=lambda: os.close(2))
    assert done.returncode == 0 and b"accuracy" in done.stdout
    assert all(json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").open())


@pytest.mark.full
@pytest.mark.parametrize("limit", [7_000, 40_000])
def test_a_full_disk_ends_in_one_sentence_and_keeps_whole_rows(tmp_path, limit):
    # Largest file size in bytes, as on a full disk. An evaluation of 16 nodes has 9,000 bytes.
    settings = ["rounds=50", EL, "nodes.clusters=[12, 4]"]
    words = [*COMMAND, "run", SMOKE, *(word for each in settings for word in ("--set", each))]
    words += ["--out", str(tmp_path / "run"), "-q"]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        env=ENV,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "metrics.jsonl cannot be written: File too large. The run has failed; " in done.stderr
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    assert text.endswith("\n") and all(json.loads(line) for line in text.splitlines())
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["status"] == "failed"
    reached = summary["evaluated_round"]
    kept = "no usable records are in" if reached is None else f"evaluations up to round {reached} are in"
    assert kept in done.stderr and (reached is None) == (limit == 7_000)


def test_run_on_a_full_disk_leaves_no_first_files(tmp_path, monkeypatch):
    def full(directory, scenario):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(runs.directory, "write_scenario", full)
    with pytest.raises(RecordsFailed, match=r"No space left on device.*no usable records are in"):
        runs.run(load(SMOKE, (EL, "rounds=1")), out=tmp_path / "run")
    monkeypatch.undo()
    assert runs.run(load(SMOKE, (EL, "rounds=1")), out=tmp_path / "run")["status"] == "done"


@pytest.mark.parametrize("replaced", [False, True])
def test_removed_directory_ends_the_run_at_the_next_round(tmp_path, monkeypatch, replaced):
    out, rounds = tmp_path / "run", []

    def remove():
        shutil.rmtree(out)
        if replaced:
            out.mkdir()
            (out / "mine.txt").write_text("mine")

    after_round(monkeypatch, 2, remove)
    monkeypatch.setattr(Progress, "round", lambda self, completed, *_: rounds.append(completed))
    with pytest.raises(RecordsFailed, match="removed or replaced"):
        runs.run(load(SMOKE, (EL, "rounds=20")), out=out)
    assert max(rounds) <= 3
    assert not out.exists() or [path.name for path in out.iterdir()] == ["mine.txt"]


def test_diverged_training_is_reported_during_the_run_and_in_the_summary(tmp_path, capsys):
    summary = runs.run(
        load(SMOKE, (EL, "rounds=2", "evaluation.every=1", "training.learning_rate=1e30")), out=tmp_path / "run"
    )
    assert summary["diverged"] == {"nodes": list(range(8)), "round": 1}
    assert any("DIVERGED: the loss of 8 of 8 nodes (node 0, 1," in label for label in summary["labels"])
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("WARNING")]
    assert len(warned) == 1 and "after round 1 the loss of nodes 0, 1, 2, 3, 4, 5, 6 and 7 is not a finite" in warned[0]


def test_converging_training_is_not_reported_as_diverged(tmp_path):
    summary = runs.run(load(SMOKE, (EL, "rounds=1")), out=tmp_path / "run")
    assert summary["diverged"] is None and summary["labels"] == []


def test_moving_an_earlier_run_is_reported(tmp_path, capsys):
    for seed in (0, 1):
        runs.run(load(SMOKE, (EL, "rounds=1", f"seed={seed}", "learning=none")), out=tmp_path / "run")
    assert capsys.readouterr().err.endswith(f"run held an earlier run; it is now {tmp_path / 'run'}.earlier-1.\n")


def test_manifest_contains_the_length_of_each_file(tmp_path):
    runs.run(load(SMOKE, (EL, "rounds=1", "learning=none")), out=tmp_path / "run")
    sizes = json.loads((tmp_path / "run" / "manifest.json").read_text())["files"]
    assert sizes == {path.name: path.stat().st_size for path in (tmp_path / "run").glob("*.jsonl")}
    assert summarize(tmp_path / "run")["labels"] == [
        "learning: none: only the network ran; where learned values steer, every loss was taken as equal"
    ]
