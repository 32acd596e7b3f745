"""A branched run equals the earlier run up to a round and continues with the changed scenario."""

import json

import pytest
from torn_runs import SMOKE, outcome, stopping_after

from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.checkpoint import ALL, Every
from ddlsim.runs.checkpoint_files import checkpoints_of
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

KEEP = Every(rounds=2, keep=ALL)
CHURN = "churn={name: schedule, offline: [{node: 2, start_s: 0.35, end_s: 1.5}, {node: 7, start_s: 0.9, end_s: 1.4}]}"
ASYNC = (
    "mode=async",
    "devices={name: lognormal, median_step_time_s: 0.05}",
    "network.drop_probability=0.1",
    "network.on_drop=drop",
    CHURN,
)
FACADE = ("algorithm={name: facade}", "rounds=6", "evaluation.every=2", CHURN)
EL = ("algorithm={name: el, variant: local}", "rounds=6", "evaluation.every=2")


def run(out, settings, every=KEEP):
    runs.run(load(SMOKE, settings), out=out, checkpoint_every=every)
    return outcome(out)


def rows(directory, name=None):
    found = [json.loads(line) for line in (directory / "metrics.jsonl").open()]
    return [row for row in found if name in (None, row["name"])]


@pytest.fixture(scope="module")
def parent(tmp_path_factory):
    """Return a finished run with all its checkpoints."""
    out = tmp_path_factory.mktemp("parent") / "run"
    run(out, EL)
    return out


@pytest.mark.parametrize(
    "settings",
    [
        FACADE,
        (*EL, "network.compression={name: top_k}"),
        pytest.param(("algorithm={name: dac, sampled_peers: 2}", "rounds=6", *ASYNC), marks=pytest.mark.full),
        pytest.param(("algorithm={name: fedavg}", "rounds=6", CHURN), marks=pytest.mark.full),
        pytest.param(("algorithm={name: gossip}", "rounds=6", *ASYNC), marks=pytest.mark.full),
    ],
    ids=["facade-churn", "el-top_k", "dac-async-churn", "fedavg-churn", "gossip-async-churn"],
)
def test_unchanged_branch_ends_with_the_same_bytes(tmp_path, settings):
    whole = run(tmp_path / "run", settings)
    for from_round in (3, 4):
        runs.resume(tmp_path / "run", from_round=from_round, out=tmp_path / f"from-{from_round}")
        assert outcome(tmp_path / f"from-{from_round}") == whole


@pytest.mark.full
def test_without_a_checkpoint_a_branch_is_computed_from_the_start(tmp_path, monkeypatch):
    whole = run(tmp_path / "run", EL, Every())
    said: list[str] = []
    monkeypatch.setattr(Progress, "message", lambda self, text: said.append(text))
    runs.resume(tmp_path / "run", from_round=3, out=tmp_path / "branch")
    assert outcome(tmp_path / "branch") == whole
    assert "has no checkpoint for these changes" in said[0] and "computed again" in said[0]


def test_branch_with_more_rounds_under_a_schedule_restarts_and_reports_the_reason(tmp_path, monkeypatch):
    run(tmp_path / "run", (*EL, "training.schedule={name: step, every: 2}"))
    said: list[str] = []
    monkeypatch.setattr(Progress, "message", lambda self, text: said.append(text))
    runs.resume(tmp_path / "run", from_round=3, set=["rounds=8"], out=tmp_path / "branch")
    assert "all rounds are computed again" in said[0]


def test_a_slower_network_holds_from_the_branching_round_on(parent, tmp_path):
    out = tmp_path / "branch"
    summary = runs.resume(parent, from_round=3, set=["network.links.uplink_mbps=0.5"], out=out)
    assert load(out / "scenario.yaml").network.links.uplink_mbps == 0.5
    before, after = rows(parent, "accuracy"), rows(out, "accuracy")
    assert [row for row in before if row["round"] <= 2] == [row for row in after if row["round"] <= 2]
    assert max(row["time_s"] for row in after) > 2 * max(row["time_s"] for row in before)
    manifest = json.loads((out / "manifest.json").read_text())
    changed = {"network.links.uplink_mbps": [100.0, 0.5]}
    assert manifest["branches"] == [{"parent": str(parent), "from_round": 3, "changed": changed}]
    assert summary["labels"] == [f"branched from {parent} after round 3: network.links.uplink_mbps 100.0 -> 0.5"]


@pytest.mark.parametrize("every", [KEEP, Every()], ids=["checkpoint-before", "no-checkpoint"])
def test_branch_does_not_change_training_before_its_round(tmp_path, every):
    run(tmp_path / "run", (*EL, "rounds=8", "evaluation.every=1"), every)
    runs.resume(tmp_path / "run", from_round=3, set=["training.learning_rate=0.001"], out=tmp_path / "branch")
    before, after = rows(tmp_path / "run", "accuracy"), rows(tmp_path / "branch", "accuracy")
    begun = 4  # with round 3 completed all nodes are in round 4, in the same instant
    assert [row for row in before if row["round"] <= begun] == [row for row in after if row["round"] <= begun]
    assert [row for row in before if row["round"] == begun + 1] != [row for row in after if row["round"] == begun + 1]


@pytest.mark.parametrize("settings", [EL, pytest.param(FACADE, marks=pytest.mark.full)], ids=["el", "facade"])
def test_branch_with_more_rounds_equals_a_longer_run(tmp_path, settings):
    run(tmp_path / "short", settings)
    runs.resume(tmp_path / "short", set=["rounds=9"], out=tmp_path / "more")
    whole = run(tmp_path / "whole", (*settings, "rounds=9"))
    more = outcome(tmp_path / "more")
    assert {key: value for key, value in more.items() if key != "summary"} == {
        key: value for key, value in whole.items() if key != "summary"
    }


@pytest.mark.full
def test_more_rounds_of_a_schedule_are_computed_from_the_start(tmp_path):
    settings = (*EL, "training.schedule={name: cosine}")
    run(tmp_path / "short", settings)
    runs.resume(tmp_path / "short", set=["rounds=8"], out=tmp_path / "more")
    whole = run(tmp_path / "whole", (*settings, "rounds=8"))
    assert outcome(tmp_path / "more")["metrics.jsonl"] == whole["metrics.jsonl"]


def test_more_rounds_are_not_computed_from_the_start(parent, tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(Progress, "message", lambda self, text: said.append(text))
    runs.resume(parent, set=["rounds=7"], out=tmp_path / "more")
    assert "4 rounds are repeated without training, 2 more" in said[0]


@pytest.mark.parametrize(
    "change",
    [
        CHURN,
        "network.compression={name: int8}",
        "training={learning_rate: 0.1, batch_size: 8, local_steps: 5, label_smoothing: 0.5, schedule: linear}",
        *(
            pytest.param(change, marks=pytest.mark.full)
            for change in (
                "evaluation.every=1",
                "devices={name: constant, step_time_s: 0.2}",
                "protocol.deadline_s=0.01",
                "network={drop_probability: 0.5, on_drop: drop}",
                "network.timeout_s=0.01",
                "network.links={name: 4g}",
                "training.local_steps=2",
                "algorithm.fanout=2",
            )
        ),
    ],
)
@pytest.mark.full
def test_stopped_branch_continues_with_the_same_records(parent, tmp_path, monkeypatch, change):
    changes = [change]
    runs.resume(parent, from_round=3, set=changes, out=tmp_path / "whole")
    whole = outcome(tmp_path / "whole")
    assert whole["metrics.jsonl"] != outcome(parent)["metrics.jsonl"]
    with stopping_after(2, monkeypatch):
        runs.resume(parent, from_round=3, set=changes, out=tmp_path / "torn", checkpoint_every=Every(rounds=1))
    assert checkpoints_of(tmp_path / "torn")
    runs.resume(tmp_path / "torn")
    assert outcome(tmp_path / "torn") == whole


def test_an_algorithm_changes_for_all_nodes_in_the_same_round(tmp_path):
    settings = (
        "algorithm={name: facade, thorough_every: 0}",
        "rounds=6",
        "devices={name: lognormal, median_step_time_s: 0.05}",
    )
    run(tmp_path / "run", settings)
    runs.resume(tmp_path / "run", from_round=2, set=["algorithm.thorough_every=1"], out=tmp_path / "branch")
    assert rows(tmp_path / "branch") != rows(tmp_path / "run")


@pytest.mark.full
def test_nodes_are_deluded_from_the_branching_round_on(tmp_path):
    run(tmp_path / "run", ("algorithm={name: oracle, sampled_peers: 1, delusion_start: 0}", "rounds=5"))
    changes = ["algorithm.deluded=2", "algorithm.deluded_cluster=1"]  # both of its nodes, 6 and 7
    runs.resume(tmp_path / "run", from_round=2, set=changes, out=tmp_path / "branch")
    pulled = {(row["round"], row["node"]): row["value"] for row in rows(tmp_path / "branch", "pulled_from")}
    assert [pulled[completed, 6] == 7 for completed in (1, 2, 4, 5)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("seed=3", "seed"),
        ("model={name: mlp, hidden: [16]}", "model.hidden"),
        ("nodes.clusters=[8]", "nodes.clusters"),
        ("algorithm={name: facade}", "algorithm.name"),
        ("algorithm.variant=oracle", "algorithm.variant"),
        ("training.optimizer=adam", "training.optimizer"),
        ("network.fidelity=latency", "network.fidelity"),
    ],
)
def test_fixed_keys_of_a_branch_are_refused_with_the_changeable_keys(parent, tmp_path, change, key):
    told = rf"--set: .*{key}.* cannot change during a run. These keys can: description, .*, algorithm.fanout \(except"
    with pytest.raises(ScenarioError, match=told):
        runs.resume(parent, from_round=3, set=[change], out=tmp_path / "branch")
    assert not (tmp_path / "branch").exists()


@pytest.mark.parametrize(
    ("from_round", "changes", "why"),
    [
        (7, [], "--from-round 7: expected a round from 1 to 6"),
        (5, ["rounds=4"], "--from-round 5: expected a round from 1 to 4"),
        (6, ["network.drop_probability=0.5"], "--from-round 6: expected a round from 1 to 5"),
    ],
)
def test_round_outside_the_run_is_refused(parent, tmp_path, from_round, changes, why):
    with pytest.raises(ScenarioError, match=why):
        runs.resume(parent, from_round=from_round, set=changes, out=tmp_path / "branch")


@pytest.mark.full
def test_a_branch_of_a_branch_follows_all_three_scenarios(parent, tmp_path):
    runs.resume(parent, from_round=2, set=["network.links.uplink_mbps=1"], out=tmp_path / "one", checkpoint_every=KEEP)
    runs.resume(tmp_path / "one", from_round=4, set=["network.links.uplink_mbps=50"], out=tmp_path / "two")
    one, two = rows(tmp_path / "one", "accuracy"), rows(tmp_path / "two", "accuracy")
    assert [row for row in one if row["round"] <= 4] == [row for row in two if row["round"] <= 4]
    assert two[-1]["time_s"] < one[-1]["time_s"]
    branches = json.loads((tmp_path / "two" / "manifest.json").read_text())["branches"]
    assert [about["from_round"] for about in branches] == [2, 4]
    with pytest.raises(ScenarioError, match=r"--from-round 1: expected a round from 2 to .* Branch .*run to go back"):
        runs.resume(tmp_path / "one", from_round=1, out=tmp_path / "three")


@pytest.mark.full
def test_branch_of_a_branch_at_its_first_round_equals_a_branch_of_the_run(parent, tmp_path):
    slow, other = "network.links.uplink_mbps=1", "training.learning_rate=0.001"
    runs.resume(parent, from_round=2, set=[slow], out=tmp_path / "one", checkpoint_every=KEEP)
    runs.resume(tmp_path / "one", from_round=2, set=[other], out=tmp_path / "two")
    runs.resume(parent, from_round=2, set=[slow, other], out=tmp_path / "at-once")
    assert rows(tmp_path / "two") == rows(tmp_path / "at-once")
    branches = json.loads((tmp_path / "two" / "manifest.json").read_text())["branches"]
    assert [list(about["changed"]) for about in branches] == [[slow.split("=")[0]], [other.split("=")[0]]]


def test_new_churn_replaces_the_old_one_at_the_branch(tmp_path):
    old = "churn={name: schedule, offline: [{node: 1, start_s: 0.1, end_s: 9.0}, {node: 3, start_s: 9.0, end_s: 10.0}]}"
    new = "churn={name: schedule, offline: [{node: 2, start_s: 0.0, end_s: 1.5}, {node: 4, start_s: 0.2, end_s: .inf}]}"
    run(tmp_path / "run", (*EL, old, "mode=async"))
    runs.resume(tmp_path / "run", from_round=2, set=[new], out=tmp_path / "branch")
    at_s = next(row["time_s"] for row in rows(tmp_path / "branch", "online") if row["node"] == 2)
    online = [(row["node"], row["value"]) for row in rows(tmp_path / "branch", "online")]
    assert online == [(1, 0), (2, 0), (4, 0), (1, 1), (2, 1)]
    assert [row["time_s"] for row in rows(tmp_path / "branch", "online")][1:] == [at_s, at_s, at_s, 1.5]


def test_a_network_only_run_is_branched_from_the_start(tmp_path):
    runs.run(load(SMOKE, (*EL, "learning=none")), out=tmp_path / "run")
    runs.resume(tmp_path / "run", from_round=2, set=["network.links.uplink_mbps=1"], out=tmp_path / "branch")
    last = rows(tmp_path / "run", "round_last_s"), rows(tmp_path / "branch", "round_last_s")
    assert [one["value"] == other["value"] for one, other in zip(*last, strict=True)][:2] == [True, True]
    assert last[1][-1]["value"] > last[0][-1]["value"]


def test_finished_branch_is_reused_and_a_torn_one_names_resume(parent, tmp_path, monkeypatch):
    out, changes = tmp_path / "branch", ["network.links.uplink_mbps=1"]
    with stopping_after(2, monkeypatch):
        runs.resume(parent, from_round=2, set=changes, out=out, checkpoint_every=Every(rounds=1))
    with pytest.raises(ScenarioError, match=r"branch holds this branch, .* `ddlsim resume .*branch` continues it"):
        runs.resume(parent, from_round=2, set=changes, out=out)
    first = runs.resume(out)
    assert runs.resume(parent, from_round=2, set=changes, out=out) == first


@pytest.mark.full
def test_branch_is_not_reused_as_a_run_of_its_scenario(parent, tmp_path):
    runs.resume(parent, from_round=5, set=["network.links.uplink_mbps=1"], out=tmp_path / "branch")
    runs.run(load(tmp_path / "branch" / "scenario.yaml"), out=tmp_path / "branch")
    assert (tmp_path / "branch.earlier-1").is_dir()
