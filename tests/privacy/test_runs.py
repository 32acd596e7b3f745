"""Private runs: epsilon in records and summaries, resumed runs, and scenarios that cannot be private."""

import json

import numpy as np
import pytest
from torn_runs import outcome, run_until, run_whole

from ddlsim import runs
from ddlsim.foundation.accounting import Releases, epsilon
from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.columns import rounds
from ddlsim.report.reading import read
from ddlsim.report.summary import summary_of
from ddlsim.report.summary_table import rows
from ddlsim.runs.checkpoint import Every
from ddlsim.scenario import ScenarioProblems, from_mapping, load

BASE = {
    "rounds": 2,
    "nodes": {"clusters": [4]},
    "algorithm": {"name": "dpsgd"},
    "model": {"name": "mlp", "hidden": [8]},
    "data": {"name": "fashion-mnist-mini"},
    "training": {"learning_rate": 0.05, "local_steps": 3},
    "topology": {"name": "ring"},
    "evaluation": {"every": 1},
}


def private(**keys):
    return from_mapping(BASE | {"privacy": {"clip": 1.0, "noise_multiplier": 2.0, **keys}})


@pytest.mark.parametrize("kind", [pytest.param("message", marks=pytest.mark.full), "dp_sgd"])
@pytest.mark.full
def test_resumed_private_runs_end_with_the_same_bytes_and_epsilon(tmp_path, monkeypatch, kind):
    pytest.importorskip("opacus")
    settings = ("algorithm={name: el}", f"privacy={{kind: {kind}, clip: 1.0, noise_multiplier: 1.0}}", "rounds=4")
    whole = run_whole(tmp_path / "whole", settings)
    run_until(tmp_path / "torn", settings, 3, 2, monkeypatch)
    runs.resume(tmp_path / "torn", checkpoint_every=Every(rounds=1))
    assert outcome(tmp_path / "torn") == whole
    assert whole["summary"]["privacy"]["epsilon"]["max"] > 0


def test_message_to_several_receivers_is_one_release(tmp_path):
    pytest.importorskip("opacus")
    runs.run(private(), out=tmp_path / "run")
    records = read(tmp_path / "run")
    # Two rounds, a model each, to both neighbors; noise of 2 clip over a sensitivity of 2 clip.
    assert records.evaluations.epsilon[-1] == pytest.approx(epsilon([Releases(1.0, 1.0, 2)], 1e-5))
    assert rounds(records)["epsilon"][0] == pytest.approx(epsilon([Releases(1.0, 1.0, 1)], 1e-5))
    summary = summary_of(records)
    assert summary["privacy"]["kind"] == "message"
    assert dict(rows(summary))["privacy"].startswith(f"epsilon at most {summary['privacy']['epsilon']['max']:.2f} ")


def test_private_steps_are_counted_with_their_sample_rate(tmp_path):
    pytest.importorskip("opacus")
    runs.run(private(kind="dp_sgd"), out=tmp_path / "run")
    records = read(tmp_path / "run")
    samples = [json.loads(line)["train"] for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    expected = max(epsilon([Releases(2.0, 8 / count, 6)], 1e-5) for count in samples)
    assert records.evaluations.epsilon[-1] == pytest.approx(expected)


EQUAL = {
    "rounds": 3,
    "nodes": {"clusters": [3]},
    "topology": {"name": "complete"},
    "model": {"name": "linear"},
    "partition": {"name": "random", "samples_per_node": 20},
    "training": {"learning_rate": 0.1, "local_steps": 10, "batch_size": 4},
    "evaluation": {"every": 1, "target_accuracy": 0.01, "samples": 20},
    "privacy": {"kind": "dp_sgd", "clip": 1.0, "noise_multiplier": 1.1, "delta": 1e-5},
}


@pytest.mark.parametrize("algorithm", ["fedavg", "dpsgd", "local"])
def test_epsilon_counts_completed_rounds(tmp_path, algorithm):
    accountants = pytest.importorskip("opacus.accountants")
    expected = []
    accountant = accountants.RDPAccountant()
    for _ in range(3):
        for _ in range(10):
            accountant.step(noise_multiplier=1.1, sample_rate=4 / 20)
        expected.append(accountant.get_epsilon(delta=1e-5))
    assert expected == pytest.approx([4.864, 6.366, 7.573], abs=1e-3)
    scenario = from_mapping(BASE | EQUAL | {"algorithm": {"name": algorithm}})
    summary = runs.run(scenario, out=tmp_path / "run")
    records = read(tmp_path / "run").evaluations.values["epsilon"][:3, :3]
    assert records == pytest.approx(np.array([[spent] * 3 for spent in expected]), abs=1e-3)
    assert summary["target"]["round"] == 1 and summary["target"]["epsilon"] == pytest.approx(4.864, abs=1e-3)


def test_run_stopped_at_its_target_spends_its_completed_rounds(tmp_path):
    pytest.importorskip("opacus")
    stops = {"evaluation": EQUAL["evaluation"] | {"stop_at_target": True}, "algorithm": {"name": "fedavg"}}
    spent = runs.run(from_mapping(BASE | EQUAL | stops), out=tmp_path / "run")["privacy"]["epsilon"]
    assert (spent["mean"], spent["max"]) == pytest.approx((4.864, 4.864), abs=1e-3)


def test_messages_of_the_last_exchange_are_released_after_the_last_round(tmp_path):
    pytest.importorskip("opacus")
    private_messages = {"privacy": {"clip": 1.0, "noise_multiplier": 2.0}}
    scenario = from_mapping(
        BASE | EQUAL | private_messages | {"algorithm": {"name": "dpsgd", "final_all_reduce": True}}
    )
    runs.run(scenario, out=tmp_path / "run")
    # One model a round; noise of 2 clip over a sensitivity of 2 clip.
    expected = [[epsilon([Releases(1.0, 1.0, count)], 1e-5)] * 3 for count in (1, 2, 3, 4)]
    assert read(tmp_path / "run").evaluations.values["epsilon"][:, :3] == pytest.approx(np.array(expected))


def test_epsilon_is_not_recorded_without_noise(tmp_path):
    pytest.importorskip("opacus")
    runs.run(private(noise_multiplier=0.0), out=tmp_path / "run")
    assert dict(rows(summary_of(read(tmp_path / "run"))))["privacy"] == "no guarantee"


def test_running_statistics_are_refused_with_private_training(tmp_path):
    pytest.importorskip("opacus")
    scenario = from_mapping(BASE | {"model": {"name": "resnet8"}, "privacy": {"clip": 1.0, "noise_multiplier": 1.0}})
    with pytest.raises(ScenarioError, match="running statistics"):
        runs.run(scenario, out=tmp_path / "run")


def test_running_statistics_of_extra_parts_name_the_algorithm(tmp_path):
    pytest.importorskip("opacus")
    keys = {"algorithm": {"name": "mapl"}, "model": {"name": "gn_lenet"}}
    scenario = from_mapping(BASE | keys | {"privacy": {"clip": 1.0, "noise_multiplier": 1.0}})
    with pytest.raises(ScenarioError, match=r"with mapl has running .* in projection.*or another "):
        runs.run(scenario, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"learning": "none"}, "learning is none"),
        ({"training": {"learning_rate": 0.1, "accumulate": 2}}, "training.accumulate: expected 1"),
        ({"training": {"learning_rate": 0.1, "precision": "bf16"}}, "training.precision: expected float32"),
    ],
)
def test_unsupported_options_with_private_training_are_refused(keys, said):
    with pytest.raises(ScenarioProblems, match=said):
        from_mapping(BASE | {"privacy": {"kind": "dp_sgd", "clip": 1.0, "noise_multiplier": 1.0}} | keys)


@pytest.mark.parametrize(("key", "value"), [("adjacency", "zero_out"), ("clips", "model")])
def test_message_options_are_refused_with_dp_sgd(key, value):
    section = {"clip": 1.0, "noise_multiplier": 1.0, key: value}
    assert getattr(from_mapping(BASE | {"privacy": {"kind": "message", **section}}).privacy, key) == value
    with pytest.raises(ScenarioProblems, match=f"privacy.{key}: is for privacy.kind message, which is dp_sgd"):
        from_mapping(BASE | {"privacy": {"kind": "dp_sgd", **section}})


def test_the_shipped_scenario_is_private():
    assert load("privacy").privacy.kind == "dp_sgd"
