"""Runs from Python: scenarios, directories and errors."""

import inspect
import signal
from dataclasses import fields

import numpy as np
import pytest

import ddlsim
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.api.start import resolve
from ddlsim.runs.options import Options
from ddlsim.scenario import from_mapping
from ddlsim.topologies.named_graphs import Ring

ONLY_NETWORK = {"learning": "none"}
PAIR = (np.zeros((4, 3), "float32"), np.array([0, 1, 0, 1]))


def test_named_scenario_runs_with_changed_keys(tmp_path):
    changes = {"rounds": 3, "learning": "none", "nodes.clusters": (2, 2)}
    run = ddlsim.run("smoke", set=changes, seed=5, algorithm="el", topology=Ring, out=tmp_path / "run")
    assert run.status == "done" and run.summary["seed"] == 5
    assert run.scenario["rounds"] == 3 and run.scenario["nodes"]["clusters"] == [2, 2]
    assert run.scenario["algorithm"]["name"] == "el" and run.scenario["topology"] == {"name": "ring"}


def test_naming_the_current_algorithm_keeps_its_keys():
    assert resolve("smoke", {"algorithm.heads": 3}, algorithm="facade").algorithm.heads == 3


def test_a_mapping_can_extend_a_scenario_by_its_name(tmp_path):
    run = ddlsim.run({"extends": "smoke", "rounds": 1, "learning": "none"}, out=tmp_path / "run")
    assert run.scenario["name"] == "smoke" and run.scenario["rounds"] == 1


def test_mapping_without_a_name_changes_keys_of_the_current_part():
    found = resolve(
        {"extends": "smoke", "algorithm": {"heads": 3}, "model": {"hidden": [8]}, "topology": {"degree": 2}}
    )
    assert (found.algorithm.heads, found.algorithm.warmup_rounds) == (3, 1)
    assert (found.model.hidden, found.topology.degree) == ((8,), 2)
    assert resolve({"extends": "shakespeare_lstm", "data": {"text": "mini"}}).data.text == "mini"


def test_a_scenario_object_is_run_with_changes(scenario, tmp_path):
    run = ddlsim.run(from_mapping(scenario(**ONLY_NETWORK)), set={"rounds": 1}, out=tmp_path / "run")
    assert run.scenario["rounds"] == 1


def test_scenario_of_a_run_runs_again(finished, tmp_path):
    again = ddlsim.run(finished.scenario, out=tmp_path / "again")
    assert (again.dir / "metrics.jsonl").read_bytes() == (finished.dir / "metrics.jsonl").read_bytes()


def test_python_and_shell_use_the_same_directory(here, scenario):
    run = ddlsim.run(scenario(**ONLY_NETWORK))
    assert run.dir.parent.as_posix() == "runs/small" and run.dir.name.startswith("dpsgd-s0-") and run.dir.is_dir()


def test_finished_run_is_not_repeated(finished, capsys):
    before = (finished.dir / "manifest.json").stat().st_mtime_ns
    again = ddlsim.run(finished.scenario, out=finished.dir)
    assert again.summary == finished.summary and (again.dir / "manifest.json").stat().st_mtime_ns == before
    assert "holds this run already" in capsys.readouterr().err


def test_progress_is_silent_without_a_terminal(scenario, tmp_path, capsys):
    ddlsim.run(scenario(), out=tmp_path / "run")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"set": {"rounds": 0, "trainin.batch_size": 1}}, r"(?s)set rounds: rounds: expected.*Did you mean 'training'"),
        ({"set": {"training.learning_rate": object()}}, "training.learning_rate: expected a number, text, .* a object"),
        ({"set": ["rounds=3"]}, "set: expected a mapping of dotted keys to values, got a list"),
        ({"algorithm": "facad"}, "Did you mean 'facade'"),
        ({"algorithm": 3}, "algorithm: expected a name, a mapping with a name, a part or its class"),
        ({"model": 3}, "a function that makes a torch.nn.Module, got a int"),
        ({"checkpoint_every": "soon"}, "checkpoint-every"),
        ({"callbacks": [print]}, "callbacks: expected objects of classes that extend ddlsim.Callback, got a builtin"),
        (
            {"callbacks": ddlsim.Callback()},
            "callbacks: expected a list, .* got a Callback. Put a single value into brack",
        ),
        ({"callbacks": ddlsim.Callback}, "callbacks: expected a list, .* got the class Callback"),
        ({"track": [3]}, "track: expected a list, such as .*tensorboard.*, got a int in it"),
        ({"progress": []}, r"progress: expected auto, .*, got \[\]"),
        ({"checkpoint_every": 3}, "checkpoint-every 3: expected 30s"),
        ({"set": {3: 1}}, "set: expected dotted keys, such as training.learning_rate, got 3"),
        (
            {"data": {"train": PAIR, "test": PAIR, "num_class": 3}},
            "data: .* got an unexpected keyword argument .num_class",
        ),
        ({"data": {"train": PAIR, "test": PAIR, "mean": 0.5}}, "data: Arrays: mean: expected a list .* got a float"),
        (
            {"data": {"train": PAIR, "test": PAIR, "num_classes": "3"}},
            "num_classes: expected a whole number, got a str",
        ),
        ({"data": {"train": PAIR, "test": PAIR, "columns": 3}}, "columns: expected a mapping of names to values, got"),
    ],
)
def test_invalid_run_is_one_error_and_leaves_no_directory(scenario, tmp_path, given, text):
    with pytest.raises(ScenarioError, match=text):
        ddlsim.run(scenario(**ONLY_NETWORK), out=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


def test_other_objects_than_scenarios_are_refused():
    with pytest.raises(ScenarioError, match=r"scenario: expected a path, .* got a int"):
        ddlsim.run(3)


def test_callbacks_may_come_from_a_generator(scenario, tmp_path):
    ends = []

    class Ends(ddlsim.Callback):
        def on_end(self, summary):
            ends.append(summary["status"])

    ddlsim.run(scenario(**ONLY_NETWORK), out=tmp_path / "run", callbacks=(Ends() for _ in range(2)))
    assert ends == ["done", "done"]


class CtrlC(ddlsim.Callback):
    def on_round(self, completed):
        signal.raise_signal(signal.SIGINT)


def test_interrupt_ends_a_loop_of_runs_and_returns_the_unfinished_run(scenario, tmp_path):
    with pytest.raises(KeyboardInterrupt) as caught:
        ddlsim.run(scenario(rounds=9), out=tmp_path / "run", callbacks=[CtrlC()])
    run = caught.value.run
    assert run.status == "interrupted" and run.dir == tmp_path / "run"
    assert ddlsim.resume(run.dir).status == "done"


def test_load_reads_a_run_and_refuses_other_directories(finished, tmp_path):
    assert ddlsim.load(str(finished.dir)).summary == finished.summary
    with pytest.raises(ScenarioError, match="is not a run"):
        ddlsim.load(tmp_path)


def test_a_run_is_branched_at_a_round(scenario, tmp_path):
    run = ddlsim.run(scenario(rounds=3, **ONLY_NETWORK), out=tmp_path / "run")
    branch = ddlsim.resume(run.dir, from_round=2, set={"network.links": {"name": "4g"}})
    assert branch.dir.name.startswith("run-from-2-") and branch.status == "done"
    assert branch.scenario["network"]["links"]["name"] == "4g" and run.scenario["network"]["links"]["name"] == "uniform"


def test_branch_accepts_the_same_values_as_a_run(scenario, tmp_path):
    run = ddlsim.run(scenario(), out=tmp_path / "run")
    changes = {
        "training.learning_rate": np.float32(0.5),
        "nodes.clusters": (2, 1),
        "topology": Ring,
        "algorithm": "dpsgd",
    }
    branch = ddlsim.resume(run.dir, from_round=np.int64(1), set=changes, out=tmp_path / "branch")
    assert branch.status == "done" and branch.scenario["training"]["learning_rate"] == 0.5
    assert branch.manifest["branches"][0]["from_round"] == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"set": {"training.learning_rate": object()}}, "training.learning_rate: expected a number, .* got a object"),
        ({"set": "rounds=3"}, r"set: expected a list, such as \[\"rounds=20\"\], or a mapping, .* got a str"),
        ({"set": [3]}, "set: expected a list, .* got a int in it"),
        ({"from_round": "1"}, "from_round: expected a whole number, got a str"),
    ],
)
def test_invalid_branch_is_one_error(finished, tmp_path, given, text):
    with pytest.raises(ScenarioError, match=text):
        ddlsim.resume(finished.dir, **{"from_round": 1, "out": tmp_path / "branch", **given})
    assert not (tmp_path / "branch").exists()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"grid": {"training.learning_rate": 0.1}},
            "sweep: grid: training.learning_rate: expected a list, .* got a float",
        ),
        ({"grid": {"algorithm": "el"}}, "sweep: grid: algorithm: expected a list, .* got a str"),
        ({"grid": {"rounds": np.array(3)}}, "sweep: grid: rounds: expected a list, .* got a ndarray"),
        ({"grid": ["rounds"]}, "sweep: grid: expected a mapping such as .* got a list"),
        ({"grid": {3: [1]}}, "expected dotted keys, .* got 3"),
        ({"seeds": 3}, r"sweep: seeds: expected a list, such as \[0, 1, 2\] or range\(3\), got a int"),
        ({"seeds": "0..2"}, "sweep: seeds: expected a list, .* got a str"),
    ],
)
def test_invalid_grid_is_one_error(scenario, tmp_path, given, text):
    with pytest.raises(ScenarioError, match=text):
        ddlsim.sweep(scenario(**ONLY_NETWORK), out=tmp_path / "sweep", **given)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"at": "0.3"}, "compare: at: expected a number, such as 0.3, got a str"),
        ({"at": 0.3, "y": 3}, "--y 3: .* has no such values"),
        ({"group_by": 3}, "compare: group_by: expected a list, .* got a int"),
        ({"group_by": [3]}, "compare: group_by: expected a list, .* got a int in it"),
        ({"runs": 3}, "compare: runs: expected a list, .* got a int"),
        ({"runs": [3]}, "compare: runs: expected a list, .* got a int in it"),
    ],
)
def test_invalid_comparison_is_one_error(finished, given, text):
    with pytest.raises(ScenarioError, match=text):
        ddlsim.compare(**{"runs": [finished], **given}).table()


@pytest.mark.parametrize(("progress", "mode"), [(None, "none"), (False, "none"), (True, "auto"), ("plain", "plain")])
def test_progress_may_be_off_and_on(progress, mode):
    assert Options(progress=progress).mode == mode


@pytest.mark.parametrize("function", [ddlsim.run, ddlsim.resume])
def test_help_shows_every_option_with_its_default(function):
    shown = {name: each.default for name, each in inspect.signature(function).parameters.items()}
    assert {field.name: field.default for field in fields(Options)}.items() <= shown.items()
    assert "checkpoint_every" in function.__doc__
