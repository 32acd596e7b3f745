"""Errors and remaining files when a stopped run cannot be resumed."""

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
from torn_runs import SMOKE, Stopped, outcome, resume_until, run_until, run_whole

from ddlsim import runs
from ddlsim.foundation.errors import RecordsDamaged, ReplayFailed, ScenarioError
from ddlsim.foundation.interrupts import interruptible
from ddlsim.node.node import Node
from ddlsim.runs import checkpoint_files
from ddlsim.runs.branch_history import scenario_digests
from ddlsim.runs.checkpoint import Checkpoints, Every, ReplayToCheckpoint, parse_every
from ddlsim.runs.checkpoint_files import checkpoints_of
from ddlsim.runs.directory import acquire
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

EL = ("algorithm={name: el}", "rounds=6")
COMMAND = [sys.executable, "-m", "ddlsim"]
ENV = {**os.environ, "PYTHONPATH": str(SMOKE.parents[2])}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("stopped") / "torn"
    with pytest.MonkeyPatch.context() as patched:
        run_until(out, EL, 5, 1, patched)
    return out


@pytest.fixture
def torn(stopped, tmp_path) -> Path:
    """Return a run stopped after five of six rounds, with checkpoints after the last two."""
    return shutil.copytree(stopped, tmp_path / "torn")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, object]:
    """Return the outcome of the same run without interruption."""
    return run_whole(tmp_path_factory.mktemp("whole") / "run", EL)


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def change(path: Path, place: int) -> None:
    """Flip one byte of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 255
    path.write_bytes(content)


def messages_of(monkeypatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(Progress, "message", lambda self, text: said.append(text))
    return said


def test_the_last_two_checkpoints_are_kept(torn):
    assert [path.name for path in checkpoints_of(torn)] == ["round-0000005", "round-0000004"]


@pytest.mark.parametrize("name", ["state.json", "rows-0.safetensors"])
@pytest.mark.parametrize("harm", [lambda path: change(path, -9), lambda path: path.write_bytes(b""), Path.unlink])
def test_damaged_checkpoint_is_skipped_for_the_older_one(torn, monkeypatch, name, harm, whole):
    harm(checkpoints_of(torn)[0] / name)
    said = messages_of(monkeypatch)
    runs.resume(torn)
    assert f"round-0000005/{name}" in said[0] and "Trying an earlier checkpoint." in said[0]
    assert outcome(torn) == whole


def test_two_damaged_checkpoints_are_one_clear_error_and_nothing_is_changed(torn):
    change(torn / "checkpoint" / "values.log", 20)
    before = files_of(torn)
    with pytest.raises(
        RecordsDamaged, match=r"all checkpoints are damaged.*values.log.*Start the run again with --force"
    ):
        runs.resume(torn)
    assert files_of(torn) == before


def test_torn_log_after_the_checkpoint_is_ignored(torn, whole):
    with (torn / "checkpoint" / "values.log").open("ab") as file:
        file.write(b"half a frame")
    (torn / "checkpoint" / "draft").mkdir()
    (torn / "checkpoint" / "draft" / "state.json").write_text("half a checkp")
    runs.resume(torn, checkpoint_every=Every(rounds=1))
    assert outcome(torn) == whole


def test_damaged_metrics_are_written_again(torn, whole):
    (torn / "metrics.jsonl").write_bytes(b"")
    runs.resume(torn)
    assert outcome(torn) == whole


def test_irreproducible_run_is_refused_and_unchanged(torn):
    text = (torn / "scenario.yaml").read_text()
    (torn / "scenario.yaml").write_text(text.replace("local_steps: 5", "local_steps: 4"))
    manifest = json.loads((torn / "manifest.json").read_text())
    manifest["scenario_files"] = scenario_digests(torn)
    (torn / "manifest.json").write_text(json.dumps(manifest))
    before = files_of(torn)
    with pytest.raises(ReplayFailed, match=r"The replay differs from the run.*Nothing in the directory has been ch"):
        runs.resume(torn)
    assert {name for name, content in files_of(torn).items() if content != before.get(name)} <= {"log.txt"}


@pytest.mark.parametrize("keys", [{}, {"set": ["rounds=9"]}], ids=["resume", "branch"])
def test_run_with_an_edited_scenario_is_refused_and_unchanged(torn, keys):
    text = (torn / "scenario.yaml").read_text()
    (torn / "scenario.yaml").write_text(text.replace("learning_rate: 0.05", "learning_rate: 0.5"))
    before = files_of(torn)
    with pytest.raises(ScenarioError, match=r"scenario.yaml: was changed since the run began.*--set KEY=VALUE"):
        runs.resume(torn, **keys)
    assert files_of(torn) == before and "learning_rate: 0.5" in (torn / "scenario.yaml").read_text()


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_text("{}")])
def test_lost_or_damaged_samples_are_written_again(torn, tmp_path, spoil, whole):
    spoil(torn / "samples.jsonl")
    runs.resume(torn)
    assert outcome(torn) == whole


def test_failed_repetition_is_reported_once():
    error = ReplayFailed("job 3 is another.")
    assert str(type(error)(*error.args)) == str(error) and str(error).count("The replay differs") == 1


def test_process_killed_during_a_repetition_changes_nothing(torn, monkeypatch):
    before = files_of(torn)

    def stop(self, time_s):
        raise Stopped

    with monkeypatch.context() as patched, pytest.raises(Stopped):
        patched.setattr(ReplayToCheckpoint, "round", stop)
        runs.resume(torn)
    assert files_of(torn) == before


def test_changed_code_is_named_and_accepted_only_with_anyway(torn, monkeypatch, whole):
    for path in checkpoints_of(torn):
        sealed = json.loads((path / "state.json").read_text())
        sealed["state"]["made_with"]["torch"] = "0.4.1"
        (path / "state.json").write_text(json.dumps(sealed | {"crc": checkpoint_files._crc_of(sealed["state"])}))
    with pytest.raises(ScenarioError, match=r"torch was 0.4.1, is .*--anyway continues it in any case"):
        runs.resume(torn)
    runs.resume(torn, anyway=True)
    assert outcome(torn) == whole


def test_changed_data_is_refused(torn):
    manifest = json.loads((torn / "manifest.json").read_text())
    manifest["data"]["sha256"] = "00"
    (torn / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ScenarioError, match="fashion-mnist-mini has changed since the run: its SHA-256 was 00"):
        runs.resume(torn)


def test_run_without_a_checkpoint_is_reported(tmp_path, monkeypatch):
    run_until(tmp_path / "torn", EL, 2, 5, monkeypatch)
    with pytest.raises(ScenarioError, match="has no checkpoint to continue from"):
        runs.resume(tmp_path / "torn")


def test_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(ScenarioError, match=r"expected the directory of a run, got one without a manifest.json"):
        runs.resume(tmp_path)


def test_a_complete_run_is_not_run_again(torn):
    first = runs.resume(torn)
    assert runs.resume(torn) == first


def test_torn_run_needs_a_decision_before_a_new_run(torn, whole):
    with pytest.raises(ScenarioError, match=r"holds this run, unfinished. `ddlsim resume .*torn` continues it"):
        runs.run(load(SMOKE, EL), out=torn)
    runs.run(load(SMOKE, EL), out=torn, resume_torn=True)
    assert outcome(torn) == whole


def test_torn_run_of_another_scenario_is_moved_aside(torn, tmp_path):
    runs.run(load(SMOKE, ("algorithm={name: el}", "rounds=1")), out=torn)
    assert checkpoints_of(tmp_path / "torn.earlier-1")


def test_force_starts_a_torn_run_again(torn, tmp_path, whole):
    runs.run(load(SMOKE, EL), out=torn, force=True)
    assert outcome(torn) == whole and checkpoints_of(tmp_path / "torn.earlier-1")


def test_a_directory_in_use_is_not_resumed(torn):
    lock = acquire(torn)
    with pytest.raises(ScenarioError, match="a run has been writing into it since"):
        runs.resume(torn)
    lock.release()


def test_network_only_run_makes_no_checkpoints_and_restarts(tmp_path, monkeypatch):
    settings = (*EL, "learning=none")
    run_until(tmp_path / "torn", settings, 3, 1, monkeypatch)
    assert not (tmp_path / "torn" / "checkpoint").exists()
    with pytest.raises(ScenarioError, match="has no checkpoint to continue from"):
        runs.resume(tmp_path / "torn")


@pytest.mark.parametrize(
    ("text", "every"),
    [("1s", Every(1.0)), ("10m", Every(600.0)), ("1.5h", Every(5400.0)), ("50r", Every(rounds=50)), ("0", Every())],
)
def test_checkpoint_interval_is_a_time_or_a_number_of_rounds(text, every):
    assert parse_every(text) == every


@pytest.mark.parametrize("text", ["", "10", "m", "0r", "1.5r", "-1s", "10 minutes", "nans"])
def test_invalid_checkpoint_intervals_are_refused(text):
    with pytest.raises(ScenarioError, match=r"expected 30s, 10m or 1h, 50r .rounds. or 0"):
        parse_every(text)


def test_a_signal_while_a_checkpoint_is_due_waits_for_the_next_one(tmp_path, monkeypatch, whole):
    due = Checkpoints.round

    def round_with_a_signal(self, *args, **kwargs):
        due(self, *args, **kwargs)
        if not kwargs["now"]:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Checkpoints, "round", round_with_a_signal)
    assert runs.run(load(SMOKE, EL), out=tmp_path / "torn")["status"] == "interrupted"
    assert checkpoints_of(tmp_path / "torn")
    monkeypatch.undo()
    runs.resume(tmp_path / "torn")
    assert outcome(tmp_path / "torn") == whole


@pytest.mark.full
def test_signal_ends_a_run_after_its_round_and_resume_continues(tmp_path):
    out, settings = tmp_path / "torn", ("algorithm={name: el}", "rounds=40", "evaluation={every: 1, samples: 50}")
    words = ["run", str(SMOKE), *(word for text in settings for word in ("--set", text)), "--out", str(out), "-q"]
    process = subprocess.Popen([*COMMAND, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=ENV)
    while not ((out / "metrics.jsonl").is_file() and (out / "metrics.jsonl").stat().st_size):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130 and f"`ddlsim resume {out}` continues it." in said
    again = subprocess.run([*COMMAND, "resume", str(out), "-q"], capture_output=True, env=ENV, text=True)
    assert again.returncode == 0, again.stderr
    assert outcome(out) == run_whole(tmp_path / "whole", settings)


def test_simultaneous_signals_wait_for_the_round_and_a_later_signal_does_not(monkeypatch):
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    with interruptible() as interrupts:
        interrupts.wait_for_round()
        interrupts.handle(signal.SIGINT, None)
        now_s[0] += 0.1
        interrupts.handle(signal.SIGTERM, None)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        now_s[0] += 1.0
        with pytest.raises(KeyboardInterrupt):
            interrupts.handle(signal.SIGINT, None)


def test_signal_in_the_round_of_a_node_ends_the_run_before_later_rounds(tmp_path, monkeypatch):
    begun = []

    def interrupted(self, round_num):
        begun.append(self.id)
        raise KeyboardInterrupt

    monkeypatch.setattr(Node, "peers", interrupted)
    assert runs.run(load(SMOKE, ("learning=none",)), out=tmp_path / "run")["status"] == "interrupted"
    assert len(begun) == 1


@pytest.mark.full
def test_disk_full_only_for_checkpoints_does_not_end_a_run(tmp_path):
    out, settings = tmp_path / "run", ("algorithm={name: el}", "model={name: mlp, hidden: [128]}", "rounds=4")
    words = ["run", str(SMOKE), *(word for text in settings for word in ("--set", text)), "--out", str(out)]
    limit = 300_000  # largest file size in bytes; the operating system refuses more, like a full disk
    ended = subprocess.run(
        [*COMMAND, *words, "--checkpoint-every", "1r", "--set", "records.models=none"],
        capture_output=True,
        text=True,
        env=ENV,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("WARNING: no checkpoint can be written to") == 1
    assert "earlier checkpoints are kept" in ended.stderr
    assert outcome(out) == run_whole(tmp_path / "whole", (*settings, "records.models=none"))


@pytest.mark.full
def test_run_ended_by_a_full_disk_has_a_usable_checkpoint(tmp_path):
    out = tmp_path / "run"
    small = ("algorithm={name: el}", "model={name: mlp, hidden: [1]}", "records.models=none")
    settings = (*small, "rounds=100", "evaluation={every: 1, samples: 50}")
    words = ["run", str(SMOKE), *(word for text in settings for word in ("--set", text)), "--out", str(out), "-q"]
    limit = 200_000  # more than the parameters need, less than the records
    ended = subprocess.run(
        [*COMMAND, *words, "--checkpoint-every", "2r"],
        capture_output=True,
        text=True,
        env=ENV,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert ended.returncode == 1 and f"Make room first. `ddlsim resume {out}` continues it." in ended.stderr
    runs.resume(out)
    assert outcome(out) == run_whole(tmp_path / "whole", settings)


def test_second_stop_before_a_checkpoint_resumes_from_the_same_one(torn, monkeypatch, whole):
    resume_until(torn, 1, 9, monkeypatch)
    assert checkpoints_of(torn)[0].name == "round-0000005"
    runs.resume(torn)
    assert outcome(torn) == whole
