"""A run on numbers instead of classes, from the loss to the report."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from compared_runs import compare
from torch.nn import functional as F

from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.run_report import report
from ddlsim.scenario import from_mapping
from ddlsim.tasks import task_named

BASE = {
    "name": "tiny_regression",
    "rounds": 12,
    "nodes": {"clusters": [3, 3]},
    "algorithm": {"name": "dpsgd"},
    "model": {"name": "linear"},
    "data": {"name": "synthetic_regression", "test_samples": 50},
    "partition": {"name": "domains"},
    "validation": {"source": "own"},
    "topology": {"name": "ring"},
    "training": {"learning_rate": 0.003, "epochs": 1},
    "evaluation": {"every": 4, "target_mse": 1000.0},
}


def scenario(**sections):
    return from_mapping({**BASE, **sections})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("regression") / "run"
    return runs.run(scenario(), out=out), out


def test_squared_error_uses_the_single_output():
    outputs, labels = torch.tensor([[1.0], [4.0]]), torch.tensor([3.0, 3.0])
    squared_error = task_named("regression").loss
    assert squared_error(outputs, labels, reduction="none").tolist() == [4.0, 1.0]
    assert float(squared_error(outputs, labels)) == 2.5
    logits, classes = torch.tensor([[1.0, 0.0], [4.0, 0.5]]), torch.tensor([0, 1])
    assert torch.equal(task_named("classification").loss(logits, classes), F.cross_entropy(logits, classes))


def test_rows_hold_the_error_and_no_classes(run):
    rows = [json.loads(line) for line in (run[1] / "metrics.jsonl").read_text().splitlines()]
    names = {row["name"] for row in rows}
    assert "mse" in names and not names & {"accuracy", "confusion", "test_loss"}


def test_summary_has_the_error_over_nodes_and_clusters_and_no_fairness(run):
    summary = run[0]
    assert summary["metric"] == "mse" and "accuracy" not in summary
    assert summary["mse"]["all"] == pytest.approx(np.mean(summary["mse"]["clusters"]))
    assert not {"fair_accuracy", "demographic_parity", "equalized_odds"} & set(summary)


def test_error_of_one_cluster_approaches_the_noise(tmp_path):
    alone = scenario(
        nodes={"clusters": [4]},
        rounds=40,
        topology={"name": "ring"},
        training={"learning_rate": 0.001, "epochs": 1},
        data={"name": "synthetic_regression"},
    )
    assert 8 < runs.run(alone, out=tmp_path / "run")["mse"]["all"] < 12  # the noise alone is 9


def test_target_is_reached_from_above(tmp_path):
    stops = {"every": 1, "target_mse": 600.0, "stop_at_target": True}
    alone = scenario(evaluation=stops, rounds=40, nodes={"clusters": [4]}, training={"learning_rate": 0.0003})
    summary = runs.run(alone, out=tmp_path / "run")
    assert summary["target"]["reached"] and summary["mse"]["all"] <= 600
    assert summary["evaluated_round"] < 40
    assert summary["target"]["round"] == summary["evaluated_round"] > 1
    assert summary["target"]["interpolated"]["round"] <= summary["target"]["round"]


def test_reports_show_errors(run):
    text = report([run[1]])
    assert "Mean squared error per cluster over rounds" in text and "mean squared error, cluster 1 (3)" in text
    assert "accuracy" not in text and "parity" not in text
    table = compare([run[1]])
    assert " mse " in table and "accuracy" not in table and "DP" not in table
    row = next(csv.DictReader(io.StringIO(compare([run[1]], "csv"))))
    assert float(row["mse_all_mean"]) == pytest.approx(run[0]["mse"]["all"]) and row["metric"] == "mse"


@pytest.mark.full
def test_plots_show_errors(run, tmp_path):
    pytest.importorskip("matplotlib")
    from ddlsim.report.run_report import save_plots

    assert "quality.png" in {path.name for path in save_plots(run[1], tmp_path)}


@pytest.mark.parametrize(
    "sections, path, text",
    [
        ({"partition": {"name": "uniform"}}, "partition.name", "needs classes, but synthetic_regression is"),
        ({"shift": {"name": "label_shift"}}, "shift.name", "needs classes"),
        ({"evaluation": {"target_accuracy": 0.5}}, "evaluation.target_accuracy", "give target_mse instead"),
        ({"evaluation": {"stop_at_target": True}}, "evaluation.stop_at_target", "needs evaluation.target_mse"),
        (
            {"data": {"name": "mnist"}, "validation": {"source": "own"}, "evaluation": {}},
            "validation.source",
            "comes without a validation set",
        ),
        ({"data": {"name": "mnist"}, "validation": {}}, "evaluation.target_mse", "mnist is a classification"),
        (
            {"data": {"name": "mnist"}, "validation": {}, "evaluation": {}},
            "partition.name",
            "deals one domain to each cluster; mnist has none",
        ),
    ],
)
def test_model_for_another_task_is_refused(sections, path, text):
    with pytest.raises(ScenarioError) as refused:
        scenario(**sections)
    found = {problem.path: problem.text for problem in refused.value.problems}
    assert text in found[path]


def test_float_labels_in_a_file_are_a_regression(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 4)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5, 3.0])
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:20], y_test=y[:20])
    summary = runs.run(
        scenario(
            data={"name": "npz", "path": str(tmp_path / "own.npz"), "task": "regression"},
            partition={"name": "random"},
            validation={},
            evaluation={},
            training={"learning_rate": 0.05, "epochs": 2},
        ),
        out=tmp_path / "run",
    )
    assert summary["mse"]["all"] < 0.1  # without noise a linear model learns it all
