"""The profile of wall time."""

from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from ddlsim import runs
from ddlsim.cli import app
from ddlsim.learning.backends.base import Dispatcher
from ddlsim.learning.bank import lazy_values
from ddlsim.learning.job_types import LossSpec
from ddlsim.learning.jobs import Job, Jobs
from ddlsim.report.summary_table import table
from ddlsim.runs.manifest import wall_profile
from ddlsim.scenario import load

SMOKE = Path(__file__).parent / "helpers" / "smoke.yaml"
PARTS = ["setup", "data", "training", "head losses", "evaluation", "merging", "similarity"]


def test_event_loop_has_the_remaining_seconds():
    found = wall_profile({"training": 3.0, "merging": 1.0}, 0.5, 1.5, 0.25, {"wall_s": 8.0, "sim_time_s": 40.0})
    assert found == {
        "setup": 0.5,
        "data": 1.5,
        "training": 3.0,
        "head losses": 0.0,
        "evaluation": 0.0,
        "merging": 1.0,
        "similarity": 0.0,
        "recording": 0.25,
        "event loop": 1.75,
        "total": 8.0,
        "simulated to wall": 5.0,
    }


@pytest.mark.parametrize("learning", ["real", "none"])
def test_profile_lists_all_parts_and_they_add_up(tmp_path, learning):
    summary = runs.run(load(SMOKE, ("rounds=2", f"learning={learning}")), out=tmp_path / "run", profile=True)
    found = dict(summary["profile"])
    assert list(found)[: len(PARTS)] == PARTS
    total_s, rate = found.pop("total"), found.pop("simulated to wall")
    assert sum(found.values()) == pytest.approx(total_s, abs=0.01)
    assert min(found.values()) >= 0 and found["recording"] > 0 and found["event loop"] > 0
    assert (found["training"] > 0) == (found["merging"] > 0) == (found["head losses"] > 0) == (learning == "real")
    assert rate == pytest.approx(summary["sim_time_s"] / total_s, rel=0.01)
    assert all(any(part in line for line in table(summary).splitlines()) for part in found)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("{name: mlp, hidden: [32]}", None),
        ("{name: mlp, hidden: [32], dropout: 0.1}", None),
        pytest.param("{name: resnet8}", "core.3 is a ResidualBlock", marks=pytest.mark.full),
    ],
)
def test_run_reports_why_models_do_not_train_natively(tmp_path, model, reason):
    few = ("rounds=1", "nodes.clusters=[2]", "topology={name: complete}", "evaluation.samples=50")
    scenario = load(SMOKE, ("algorithm={name: el}", f"model={model}", "training.local_steps=1", *few))
    summary = runs.run(scenario, out=tmp_path / "run", profile=True)
    fallback_counts = summary["fallback_counts"].get("native", {})
    assert fallback_counts.get(f"training: {reason}", 0) == (2 if reason else 0)
    assert (f"2 times: training: {reason}" in table(summary)) == (reason is not None)


def test_command_prints_the_profile(tmp_path):
    words = ["run", str(SMOKE), "--set", "rounds=2", "--set", "algorithm={name: dac, sampled_peers: 2}", "--profile"]
    done = CliRunner().invoke(app, [*words, "-q", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    for part in [*PARTS, "event loop", "recording", "simulated to wall"]:
        assert any(part in line for line in done.stdout.splitlines()), part


@pytest.mark.parametrize("algorithm", ["dac, sampled_peers: 4, similarity: cosine_weights", "mapl, warmup_rounds: 0"])
def test_comparing_models_is_counted_as_similarity(tmp_path, algorithm):
    scenario = load(SMOKE, ("rounds=2", f"algorithm={{name: {algorithm}}}"))
    found = runs.run(scenario, out=tmp_path / "run", profile=True)["profile"]
    assert found["similarity"] > 0
    assert "comparison" not in found


def test_profile_is_silent_without_the_option(tmp_path):
    assert "profile" not in runs.run(load(SMOKE, ("rounds=1",)), out=tmp_path / "run")


def test_seconds_of_device_and_host_are_listed(tmp_path, monkeypatch):
    monkeypatch.setattr(Dispatcher, "device_s", lambda self: {"training": 1.25})
    summary = runs.run(load(SMOKE, ("rounds=1",)), out=tmp_path / "run", profile=True)
    assert summary["device_seconds"] == {"training": 1.25}
    assert any(
        line.split()[:3] == ["device", "s,", "training"] and "1.25" in line for line in table(summary).splitlines()
    )


def test_waiting_for_a_device_is_listed_separately(monkeypatch):
    monkeypatch.setattr("ddlsim.learning.jobs.time", SimpleNamespace(perf_counter=count(0.0, 2.0).__next__))
    jobs = Jobs(["head losses"], lambda kind, specs: lazy_values(lambda: [7], 1))
    job = jobs.submit(Job(LossSpec(node=0, models=(), batches=()), (), ()))
    assert jobs.values([job]) == [7]
    assert jobs.wall_s == {"head losses": 2.0, "waiting for values": 2.0}
