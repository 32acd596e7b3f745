"""Runs whose nodes finish early, late or while others are offline: exactly the completed rounds count."""

import json
from pathlib import Path

import pytest

from ddlsim import runs
from ddlsim.runs.branch import plan_branch
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
EARLY = (
    "nodes.clusters=[3,1]",
    "topology={name: complete}",
    "validation={source: node, fraction: 0.2}",
    "training={early_stopping: {patience: 1}, learning_rate: 1.0, batch_size: 8, local_steps: 5}",
    "rounds=40",
    "evaluation.every=10",
)


def away(*absences: tuple[int, float, float]) -> str:
    entries = ", ".join(f"{{node: {node}, start_s: {start}, end_s: {end}}}" for node, start, end in absences)
    return f"churn={{name: schedule, offline: [{entries}]}}"


@pytest.fixture
def run(tmp_path):
    def run(name: str, *changes: str) -> tuple[dict, list[dict]]:
        scenario = load(SMOKE, (f"algorithm={{name: {name}}}", *changes))
        summary = runs.run(scenario, out=tmp_path / "run")
        return summary, [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]

    return run


def of(rows: list[dict], name: str) -> list[dict]:
    return [row for row in rows if row["name"] == name]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "dpsgd"])
def test_last_evaluation_covers_the_last_completed_round(run, name):
    summary, rows = run(name, *EARLY)
    stopped = of(rows, "stopped")
    assert len(stopped) == 4
    assert summary["evaluated_round"] == max(row["round"] for row in stopped) < 40
    assert {row["round"] for row in of(rows, "accuracy")} == {summary["evaluated_round"]}


@pytest.mark.parametrize("name", ["fedavg", "dpsgd", "random"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_run_waits_for_an_offline_node_after_another_has_stopped(run, name, mode):
    summary, rows = run(name, *EARLY, f"mode={mode}", away((0, 3.0, 3.5), (1, 3.0, 3.5), (3, 3.0, 3.5)))
    stopped = of(rows, "stopped")
    assert len(stopped) == 4 and min(row["time_s"] for row in stopped) < 3
    assert summary["sim_time_s"] == pytest.approx(max(row["time_s"] for row in stopped))
    assert summary["evaluated_round"] == max(row["round"] for row in stopped)


def test_run_does_not_wait_for_a_long_absence_after_all_others_have_stopped(run):
    summary, rows = run("dpsgd", *EARLY, away((0, 0.5, 1000)))
    assert [row["node"] for row in of(rows, "cut_off")] == [0]
    assert summary["sim_time_s"] == max(row["time_s"] for row in of(rows, "stopped"))


def test_node_returning_after_the_last_round_does_not_end_the_run(run):
    """The other node is offline in the middle of the last round."""
    changes = "nodes.clusters=[2]", "topology={name: complete}", "rounds=4", "evaluation.every=40"
    free = "algorithm={name: dpsgd, final_all_reduce: false}"
    summary, rows = run("dpsgd", *changes, free, away((1, 0.1, 0.8), (0, 0.9, 1.3)))
    assert summary["evaluated_round"] == 4
    assert min(row["time_s"] for row in of(rows, "accuracy")) > 1.3


def test_repeated_secure_round_of_a_server_has_a_sum(run):
    everybody = [(node, 3.0, 3.5) for node in range(4)]
    secure = "secure_aggregation={threshold: 0.1}"
    _, rows = run("fedavg", "nodes.clusters=[3,1]", "rounds=12", "evaluation.every=1", secure, away(*everybody))
    assert [row["value"] for row in of(rows, "secure_sum") if row["round"] == 8] == [0, 4]


def test_server_rounds_without_nodes_are_recorded(run):
    """Two nodes alternate; each stay is shorter than a training."""
    stays = [(node, 2.0 * turn + node - 0.1, 2.0 * turn + node + 1) for turn in range(9) for node in (0, 1)]
    gaps = []
    for node in (0, 1):
        left = 0.0
        for _, came, leaves in (stay for stay in stays if stay[0] == node):
            gaps += [(node, left, came)] if came > left else []
            left = leaves
        gaps.append((node, left, 1000.0))
    changes = "nodes.clusters=[2]", "topology={name: complete}", "rounds=10", "devices.step_time_s=1.0"
    summary, rows = run("fedavg", *changes, away(*gaps))
    assert [row["round"] for row in of(rows, "empty")][:9] == [*range(1, 10)]
    assert any(f"EMPTY: {len(of(rows, 'empty'))} of 10 rounds had no node" in text for text in summary["labels"])


@pytest.mark.parametrize("name", ["deprl", "pens", "dpsgd"])
def test_stopped_nodes_are_evaluated_at_the_time_of_their_stop(tmp_path, name):
    """For nodes of the last round, whether an evaluation was due before or only because the run ended."""
    settings = (
        f"algorithm={{name: {name}}}",
        *EARLY,
        "mode=async",
        "devices={name: lognormal, median_step_time_s: 0.05, sigma: 0.5}",
    )
    found = []
    for every in (1, 39):
        summary = runs.run(load(SMOKE, (*settings, f"evaluation.every={every}")), out=tmp_path / str(every))
        rows = [json.loads(line) for line in (tmp_path / str(every) / "metrics.jsonl").read_text().splitlines()]
        found.append([row for row in rows if row["round"] == summary["evaluated_round"]])
    assert of(found[0], "stopped") and found[0][0]["round"] < 39
    assert found[0] == found[1]


def test_node_returning_after_the_others_stopped_is_evaluated_at_its_end(run):
    ended = {}
    for every in (1, 100):
        summary, rows = run("local", *EARLY, "mode=async", f"evaluation.every={every}", away((3, 0.01, 8.0)))
        stopped = {row["node"]: row["round"] for row in of(rows, "stopped")}
        others = max(stopped[node] for node in range(3))
        assert stopped[3] <= others and of(rows, "stopped")[-1]["node"] == 3
        assert summary["evaluated_round"] == others + (every == 1)  # by then all had completed the same rounds
        measured = [row for row in of(rows, "accuracy") if row["round"] == summary["evaluated_round"]]
        ended[every] = [row["value"] for row in measured]
        assert measured[3]["time_s"] == summary["sim_time_s"]
    assert len(ended[1]) == 4 and ended[1] == ended[100]


def test_node_losing_its_state_after_the_others_stopped_is_evaluated_at_its_end(run):
    lost = away((3, 1.5, 8.0), (3, 8.5, 99.0))[:-1] + ", state: lost}"
    ended = {}
    for every in (1, 100):
        summary, rows = run("local", *EARLY, "mode=async", f"evaluation.every={every}", lost)
        assert summary["cut_off"] == 1
        measured = [row for row in of(rows, "accuracy") if row["round"] == summary["evaluated_round"]]
        ended[every] = [row["value"] for row in measured]
    assert len(ended[1]) == 4 and ended[1] == ended[100]


def test_branch_starts_at_the_last_completed_round(run, tmp_path):
    summary, rows = run("local", *EARLY, "mode=async", "evaluation.every=1", away((3, 0.01, 8.0)))
    done = max(row["round"] for row in of(rows, "stopped"))
    assert summary["evaluated_round"] == done + 1
    assert plan_branch(tmp_path / "run", None, ["rounds=60"]).from_round == done
