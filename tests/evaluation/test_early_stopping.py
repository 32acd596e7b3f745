"""The best model by validation loss, patience, and both in runs of the smoke scenario."""

import json
from pathlib import Path

import pytest

pytest.importorskip("simpy")
from ddlsim import runs
from ddlsim.node.candidates import BestModel
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
VALIDATION = "validation={source: node, fraction: 0.2}"


def after(losses, patience=2) -> BestModel:
    best = BestModel(patience)
    for number, loss in enumerate(losses):
        best.trained((f"model {number}",), number)
        best.resolve(lambda job, loss=loss: [loss])
    return best


def test_best_training_is_the_first_of_equal_losses():
    best = after([3.0, 1.0, 2.0, 1.0], patience=None)
    assert (best.model, best.loss, best.run_out) == (("model 1",), 1.0, False)


@pytest.mark.parametrize(
    ("losses", "over"), [([3.0, 3.0], False), ([3.0, 3.0, 3.0], True), ([3.0, 4.0, 2.0, 4.0], False)]
)
def test_patience_counts_trainings_without_a_lower_loss(losses, over):
    assert after(losses).run_out is over


def test_node_with_lost_state_restarts():
    best = after([3.0, 4.0, 4.0])
    best.forget()
    assert (best.model, best.run_out) == (None, False)


def run(tmp_path, *overrides) -> tuple[dict, list[dict]]:
    summary = runs.run(load(SMOKE, (VALIDATION, *overrides)), out=tmp_path)
    return summary, [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]


def test_unchanged_model_has_the_same_validation_loss_in_every_round(tmp_path):
    still = ("algorithm={name: local}", "training.learning_rate=1e-30", "training.early_stopping={patience: 9}")
    _, rows = run(tmp_path, *still, "rounds=4", "training.batch_size=7")
    trained_on = [json.loads(line)["train"] for line in (tmp_path / "samples.jsonl").open()]
    losses = {}
    for row in rows:
        if row["name"] == "validation_loss":
            losses.setdefault(row["node"], []).append(row["value"])
    assert all(samples / 4 > 7 and round(samples / 4) % 7 for samples in trained_on)  # else any order would do
    assert len(losses) == 8 and all(len(own) == 4 and len(set(own)) == 1 for own in losses.values())


@pytest.mark.parametrize(
    ("name", "mode"),
    [("el", "sync"), ("deprl", "sync"), ("dac", "sync"), ("el", "async"), ("facade", "async"), ("adpsgd", "async")],
)
def test_stopped_nodes_delay_no_other(tmp_path, name, mode):
    stop = ("training.early_stopping={patience: 1}", "training.learning_rate=0.5", "rounds=12", "evaluation.samples=50")
    summary, rows = run(tmp_path, f"algorithm={{name: {name}}}", f"mode={mode}", *stop)
    assert summary["status"] == "done"
    stopped = {row["node"]: row["round"] for row in rows if row["name"] == "stopped"}
    assert stopped
    assert min(stopped.values()) < 12
    validated = [(row["node"], row["round"]) for row in rows if row["name"] == "validation_loss"]
    assert all(round_num <= stopped.get(node, 13) for node, round_num in validated)
    last = max(row["round"] for row in rows if row["name"] == "accuracy")
    assert len([row for row in rows if row["name"] == "accuracy" and row["round"] == last]) == 8


def test_best_model_is_evaluated(tmp_path):
    """The tested model changes exactly when the validation loss reaches a new minimum."""
    sets = ("evaluation.evaluated_model=best", "evaluation.every=1", "rounds=8", "algorithm.final_all_reduce=false")
    summary, rows = run(tmp_path, "algorithm={name: el}", *sets)
    losses = {(r["node"], r["round"]): r["value"] for r in rows if r["name"] == "validation_loss"}
    tested = {(r["node"], r["round"]): r["value"] for r in rows if r["name"] == "test_loss"}
    unchanged = 0
    for node in range(8):
        for round_num in range(2, 9):
            better = losses[node, round_num] < min(losses[node, earlier] for earlier in range(1, round_num))
            assert (tested[node, round_num] != tested[node, round_num - 1]) == better
            unchanged += not better
    assert unchanged
    assert summary["status"] == "done"


def test_epochs_are_passes_over_the_samples_of_a_node(tmp_path):
    """Twice the passes take twice the simulated time if links take no time."""
    times = []
    for epochs in (1, 2):
        sets = ("training.local_steps=null", f"training.epochs={epochs}", "network.fidelity=ideal", "rounds=2")
        summary = runs.run(load(SMOKE, ("algorithm={name: el}", *sets)), out=tmp_path / str(epochs))
        times.append(summary["sim_time_s"])
    assert times[1] == pytest.approx(2 * times[0])
