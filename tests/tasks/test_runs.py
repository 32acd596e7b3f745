"""Small runs of every task, with algorithms that share heads, compare models, or do neither."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from compared_runs import compare
from torn_runs import outcome, run_until, run_whole

from ddlsim import runs
from ddlsim.data import Arrays, DataSearch
from ddlsim.foundation.errors import DataDamaged, ScenarioError
from ddlsim.learning import learner
from ddlsim.learning.backends.stacked import make_backends
from ddlsim.report.run_report import report
from ddlsim.runs.loading import load_data
from ddlsim.scenario import from_mapping, from_python, load, with_fallback

FOLDER = Path(__file__).parents[2] / "scenarios"
TEXT = {
    "data": {"name": "shakespeare", "length": 12},
    "partition": {"name": "by_column", "column": "speaker", "own_test": True},
}
KINDS = {
    "lstm": {**TEXT, "model": {"name": "lstm", "layers": 1, "units": 8}},
    "gpt": {**TEXT, "model": {"name": "gpt", "layers": 1, "heads": 2, "width": 16}},
    "words": {
        "data": {"name": "shakespeare", "predict": "speaker", "unit": "words", "length": 8, "vocabulary": 200},
        "partition": {"name": "random", "samples_per_node": 40},
        "model": {"name": "embedding_bag", "width": 8},
    },
    "table": {
        "data": {"name": "heart_disease"},
        "partition": {"name": "random", "samples_per_node": 40},
        "model": {"name": "mlp", "hidden": [8]},
    },
    "multi_label": {
        "data": {"name": "attributes", "of": "fashion-mnist-mini"},
        "partition": {"name": "random", "samples_per_node": 40},
        "model": {"name": "mlp", "hidden": [8]},
    },
}
MAIN = {"lstm": "perplexity", "gpt": "perplexity", "words": "accuracy", "table": "accuracy", "multi_label": "f1_macro"}
BASE = {
    "rounds": 2,
    "nodes": {"clusters": [3, 1]},
    "topology": {"name": "ring"},
    "training": {"learning_rate": 0.05, "local_steps": 2},
    "evaluation": {"every": 1},
}


def scenario(kind, algorithm, **changes):
    return from_mapping({"name": "small", **BASE, **KINDS[kind], "algorithm": {"name": algorithm}, **changes})


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    return request.param


@pytest.mark.parametrize("algorithm", ["facade", "el", "dac"])
def test_algorithms_run_on_every_task(tmp_path, kind, algorithm):
    summary = runs.run(scenario(kind, algorithm), out=tmp_path / "run")
    assert summary["status"] == "done" and summary["metric"] == MAIN[kind]
    assert np.isfinite(summary[MAIN[kind]]["all"])
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {row["node"] for row in rows if row["name"] == MAIN[kind]} == {0, 1, 2, 3}


def test_stacked_waves_give_the_same_run(tmp_path, kind, monkeypatch):
    one_by_one = runs.run(scenario(kind, "facade", rounds=1), out=tmp_path / "a")
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, stacked=True))
    stacked = runs.run(scenario(kind, "facade", rounds=1), out=tmp_path / "b", profile=True)
    assert stacked[MAIN[kind]]["all"] == pytest.approx(one_by_one[MAIN[kind]]["all"], rel=0.02)
    assert set(stacked["paths"]) == {"rows", "stacked"}, stacked["fallback_counts"]  # nothing was computed one by one


def test_reports_name_undefined_measures_and_show_the_metric_of_the_task(tmp_path):
    runs.run(scenario("lstm", "el"), out=tmp_path / "text")
    runs.run(scenario("table", "el"), out=tmp_path / "table")
    text = report([tmp_path / "text"])
    assert "Perplexity per cluster over rounds" in text and "token accuracy %, all nodes" in text
    assert "not defined (task: next token, no single class per sample)" in text
    both = compare([tmp_path / "text", tmp_path / "table"])
    assert "perplexity" in both and "accuracy (%)" in both


def test_a_target_of_perplexity_is_reached_from_above(tmp_path):
    stops = {"every": 1, "target": 70.0, "stop_at_target": True}
    devices = {"name": "language_model", "device": "rtx_4090"}
    changes = {"rounds": 30, "evaluation": stops, "devices": devices, "energy": {}}
    summary = runs.run(scenario("gpt", "el", **changes), out=tmp_path / "run")
    target, use = summary["target"], summary["language_model"]
    assert target["reached"] and summary["perplexity"]["all"] <= 70
    assert target["round"] == summary["evaluated_round"] < 30
    assert target["bytes"] == summary["bytes"]["total"] and target["sim_time_s"] == summary["sim_time_s"]
    tokens_per_step = 12 * 8
    assert use["tokens"] == pytest.approx(target["round"] * 4 * 2 * tokens_per_step)
    assert target["joules"] == pytest.approx(450 * 4 * 2 * target["round"] * summary["step_times"]["step_s"][0])


@pytest.mark.parametrize(
    ("kind", "changes", "path", "text"),
    [
        ("lstm", {"partition": {"name": "dirichlet", "alpha": 1}}, "partition.name", "shakespeare is a next token"),
        (
            "lstm",
            {"evaluation": {"target_accuracy": 0.5}},
            "evaluation.target_accuracy",
            "judged by perplexity; give tar",
        ),
        ("table", {"evaluation": {"target": 0.5, "target_accuracy": 0.5}}, "evaluation.target", "there is one target"),
        ("table", {"task": {"name": "regresion"}}, "task.name", "Did you mean 'regression'"),
        ("multi_label", {"task": {"name": "multi_label", "metric": "auc"}}, "task.metric", "f1_macro, f1_micro, auroc"),
        ("multi_label", {"algorithm": "fedproto"}, "algorithm.name", "needs classes"),
    ],
)
def test_labels_of_another_task_are_refused(kind, changes, path, text):
    with pytest.raises(ScenarioError) as refused:
        scenario(kind, **{"algorithm": "el", **changes})
    assert text in {problem.path: problem.text for problem in refused.value.problems}[path]


def test_model_of_another_task_is_refused(tmp_path):
    wrong = scenario("lstm", "el", model={"name": "lstm", "units": 8, "predicts": "last"})
    with pytest.raises(ScenarioError, match=r"returns \[1, 81\] for one sample .*, expected a tensor \[1, 12, 81\]"):
        runs.run(wrong, out=tmp_path / "run")


@pytest.mark.parametrize("name", ["shakespeare_lstm", "shakespeare_gpt", "ag_news", "attributes"])
def test_fallbacks_of_the_scenarios_start(tmp_path, name):
    small = with_fallback(load(FOLDER / f"{name}.yaml", ["rounds=1", "training.local_steps=1", "evaluation.every=1"]))
    assert runs.run(small, out=tmp_path / "run")["status"] == "done"


def test_a_torn_run_on_text_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    settings = (
        "algorithm={name: el}",
        "data={name: shakespeare, length: 20}",
        "partition={name: by_column, column: speaker, values_per_node: 1, own_test: true}",
        "shift={name: none}",
        "model={name: lstm, units: 8, layers: 1}",
        "evaluation={every: 1, target_accuracy: null}",
        "rounds=3",
    )
    expected = run_whole(tmp_path / "whole", settings)
    run_until(tmp_path / "torn", settings, ends=2, every=1, monkeypatch=monkeypatch)
    runs.resume(tmp_path / "torn")
    assert outcome(tmp_path / "torn") == expected


@pytest.mark.parametrize("labels", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("given", ["npz", "table", "arrays"])
def test_task_of_a_scenario_decides_the_reading_of_labels(tmp_path, given, labels):
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y = np.arange(40).astype(labels) * 2
    splits = {"x_train": x[:32], "y_train": y[:32], "x_test": x[32:], "y_test": y[32:]}
    if given == "npz":
        np.savez(tmp_path / "d.npz", **splits)
    elif given == "table":
        rows = "\n".join(",".join(map(str, [*values, label])) for values, label in zip(x, y, strict=True))
        (tmp_path / "d.csv").write_text(f"a,b,c,y\n{rows}\n")
    data = {
        "npz": {"name": "npz", "path": str(tmp_path / "d.npz")},
        "table": {"name": "table", "path": str(tmp_path / "d.csv"), "target": "y"},
        "arrays": Arrays(train=(splits["x_train"], splits["y_train"]), test=(splits["x_test"], splits["y_test"])),
    }[given]
    small = {"data": data, "partition": {"name": "random"}, "model": {"name": "mlp", "hidden": [4]}}
    scenario = from_python({**BASE, **small, "algorithm": {"name": "dpsgd"}, "task": {"name": "regression"}}, {})
    assert load_data(scenario.model_copy(update={"learning": "none"})).dataset.num_classes == 1
    dataset = load_data(scenario).dataset
    assert sorted(np.concatenate([dataset.train_labels, dataset.test_labels])) == list(range(0, 80, 2))
    summary = runs.run(scenario, out=tmp_path / "run")
    assert summary["metric"] == "mse"
    if labels != np.int64 and given != "table":
        with pytest.raises(DataDamaged, match=r"whole numbers .* or set task: regression"):
            load_data(scenario.model_copy(update={"task": None}))


def test_memory_mapped_table_of_integers_may_be_a_regression(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((8, 3), np.float32))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    data = Arrays(train=(mapped, np.arange(8)), test=(mapped, np.arange(8)))
    assert replace(data, task="regression").load(DataSearch()).train_labels.dtype == np.float32
