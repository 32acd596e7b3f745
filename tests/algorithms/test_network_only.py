"""`learning: none`: the same scenario and algorithm files with models that are only sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from compared_runs import compare

from ddlsim import runs
from ddlsim.algorithms import ALGORITHMS
from ddlsim.assembly import build_learner
from ddlsim.cli import app
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.size_learner import SizeLearner, parts_of_sizes
from ddlsim.report.run_report import report
from ddlsim.runs.loading import load_data, prepare
from ddlsim.scenario import load

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
VALUES_STEER_NOTHING = ("adpsgd", "deprl", "dpsgd", "el", "facade", "gossip")  # facade: only the head may differ


def run(out: Path, name: str, *overrides: str) -> dict:
    return runs.run(load(SMOKE, (f"algorithm={{name: {name}}}", *overrides)), out=out)


def metrics(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_runs_without_learning(tmp_path, name):
    summary = run(tmp_path / "run", name, "learning=none")
    assert (summary["status"], summary["accuracy"]["all"], summary["device"]) == ("done", None, "none")
    least = {"models": 1_000_000, "vectors": 100_000, "nothing": -1}[ALGORITHMS[name].exchanges]
    assert summary["bytes"]["total"] > least
    assert [row["round"] for row in summary["timetable"]][:6] == [1, 2, 3, 4, 5, 6]
    assert {row["nodes"] for row in summary["timetable"]} == {8}  # a server is not one of them
    assert {row["name"] for row in metrics(tmp_path / "run")} == {
        "round_first_s",
        "round_median_s",
        "round_last_s",
        "round_nodes",
    }
    assert any("only the network ran" in label for label in summary["labels"])


@pytest.mark.parametrize(("name", "pairs"), [("fedavg", "16 of 72"), ("el", "16 of 56")])
def test_pair_totals_include_the_server(tmp_path, name, pairs):
    run(tmp_path / "run", name, "learning=none", "topology={name: ring}")
    text = report([tmp_path / "run"])
    assert f"pairs with traffic {pairs}" in " ".join(text.split())
    assert ("with its share of the server's" in text) == (name == "fedavg")


@pytest.mark.parametrize("name", VALUES_STEER_NOTHING)
def test_messages_and_times_equal_those_with_learning(tmp_path, name):
    mixed = ("devices={name: lognormal, median_step_time_s: 0.05}", "network.links={name: 4g}")
    for learning in ("real", "none"):
        run(tmp_path / learning, name, f"learning={learning}", *mixed)
    real, none = tmp_path / "real", tmp_path / "none"
    assert (real / "communication.jsonl").read_bytes() == (none / "communication.jsonl").read_bytes()
    evaluated = [(row["round"], row["time_s"]) for row in metrics(real) if row["name"] == "accuracy"]
    last_s = {row["round"]: row["value"] for row in metrics(none) if row["name"] == "round_last_s"}
    assert evaluated
    for completed in {completed for completed, _ in evaluated}:
        assert last_s[completed] == max(time_s for number, time_s in evaluated if number == completed)


NETS = """
from torch import nn
class Plain(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 12), nn.ReLU(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 10))
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.Sequential(nn.Flatten(), nn.Linear(784, 12), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 10, bias=False))
    def forward(self, x):
        return self.head(self.core(x))
"""


@pytest.mark.parametrize(
    ("net", "name"),  # a head's size hides the features
    [("Plain", "el"), ("Deep", "fedproto"), ("Deep", "mapl")],
)
def test_user_models_send_the_same_bytes_as_with_learning(tmp_path, net, name):
    (tmp_path / "nets.py").write_text(NETS)
    training = "training={epochs: 1, batch_size: 32, learning_rate: 0.01}"  # in which every class occurs
    own = (
        f"model={{name: {tmp_path}/nets.py:{net}}}",
        "rounds=3",
        "partition={name: random, samples_per_node: 300}",
        training,
        "evaluation.samples=50",
    )
    for learning in ("real", "none"):
        run(tmp_path / learning, name, f"learning={learning}", *own)
    records = [(tmp_path / learning / "communication.jsonl").read_bytes() for learning in ("real", "none")]
    assert records[0] and records[0] == records[1]


@pytest.mark.parametrize(
    ("name", "compression"),  # facade: copies are per head
    [("el", "int8"), *((name, "top_k") for name in ("adpsgd", "deprl", "dpsgd", "el", "gossip"))],
)
def test_compressed_messages_have_the_same_sizes_as_with_learning(tmp_path, name, compression):
    for learning in ("real", "none"):
        changes = (
            f"learning={learning}",
            f"network.compression={{name: {compression}}}",
            "rounds=3",
            "evaluation.samples=50",
        )
        run(tmp_path / learning, name, *changes)
    records = [(tmp_path / learning / "communication.jsonl").read_bytes() for learning in ("real", "none")]
    assert records[0] == records[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["network.links.uplink_mbps=0"], r"0\.\d+ .* nothing can happen .* 24 messages are on links without "),
        (["network.links.uplink_mbps=1e-12"], "24 messages are on links without capacity, or with too little"),
        (["devices.step_time_s=9e8"], "simulated time has passed 9e.09 s in round 2 of node 0"),
    ],
)
def test_stalled_run_reports_the_cause_and_keeps_its_records(tmp_path, changes, message):
    with pytest.raises(DdlsimError, match=message):
        run(tmp_path / "run", "facade", "learning=none", *changes)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "failed"
    kept = {path.name for path in (tmp_path / "run").iterdir()}
    assert kept >= {"metrics.jsonl", "links.jsonl", "communication.jsonl"}


def test_totals_are_the_sums_over_pairs(tmp_path):
    for detail in ("full", "total"):
        run(tmp_path / detail, "el", "learning=none", f"records.detail={detail}")
    pairs = [json.loads(line) for line in (tmp_path / "full" / "communication.jsonl").read_text().splitlines()]
    (total,) = [json.loads(line) for line in (tmp_path / "total" / "communication.jsonl").read_text().splitlines()]
    assert (total["src"], total["dst"], total["pairs"]) == (None, None, len(pairs))
    for name in ("messages", "payload_bytes", "header_bytes", "wasted_bytes"):
        assert total[name] == sum(pair[name] for pair in pairs)
    full, summed = (json.loads((tmp_path / detail / "summary.json").read_text()) for detail in ("full", "total"))
    assert full["bytes"] == summed["bytes"]
    assert f"{len(pairs)} of 56" in report([tmp_path / "total"])


def test_reports_of_network_only_runs_hold_times_and_no_accuracy(tmp_path):
    run(tmp_path / "run", "facade", "learning=none")
    text = report([tmp_path / "run"])
    assert "Completion of each round" in text and "bytes per node" in text
    assert "accuracy" not in text and "target" not in text
    assert "only the network ran" in compare([tmp_path / "run"])


def test_neither_data_nor_torch_is_needed(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\nfrom ddlsim import runs\nfrom ddlsim.scenario import load\n"
        "changes = ['learning=none', 'model={name: sizes, core: 1000, head: 10}', 'rounds=2']\n"
        f"scenario = load({str(SCENARIOS / 'facade_30_2.yaml')!r}, changes)\n"
        f"out = Path({str(tmp_path / 'run')!r})\n"
        "summary = runs.run(scenario, out=out, data_dir=Path('nowhere'), download=False)\n"
        "assert summary['data'] == {'name': 'cifar10', 'fallback': False}, summary['data']\n"
        "assert summary['bytes']['payload'] == (2 * 4 + 31) * 32 * (1010 * 4 + 8), summary['bytes']\n"
        "sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=SCENARIOS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_learning_none_is_an_option_of_the_command_line(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["run", str(SMOKE), "--learning", "none", "--out", "run", "-q"])
    assert result.exit_code == 0, result.output
    assert "nodes that completed the last round" in result.stdout
    assert "learning: none\n" in (tmp_path / "run" / "scenario.yaml").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model={name: sizes}"], "model.name: is only a size and cannot learn"),
        (["learning=none", "model={name: sizes}", "algorithm={name: mapl}"], "model.name: is only a size, and mapl"),
        (["learning=none", "evaluation.stop_at_target=true"], "stop_at_target: needs an accuracy"),
    ],
)
def test_settings_that_need_learning_are_refused(changes, message):
    with pytest.raises(Exception, match=message):
        load(SMOKE, changes)


@pytest.mark.parametrize("source", ["train", "test", "node"])
def test_validation_takes_the_same_time_as_with_learning_and_stops_no_node(tmp_path, source):
    changes = f"validation.source={source}", "training.early_stopping={patience: 100}"
    real, none = (run(tmp_path / kind, "el", f"learning={kind}", *changes) for kind in ("real", "none"))
    assert real["sim_time_s"] == none["sim_time_s"] > 6 * 5 * 0.05 * 1.1
    stopping = ("validation.source=node", "training.early_stopping={patience: 1}")
    assert len(run(tmp_path / "short", "el", "learning=none", *stopping)["timetable"]) >= 6


@pytest.mark.parametrize(("drop_last", "steps"), [(False, 4), (True, 3)])
def test_drop_last_leaves_out_the_smaller_last_batch(drop_last, steps):
    learner = SizeLearner({"net": parts_of_sizes({"core": 1, "head": 1})}, 2, {"train": 125}, 32, drop_last)
    assert (learner.steps_per_epoch(0), learner.batches_in("train", 0)) == (steps, 4)


def test_the_rule_comes_from_the_scenario():
    given = load(SMOKE, ("learning=none", "training.drop_last=true", "training.batch_size=32"))
    learner = build_learner(given, prepare(load_data(given)), "none")
    whole, left = divmod(learner.num_samples(0), 32)
    assert learner.steps_per_epoch(0) == whole and left
