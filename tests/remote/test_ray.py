"""Runs with real actors of Ray: the same bytes, also when one of their processes is killed."""

import json
import os
import signal

import pytest
from torn_runs import SMOKE, outcome, run_whole

from ddlsim import runs
from ddlsim.executors import cluster
from ddlsim.executors.options import Executor
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

ray = pytest.importorskip("ray", reason="the extra ray is not installed")

SETTINGS = ("algorithm={name: facade, heads: 2, warmup_rounds: 1}",)
TWO = Executor(name="ray", workers=2, cpus_per_worker=1, object_store_gb=0.1)


@pytest.fixture(scope="module", autouse=True)
def connected():
    with cluster.disconnecting(TWO):
        cluster.connect(TWO)
        yield


def test_a_run_survives_a_killed_worker_and_writes_the_same_bytes(tmp_path, monkeypatch):
    whole = run_whole(tmp_path / "whole", SETTINGS)
    out, told, killed = tmp_path / "run", Progress.round, []

    def kill_one(self, completed, *rest):
        told(self, completed, *rest)
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


def test_a_cluster_that_is_started_here_is_reachable_from_this_machine_alone():
    assert [node["NodeManagerAddress"] for node in ray.nodes()] == ["127.0.0.1"]
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


def test_runs_of_a_sweep_come_back_as_they_end_and_a_failure_is_told(tmp_path):
    from ddlsim.sweeps.on_ray import Resources, run_points
    from ddlsim.sweeps.points import Point

    fits = load(SMOKE, ("rounds=1", "seed=3"))
    fails = load(SMOKE, ("rounds=1", "data={name: npz, path: /nowhere.npz}", "fallback=null", "shift={name: none}"))
    points = [Point("fits", tmp_path / "fits", fits), Point("fails", tmp_path / "fails", fails)]
    ended = {found.job.name: found for found in run_points(points, TWO, Resources(), {"checkpoint_every": Every()})}
    assert (ended["fits"].code, ended["fails"].code) == (0, 3)
    assert "npz is not on this machine" in ended["fails"].cause
    runs.run(fits, out=tmp_path / "here")
    assert outcome(tmp_path / "fits") == outcome(tmp_path / "here")
