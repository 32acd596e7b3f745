"""Searches by Optuna, with real runs in separate processes."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import ddlsim
from ddlsim.cli import app
from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.records import Evaluations
from ddlsim.runs.sweeps.search import Objective, parse_dimension
from ddlsim.tasks.base import ACCURACY

optuna = pytest.importorskip("optuna", reason="the extra `optuna` is not installed")

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # noqa: E402

from ddlsim.cli.sweep import wanted_search  # noqa: E402
from ddlsim.runs.sweeps.search import open_study, search  # noqa: E402

pytestmark = pytest.mark.usefixtures("forked_runs")

SMOKE = "tests/helpers/smoke.yaml"
SMALL = ["nodes.clusters=[2, 2]", "topology={name: ring}", "model={name: mlp, hidden: [4]}", "evaluation.every=1"]
SMALL += ["validation.source=node", "validation.fraction=0.2"]
RATE = "training.learning_rate=0.01..1:log"


def asked(out, trials, rounds=2, grid=(RATE,), metric=None):
    settings = [*SMALL, f"rounds={rounds}"]
    return wanted_search(SMOKE, grid, settings, out, trials, metric, "median", ["-q", "--no-download"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.b=0.001..0.1:log", FloatDistribution(0.001, 0.1, log=True)),
        ("a.b=1..20", IntDistribution(1, 20)),
        ("a.b=1e-3 .. 2", FloatDistribution(0.001, 2)),
        ("a.b=-1.5..1.5", FloatDistribution(-1.5, 1.5)),
        ("a.b=ring,'null'", CategoricalDistribution(["ring", '"null"'])),
    ],
)
def test_grid_of_a_search_is_a_distribution(text, found):
    assert parse_dimension(text) == ("a.b", found)


def test_fair_accuracy_uses_the_weight_of_the_scenario():
    values = {"accuracy": np.array([[0.9, 0.5]])}
    evaluations = Evaluations(round=np.array([1]), time_s=np.array([1.0]), values=values)
    clusters = np.array([0, 1])
    run = SimpleNamespace(evaluations=evaluations, node_cluster=clusters, judged_clusters=clusters, fair_lambda=0.1)
    objective = Objective("fair_accuracy", ACCURACY, "accuracy", "fairness")
    assert objective.curve(run, ended=True) == [(1, pytest.approx(0.1 * 0.7 + 0.9 * 0.6))]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a=2..1", r"--grid a=2..1: invalid range: .*low=2, high=1"),
        ("a=0..1:log", r"--grid a=0..1:log: invalid range: .low >= 1. must hold"),
        ("a=0..1:sqrt", "expected :log or nothing after a range, got :sqrt"),
    ],
)
def test_a_wrong_range_is_refused(text, why):
    with pytest.raises(ScenarioError, match=why):
        parse_dimension(text)


@pytest.mark.full
def test_repeated_search_runs_missing_trials_and_another_search_is_refused(tmp_path):
    ended = []
    search(asked(tmp_path / "s", 2), 2, lambda one, count: ended.append((one.state, count)))
    assert sorted(ended) == [("complete", 1), ("complete", 2)]
    study = search(asked(tmp_path / "s", 3), 1, lambda one, count: ended.append((one.state, count)))
    assert ended[2:] == [("complete", 3)]
    for frozen in study.trials:
        summary = json.loads((tmp_path / "s" / f"trial-{frozen.number:04d}" / "summary.json").read_text())
        rows = map(json.loads, (tmp_path / "s" / f"trial-{frozen.number:04d}" / "metrics.jsonl").open())
        last = [row["value"] for row in rows if (row["name"], row["round"]) == ("validation_accuracy", 2)]
        assert frozen.value == pytest.approx(np.mean(last)) and len(last) == 4
        assert frozen.value != pytest.approx(summary["accuracy"]["all"])
        assert list(frozen.intermediate_values) == [1, 2]
    with pytest.raises(ScenarioError, match="holds a search with another metric, space"):
        open_study(asked(tmp_path / "s", 3, grid=["training.learning_rate=0.01..2:log"], metric="worst_cluster"))


@pytest.mark.full
def test_worse_run_is_stopped_and_counts_as_pruned(tmp_path):
    wanted = asked(tmp_path / "s", 6, rounds=5000)
    study = open_study(wanted)
    space = {"training.learning_rate": optuna.distributions.FloatDistribution(0.01, 1, log=True)}
    better = {"intermediate_values": {1: 1.0}, "value": 1.0, "distributions": space}
    for rate in (0.02, 0.03, 0.04, 0.05, 0.06):
        study.add_trial(optuna.create_trial(params={"training.learning_rate": rate}, **better))
    ended = []
    search(wanted, 1, lambda one, count: ended.append((one.state, one.cause, count)))
    assert ended == [("pruned", "", 6)]
    assert open_study(wanted).trials[5].state == optuna.trial.TrialState.PRUNED
    assert json.loads((tmp_path / "s" / "trial-0005" / "summary.json").read_text())["status"] == "interrupted"


@pytest.mark.full
def test_last_evaluation_of_a_diverged_run_counts(tmp_path):
    settings = [*SMALL, "rounds=2"]
    grid = ["training.learning_rate=1e25..1e28:log"]
    wanted = wanted_search(SMOKE, grid, settings, tmp_path / "s", 1, None, "none", ["-q", "--no-download"])
    study = search(wanted, 1, lambda *_: None)
    summary = json.loads((tmp_path / "s" / "trial-0000" / "summary.json").read_text())
    assert summary["diverged"]
    assert list(study.trials[0].intermediate_values) == [1, 2]


@pytest.mark.full
def test_search_on_fallback_data_says_so_and_never_changes_data(tmp_path):
    npz = {f"{kind}_{split}": np.arange(400, dtype=np.uint8) % 4 for kind in "y" for split in ("train", "test")}
    npz |= {f"x_{split}": np.zeros((400, 28, 28), np.uint8) for split in ("train", "test")}
    lacking, out = tmp_path / "own.npz", tmp_path / "s"
    settings = [*SMALL, "rounds=1", f"data={{name: npz, path: {lacking}}}"]
    settings.append("fallback={data: {name: fashion-mnist-mini}}")
    words = ["sweep", SMOKE, "--search", "optuna", "--grid", RATE, "--out", str(out), "-q"]
    words += [word for each in settings for word in ("--set", each)]
    done = CliRunner().invoke(app, [*words, "--trials", "1"])
    assert done.exit_code == 0 and "!! FALLBACK DATA: ran on fashion-mnist-mini" in done.output
    np.savez(lacking, **npz)
    done = CliRunner().invoke(app, [*words, "--trials", "2"])
    assert done.exit_code == 2
    output = " ".join(done.output.split())
    assert "runs on the scenario's data, the trials before it ran on fashion-mnist-mini (fall" in output


@pytest.mark.full
def test_unfinished_trial_of_an_earlier_process_is_continued(tmp_path):
    wanted = asked(tmp_path / "s", 1)
    left = open_study(wanted).ask()
    rate = left.suggest_float("training.learning_rate", 0.01, 1, log=True)
    study = search(wanted, 1, lambda *_: None)
    assert [frozen.params for frozen in study.trials] == [{"training.learning_rate": rate}]
    assert study.trials[0].state == optuna.trial.TrialState.COMPLETE


def test_impossible_values_are_listed_as_failures(tmp_path):
    words = ["sweep", SMOKE, "--search", "optuna", "--trials", "2", "--grid", "training.learning_rate=-2.0..-1.0", "-q"]
    words += ["--set", "validation.source=node"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "s")])
    assert done.exit_code == 5
    assert "2 trials: 0 complete, 0 pruned, 2 failed." in done.output
    assert "training.learning_rate: expected a number above 0" in done.output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--grid", RATE, "--metric", "accurcy"], "--metric accurcy: unknown. Did you mean"),
        (["--grid", RATE, "--metric", "test_loss"], "must not choose by test data. Use validation_loss."),
        ([], "--search needs --grid"),
        (["--grid", RATE, "--seeds", "0..3"], "--search: takes neither --seeds nor --emit"),
    ],
)
def test_impossible_search_is_one_clear_error(tmp_path, words, why):
    validated = ["--set", "validation.source=node"]
    words = ["sweep", SMOKE, "--search", "optuna", "--out", str(tmp_path / "s"), *validated, *words]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and why in done.output
    assert not (tmp_path / "s").exists()


def test_a_search_without_validation_samples_is_refused(tmp_path):
    done = CliRunner().invoke(app, ["sweep", SMOKE, "--search", "optuna", "--grid", RATE, "--out", str(tmp_path / "s")])
    output = " ".join(done.output.split())
    assert done.exit_code == 2 and "never by test data" in output and "--set validation.source=node" in output


def test_validation_rows_use_validation_samples(tmp_path):
    # Test labels are the opposite of training labels: accuracy 1 on validation data, 0 on test data.
    x = np.tile(np.array([[-1.0], [1.0]], np.float32), (20, 1))
    y = (x[:, 0] > 0).astype(np.int64)
    settings = {
        "rounds": 3,
        "nodes": {"clusters": [2]},
        "algorithm": "local",
        "model": {"name": "linear"},
        "partition": {"name": "random"},
        "training": {"learning_rate": 1.0, "local_steps": 20, "batch_size": 8},
        "validation": {"source": "node", "fraction": 0.25},
        "evaluation": {"every": 3, "validation": True},
    }
    run = ddlsim.run(settings, data=((x, y), (x, 1 - y)), out=tmp_path / "run", progress=None)
    found = run.records.evaluations.values
    assert found["validation_accuracy"].tolist() == [[1.0, 1.0]] and found["accuracy"].tolist() == [[0.0, 0.0]]
    assert (found["loss_validation"] < 0.1).all() and (found["test_loss"] > 2).all()


def test_cluster_without_a_joined_node_counts_as_the_worst():
    objective = Objective("worst_cluster", ACCURACY, "accuracy", "worst cluster")
    about = SimpleNamespace(node_cluster=np.array([0, 0, 1]), judged_clusters=[0, 1])
    assert objective._value_of(np.array([0.5, 0.7, 0.4]), about) == pytest.approx(0.4)
    assert objective._value_of(np.array([0.5, 0.7, np.nan]), about) == -np.inf
