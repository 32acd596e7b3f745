"""Evaluation of diverged models, and the time when a target is reached."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ddlsim import runs
from ddlsim.engine.evaluator import Evaluated, Evaluator, _lowest
from ddlsim.learning import losses as eval_results
from ddlsim.scenario import load
from ddlsim.tasks.base import metric_named
from ddlsim.tasks.builtin import Classification

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
NAN = float("nan")


def evaluated(metric, values):
    return Evaluated(round=1, time_s=1.0, bytes_sent=1, judged_by=metric_named(metric), values=np.array(values))


@pytest.mark.parametrize(
    ("losses", "lowest"), [([0.5, NAN, 0.3], 2), ([NAN, 0.4], 1), ([NAN, NAN], 0), ([0.2, 0.2], 0)]
)
def test_nan_is_never_the_lowest_loss(losses, lowest):
    assert _lowest(losses) == lowest


def test_nodes_before_joining_do_not_delay_the_target():
    assert evaluated("accuracy", [0.9, 0.9, NAN]).reaches(0.8)
    assert not evaluated("accuracy", [0.9, 0.6, NAN]).reaches(0.8)
    assert evaluated("mse", [0.1, 0.1, NAN]).reaches(0.2)


def test_a_diverged_node_does_not_help_to_reach_the_target():
    assert metric_named("mse").number(NAN) == math.inf
    assert not evaluated("mse", [0.1, 0.1, math.inf]).reaches(0.2)


def test_the_loss_of_a_diverged_node_counts_as_the_worst_in_every_mean(tmp_path):
    sets = ("model={name: mlp, hidden: [4]}", "data={name: synthetic_regression}", "partition={name: domains}")
    sets = ("training.learning_rate=1e25", "rounds=2", "algorithm={name: local}", "evaluation.every=1")
    runs.run(load(SMOKE, sets), out=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    losses = [float(row["value"]) for row in rows if row["name"] == "test_loss"]
    assert losses and not any(map(math.isnan, losses)) and math.inf in losses
    json.loads((tmp_path / "summary.json").read_text(), parse_constant=lambda word: pytest.fail(word))


def test_without_any_value_no_target_is_reached():
    assert not evaluated("accuracy", [NAN, NAN]).reaches(0.0)


def test_run_stops_at_the_first_evaluation_to_reach_the_target_in_its_report(tmp_path):
    """One node never joins; its missing value counts in neither place."""
    sets = (
        "algorithm={name: el}",
        "churn={name: schedule, offline: [{node: 2, start_s: 0, end_s: 1e9}]}",
        "rounds=40",
        "evaluation={every: 1, target_accuracy: 0.3, stop_at_target: true}",
    )
    summary = runs.run(load(SMOKE, sets), out=tmp_path)
    assert summary["target"]["reached"]
    assert summary["target"]["round"] == summary["evaluated_round"] < 40


@pytest.mark.parametrize("metric", ["accuracy", "f1_macro"])
def test_backdoor_success_is_a_share_of_samples_for_any_metric(metric):
    task, nothing, rows = Classification(metric=metric), SimpleNamespace(chosen=(), write=None), []
    confusion = np.array([[3, 1], [0, 0]])  # of four samples, three are classified as the target
    found = [eval_results.EvalResult(task.values(confusion, 1.0), 1.0, confusion)]
    compute = SimpleNamespace(test=lambda *_: None, resolve=lambda jobs: [found for _ in jobs])
    recorder = SimpleNamespace(row=lambda *row: rows.append(row))
    section = load(SMOKE).evaluation
    evaluator = Evaluator(compute, recorder, section, 1, np.zeros(1), task, None, nothing, nothing)
    evaluator._write_backdoor(2, {0: SimpleNamespace(time_s=5.0)}, {0: (None, None)})
    assert rows == [(5.0, 0, 2, "backdoor_success", 0.75)]


def test_a_branch_stops_at_the_target_of_its_metric():
    task, nothing = Classification(), SimpleNamespace(chosen=(), write=None)
    before, after = (
        load(SMOKE, [f"evaluation={{every: 1, target_accuracy: {target}, stop_at_target: true}}"]).evaluation
        for target in (0.9, 0.3)
    )
    evaluator = Evaluator(None, None, before, 10, np.zeros(1), task, None, nothing, nothing)
    assert evaluator._stop_at == 0.9
    evaluator.use(after, 10, 5, nothing)
    assert evaluator._stop_at == 0.3


@pytest.mark.parametrize(
    "algorithm", ["{name: dpsgd}", "{name: adpsgd}", "{name: gossip}", "{name: dpsgd, final_all_reduce: true}"]
)
@pytest.mark.parametrize("learning", ["real", "none"])
def test_returning_node_reopens_no_evaluated_round(tmp_path, algorithm, learning):
    """Node 3 leaves in the first round and returns when the others have completed most or all rounds."""
    sets = (
        f"algorithm={algorithm}",
        f"learning={learning}",
        "mode=async",
        "churn={name: schedule, offline: [{node: 3, start_s: 0.05, end_s: 0.6}]}",
        "rounds=4",
        "evaluation={every: 1}",
        "training.local_steps=2",
    )
    runs.run(load(SMOKE, sets), out=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    name = "accuracy" if learning == "real" else "round_last_s"
    found = [(row["round"], row["node"]) for row in rows if row["name"] == name]
    assert found == sorted(set(found), key=lambda place: (place[0], place[1] or 0))
    last = found[-1][0]
    ends_s = {row["node"]: row["time_s"] for row in rows if row["name"] == name and row["round"] == last}
    assert ends_s[3 if learning == "real" else None] > 0.6  # its model at the end of the last round is evaluated
    if learning == "real":
        assert max(ends_s[node] for node in ends_s if node != 3) < ends_s[3]  # as for the other nodes


@pytest.mark.parametrize("mode", ["sync", pytest.param("async", marks=pytest.mark.full)])
def test_evaluation_does_not_depend_on_earlier_evaluations(tmp_path, mode):
    """Nodes have 300 mini-batches of one sample; 100 select the head, and losses are similarities."""
    likened = ("algorithm={name: pens}", "records.true_similarities=[1]")
    found = []
    for every in (1, 3):
        sets = (
            f"evaluation.every={every}",
            f"mode={mode}",
            "rounds=3",
            "training.batch_size=1",
            "partition={name: random, samples_per_node: 300}",
            "evaluation.samples=50",
        )
        for own in (("algorithm={name: facade, final_all_reduce: false}",), likened):
            out = tmp_path / f"{len(found)}"
            runs.run(load(SMOKE, (*sets, *own)), out=out)
            rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
            found.append([row for row in rows if row["round"] == 3])
    assert {"evaluated_head"} <= {row["name"] for row in found[0]}
    assert any(row["name"].startswith("true_similarity") for row in found[1])
    assert found[:2] == found[2:]


def test_node_joining_ahead_of_the_others_is_evaluated_at_its_completed_round(tmp_path):
    """Node 2 joins during the first round of the others, starts with the next, and finishes at once."""
    steps = tmp_path / "steps.csv"
    steps.write_text("node,step_time_s\n0,1\n1,1\n2,0.001\n")
    sets = (
        "algorithm={name: local}",
        "rounds=4",
        "evaluation.every=1",
        "nodes.clusters=[3]",
        "topology={name: complete}",
    )
    churn = "churn={name: schedule, offline: [{node: 2, start_s: 0, end_s: 1}]}"
    runs.run(load(SMOKE, (*sets, churn, f"devices={{name: table, path: '{steps}'}}")), out=tmp_path / "run")
    rows = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    times = {row["round"]: row["time_s"] for row in rows if row["node"] == 2 and row["name"] == "accuracy"}
    assert list(times) == [1, 2, 3, 4] and list(times.values()) == sorted(times.values()) and times[1] == times[2]
