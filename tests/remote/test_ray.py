"""Runs with real actors of Ray: the same bytes, also when one of their processes is killed."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from kept_actors import kept_actors
from lost_runs import KILLED, until
from remote_settings import CHURN, EXECUTORS, settings_of
from torn_runs import SMOKE, outcome, run_whole
from typer.testing import CliRunner

from ddlsim import runs
from ddlsim.algorithms import ALGORITHMS
from ddlsim.cli import app, sweep
from ddlsim.cli.exits import INTERRUPTED
from ddlsim.foundation.errors import DdlsimError
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.checkpoint_files import FOLDER
from ddlsim.runs.cluster import cluster
from ddlsim.runs.cluster.cluster import Executor, versions
from ddlsim.runs.cluster.ray_workers import RayWorkers
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

SETTINGS = ("algorithm={name: facade, heads: 2, warmup_rounds: 1}",)
TWO = Executor(name="ray", workers=2, cpus_per_worker=1, object_store_gb=0.1)
ONE = Executor(name="ray", workers=1, cpus_per_worker=1)


@pytest.fixture(scope="module", autouse=True)
def connected():
    with cluster.disconnecting(TWO):
        cluster.connect(TWO, cpus=3)
        yield


@pytest.mark.full
def test_a_run_survives_a_killed_worker_and_writes_the_same_bytes(tmp_path, monkeypatch):
    whole = run_whole(tmp_path / "whole", SETTINGS)
    out, report_round, killed = tmp_path / "run", Progress.round, []

    def kill_one(self, completed, *rest):
        report_round(self, completed, *rest)
        if completed == 4 and not killed:
            workers = json.loads((out / "manifest.json").read_text())["executor"]["workers"]
            killed.append(workers[1]["pid"])
            os.kill(killed[0], signal.SIGKILL)

    monkeypatch.setattr(Progress, "round", kill_one)
    runs.run(load(SMOKE, SETTINGS), out=out, executor=TWO, checkpoint_every=Every(rounds=2))
    assert outcome(out) == whole
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["resumed_after_rounds"] == [4]
    assert killed[0] not in [worker["pid"] for worker in manifest["executor"]["workers"]]


def on_ray(out, scenario, executor):
    runs.run(scenario, out=out, executor=executor, checkpoint_every=Every())
    return outcome(out), json.loads((out / "manifest.json").read_text())["executor"]


NET = """
from dataclasses import dataclass
from torch import nn
from ddlsim.models.base import ModelSettings

@dataclass(frozen=True, kw_only=True)
class Net(ModelSettings):
    def build(self, input_shape, num_classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 4), nn.ReLU(), nn.Linear(4, num_classes))
"""


def before_workers_start(monkeypatch, act):
    """Call `act` when the driver has its data and parts and the workers have none."""
    start = RayWorkers.start

    def acting(self, assigned, prepared):
        act()
        start(self, assigned, prepared)

    monkeypatch.setattr(RayWorkers, "start", acting)


@pytest.fixture
def own(tmp_path):
    """Return settings with a new data file and a new model file."""
    images, labels = np.zeros((160, 28, 28), np.uint8), np.arange(160) % 10
    images[np.arange(160), labels] = 255
    np.savez(tmp_path / "own.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    (tmp_path / "mine.py").write_text(NET)
    named = (f"data={{name: npz, path: {tmp_path}/own.npz}}", f"model={{name: '{tmp_path}/mine.py:Net'}}")
    return ("rounds=2", "algorithm={name: el}", "shift={name: none}", *named)


@pytest.mark.full
def test_missing_data_and_parts_are_sent_to_a_host(tmp_path, monkeypatch, own):
    whole = run_whole(tmp_path / "here", own)
    before_workers_start(monkeypatch, lambda: [(tmp_path / name).unlink() for name in ("own.npz", "mine.py")])
    found, about = on_ray(tmp_path / "there", load(SMOKE, own), ONE)
    assert found == whole
    assert about["data_shipped"]


@pytest.mark.full
def test_different_data_on_a_host_is_refused(tmp_path, monkeypatch, own):
    ones = np.ones((160, 28, 28), np.uint8)
    other = {"x_train": ones, "y_train": np.arange(160) % 10, "x_test": ones, "y_test": np.arange(160) % 10}
    before_workers_start(monkeypatch, lambda: np.savez(tmp_path / "own.npz", **other))
    with pytest.raises(DdlsimError, match=r"npz has changed since the run: its SHA-256"):
        on_ray(tmp_path / "run", load(SMOKE, own), ONE)


@pytest.mark.full
def test_hosts_with_another_version_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("ddlsim.runs.cluster.cluster.versions", lambda: {**versions(), "torch": "1.0"})
    with pytest.raises(DdlsimError, match=r"has other versions: torch 1.0 here, .* there"):
        on_ray(tmp_path / "run", load(SMOKE, SETTINGS), ONE)


@pytest.mark.full
def test_attacks_on_samples_and_models_are_the_same_on_ray(tmp_path):
    settings = (
        "attacks=[{name: sign_flip, nodes: [1]}, {name: label_flip, nodes: [5, 6]}]",
        "aggregation={name: trimmed_mean}",
        "algorithm={name: el}",
        "rounds=3",
    )
    assert on_ray(tmp_path / "there", load(SMOKE, settings), TWO)[0] == run_whole(tmp_path / "here", settings)


@pytest.fixture(scope="module")
def actors(connected):
    with pytest.MonkeyPatch.context() as monkeypatch, kept_actors(monkeypatch):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), CHURN], ids=["rounds", "async-churn"])
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_algorithm_writes_the_same_bytes_on_ray(tmp_path, actors, algorithm, settings):
    settings = (settings_of(algorithm), *settings)
    whole = run_whole(tmp_path / "whole", settings)
    for number, executor in enumerate(EXECUTORS):
        found, about = on_ray(tmp_path / f"there-{number}", load(SMOKE, settings), executor)
        assert found == whole, executor
        assert len(about["workers"]) == executor.workers
        assert os.getpid() not in [worker["pid"] for worker in about["workers"]]


@pytest.mark.slow
def test_killed_command_leaves_no_process_and_is_resumed(tmp_path):
    settings = (*SETTINGS, "rounds=200", "evaluation.every=50")
    whole = run_whole(tmp_path / "whole", settings)
    out = tmp_path / "run"
    changes = [word for setting in settings for word in ("--set", setting)]
    there = ["--executor", "ray", "--workers", "2", "--cpus-per-worker", "1"]
    command = [sys.executable, "-m", "ddlsim", "run", str(SMOKE), *changes, "--out", str(out), *there]
    before = raylets()
    process = subprocess.Popen([*command, "-q", "--checkpoint-every", "5r"], stdout=subprocess.DEVNULL)
    until(lambda: any((out / FOLDER).glob("round-*")), 120)
    process.kill()
    process.wait()
    assert not (out / "summary.json").exists(), "the run was over before it was killed"
    until(lambda: raylets() <= before, 60)
    resume = [sys.executable, "-m", "ddlsim", "resume", str(out), *there, "-q"]
    subprocess.run(resume, check=True, stdout=subprocess.DEVNULL)
    assert outcome(out) == whole


def raylets() -> set[str]:
    """Return the process ids of all raylets of this machine."""
    found = subprocess.run(["pgrep", "-x", "raylet"], capture_output=True, text=True, check=False)
    return set(found.stdout.split())


@pytest.mark.full
def test_local_cluster_is_reachable_only_from_this_machine():
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


@pytest.mark.full
def test_runs_of_a_sweep_return_as_they_end_and_report_failures(tmp_path):
    from ddlsim.runs.sweeps.points import Point
    from ddlsim.runs.sweeps.pool import Resources, run_points

    fits = load(SMOKE, ("rounds=1", "seed=3"))
    fails = load(SMOKE, ("rounds=1", "data={name: npz, path: /nowhere.npz}", "fallback=null", "shift={name: none}"))
    points = [Point("fits", tmp_path / "fits", fits), Point("fails", tmp_path / "fails", fails)]
    ended = {found.name: found for found in run_points(points, TWO, Resources(), {"checkpoint_every": Every()})}
    assert (ended["fits"].code, ended["fails"].code) == (0, 3)
    assert "npz is not on this machine" in ended["fails"].cause
    runs.run(fits, out=tmp_path / "here")
    assert outcome(tmp_path / "fits") == outcome(tmp_path / "here")


@pytest.mark.full
def test_sweep_restarts_a_killed_run_and_continues_after_an_interrupt(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(KILLED)
    mark, out = tmp_path / "mark", tmp_path / "sweep"
    settings = (f"algorithm={{name: '{tmp_path}/mine.py:Killed', mark: {mark}}}", "rounds=2")
    command = ["sweep", str(SMOKE), "--seeds", "1,2", "--out", str(out), "--executor", "ray", "--cpus-per-run", "3"]
    command += [word for setting in settings for word in ("--set", setting)]

    def interrupt(text):
        if text.startswith("[1/2]"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sweep, "say", interrupt)
        assert CliRunner().invoke(app, command).exit_code == INTERRUPTED
    assert mark.exists(), "no process was killed"
    (ended,) = out.glob("seed-*/summary.json")
    before = ended.stat()
    again = CliRunner().invoke(app, command)
    assert again.exit_code == 0, again.output
    assert "1 of 2 runs exist already" in again.output
    assert (ended.stat().st_ino, ended.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    for seed in (1, 2):
        assert outcome(out / f"seed-{seed}") == run_whole(tmp_path / f"here-{seed}", (*settings, f"seed={seed}"))
