"""A run on workers writes the bytes of one process, for any assignment of nodes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from remote_settings import CHURN, EXECUTORS, settings_of
from torn_runs import SMOKE, outcome, resume_until, run_until, run_whole
from workers_here import workers_here

from ddlsim import runs
from ddlsim.algorithms import ALGORITHMS
from ddlsim.foundation.errors import DdlsimError
from ddlsim.runs import loading
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.cluster.cluster import Executor
from ddlsim.runs.loading import read_data
from ddlsim.scenario import load

KEPT = ("training.optimizer=adam", "training.optimizer_state=kept", "training.learning_rate=0.001")
FEATURES = {
    "compressed copies and early stopping": (
        *KEPT,
        "network.compression={name: top_k}",
        "validation={source: node, fraction: 0.2}",
        "training.early_stopping={patience: 2}",
    ),
    "best model and a robust average": (
        "validation={source: node, fraction: 0.2}",
        "evaluation.evaluated_model=best",
        "aggregation={name: median}",
        "training.learning_rate={name: uniform, low: 0.02, high: 0.1}",
        "training.batch_size={name: choice, values: [4, 8]}",
        "training.local_steps=[3, 5, 4, 5, 5, 3, 5, 5]",
        "participation=0.75",
    ),
    "attacks and a rule that guards": (
        "attacks=[{name: sign_flip, nodes: [1]}, {name: alie, nodes: [2, 3], knowledge: neighbors}, "
        "{name: backdoor, nodes: [5], start_round: 2}, {name: label_flip, nodes: [6]}]",
        "aggregation={name: trimmed_mean}",
    ),
    "target": ("evaluation.stop_at_target=true", "evaluation.target_accuracy=0.3", "evaluation.every=1"),
}


FULL = pytest.mark.full


def read_on_another_host(scenario, data_dir):
    """Simulate a host with a different partition file."""
    path = Path(scenario.partition.path)
    path.write_text(json.dumps(json.loads(path.read_text())[::-1]))
    return read_data(scenario, data_dir)


def on_workers(out, settings, executor, **options):
    runs.run(load(SMOKE, settings), out=out, executor=executor, checkpoint_every=Every(), **options)
    return outcome(out)


def check(tmp_path, monkeypatch, settings, executors) -> None:
    whole = run_whole(tmp_path / "whole", settings)
    with workers_here(monkeypatch):
        for number, executor in enumerate(executors):
            assert on_workers(tmp_path / f"workers-{number}", settings, executor) == whole


def three(shards="contiguous") -> Executor:
    return Executor(name="ray", workers=3, shards=shards)


@pytest.mark.parametrize(
    "algorithm",
    ["facade", "mapl", *(pytest.param(name, marks=FULL) for name in ("dac", "fedproto", "fedavg", "gossip"))],
)
def test_three_workers_write_the_bytes_of_one_process(tmp_path, monkeypatch, algorithm):
    check(
        tmp_path,
        monkeypatch,
        (settings_of(algorithm), "evaluation={every: 3, samples: 200}", "rounds=4"),
        [three("graph")],
    )


@pytest.mark.parametrize("feature", FEATURES)
def test_local_state_of_a_node_is_on_its_worker(tmp_path, monkeypatch, feature):
    check(tmp_path, monkeypatch, (settings_of("el"), *FEATURES[feature]), [three("clusters")])


@pytest.mark.slow
def test_local_buffers_stay_with_the_worker_of_their_node(tmp_path, monkeypatch):
    settings = ("model={name: resnet8, buffers: local}", "rounds=2", "training.local_steps=1", "evaluation.every=2")
    check(tmp_path, monkeypatch, (settings_of("el"), *settings), [three("clusters")])


@pytest.mark.slow
@pytest.mark.parametrize("settings", [(), CHURN], ids=["rounds", "async-churn"])
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_any_number_of_workers_and_shards_writes_the_same_bytes(tmp_path, monkeypatch, algorithm, settings):
    check(tmp_path, monkeypatch, (settings_of(algorithm), *settings), EXECUTORS)


def test_host_with_different_samples_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "parts.json"
    path.write_text(json.dumps(np.arange(800).reshape(8, 100).tolist()))
    settings = (settings_of("el"), f"partition={{name: file, path: {path}}}", "shift={name: none}")
    monkeypatch.setattr(loading, "read_data", read_on_another_host)
    message = "partition: samples of each node has changed since the run"
    with workers_here(monkeypatch), pytest.raises(DdlsimError, match=message):
        on_workers(tmp_path / "run", settings, three())


@pytest.mark.full
def test_run_of_workers_is_resumed_by_one_process_and_vice_versa(tmp_path, monkeypatch):
    settings = (settings_of("facade"), *KEPT, "training.local_steps=2", "evaluation.samples=200")
    whole = run_whole(tmp_path / "whole", settings)
    with workers_here(monkeypatch):
        run_until(tmp_path / "a", settings, 3, 2, monkeypatch, executor=three())
        run_until(tmp_path / "b", settings, 3, 2, monkeypatch)
        resume_until(tmp_path / "b", 2, 1, monkeypatch, executor=three())
        runs.resume(tmp_path / "b", executor=Executor(name="ray", workers=2))
    runs.resume(tmp_path / "a")
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b") == whole


def test_a_lost_worker_costs_the_rounds_since_the_last_checkpoint(tmp_path, monkeypatch):
    settings = (settings_of("facade"),)
    whole = run_whole(tmp_path / "whole", settings)
    with workers_here(monkeypatch, lost_at=(60,)) as made:
        runs.run(load(SMOKE, settings), out=tmp_path / "run", executor=three(), checkpoint_every=Every(rounds=1))
    assert [workers.count for workers in made] == [3, 2]
    assert outcome(tmp_path / "run") == whole


@pytest.mark.full
def test_worker_lost_before_the_first_checkpoint_restarts_the_run(tmp_path, monkeypatch):
    settings = (settings_of("el"),)
    whole = run_whole(tmp_path / "whole", settings)
    with workers_here(monkeypatch, lost_at=(5,)):
        assert on_workers(tmp_path / "run", settings, three()) == whole


@pytest.mark.full
def test_repeated_losses_of_workers_end_the_run_with_one_error(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["ddlsim.runs.run"], "PAUSE_S", 0.0)  # ddlsim.runs.run is a function
    with (
        workers_here(monkeypatch, lost_at=range(5, 999)),
        pytest.raises(Exception, match="5 losses without a new checkpoint"),
    ):
        on_workers(tmp_path / "run", (settings_of("el"),), three())
