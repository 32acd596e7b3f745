"""Client sampling: number and probability of drawn nodes, offline nodes, and nodes that are not drawn."""

import json
from pathlib import Path

import numpy as np
import pytest

from ddlsim import runs
from ddlsim.algorithms.server.fedavg import FedAvg
from ddlsim.foundation.errors import ScenarioError
from ddlsim.node.node import Node
from ddlsim.node.run import Run
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
ROUNDS = 6


def make_run(online, seed=0):
    run = Run(seed, 1000, np.zeros(8, int), lambda _: (), lambda steps: steps, has_server=True)
    run.online = lambda: list(online)
    return run


def frequencies(samples, count, rounds=1000):
    run, found = make_run([0, 2, 3, 7]), np.zeros(8)
    for round_num in range(rounds):
        found[list(run.clients(round_num, lambda online: count, samples))] += 1
    return found / rounds


def test_online_nodes_are_drawn_with_equal_probability():
    assert frequencies(None, 2) == pytest.approx([0.5, 0, 0.5, 0.5, 0, 0, 0, 0.5], abs=0.05)


def test_nodes_can_be_drawn_by_their_samples():
    expected = np.array([1, 0, 3, 4, 0, 0, 0, 8]) / 16
    assert frequencies(lambda node: node + 1, 1) == pytest.approx(expected, abs=0.05)


def test_drawn_nodes_follow_from_the_seed():
    def draws(seed):
        run = make_run(range(8), seed)
        found = [run.clients(round_num, lambda online: 3, None) for round_num in range(20)]
        run.online = lambda: [0, 1, 2]
        assert run.clients(19, lambda online: 1, None) == found[19]
        return found

    assert draws(0) == draws(0) != draws(1)


@pytest.mark.parametrize(
    ("keys", "online", "expected"),
    [
        ({"clients_per_round": 10}, 50, 10),
        ({"clients_per_round": 10}, 4, 4),
        ({"clients_per_round": 0.1}, 59, 5),
        ({"clients_per_round": 0.1, "min_clients": 3}, 20, 3),
        ({"clients_per_round": 0.1, "min_clients": 3}, 2, 2),
        ({"clients_per_round": 0.1}, 7, 1),
    ],
)
def test_number_of_drawn_nodes(keys, online, expected):
    assert FedAvg(**keys).num_clients(online) == expected


def test_more_clients_than_nodes_are_an_error():
    with pytest.raises(ScenarioError, match=r"algorithm.clients_per_round: there are 8 nodes, got 9"):
        FedAvg(clients_per_round=9).check([6, 2])


def run_sampled(tmp_path, monkeypatch, *keys, algorithm="fedavg, clients_per_round: 3"):
    """Return the nodes that train, by round, and the directory of the run."""
    trained, train = {}, Node.train

    def noted(self, *args, **terms):
        trained.setdefault(self.round_num, []).append(self.id)
        return train(self, *args, **terms)

    monkeypatch.setattr(Node, "train", noted)
    fixed = (f"algorithm={{name: {algorithm}}}", f"rounds={ROUNDS}", "evaluation={every: 2, samples: 50}")
    summary = runs.run(load(SMOKE, (*fixed, *keys)), out=tmp_path / "run")
    assert summary["status"] == "done"
    return trained, tmp_path / "run"


def test_nodes_that_are_not_drawn_neither_train_nor_send(tmp_path, monkeypatch):
    trained, out = run_sampled(tmp_path, monkeypatch, "learning=none")
    assert [len(nodes) for _, nodes in sorted(trained.items())] == [3] * ROUNDS
    sent = {node: sum(node in nodes for nodes in trained.values()) for node in range(8)}
    pairs = [json.loads(line) for line in (out / "communication.jsonl").read_text().splitlines()]
    to_server = {pair["src"]: pair["messages"] for pair in pairs if pair["dst"] == 8}
    from_server = {pair["dst"]: pair["messages"] for pair in pairs if pair["src"] == 8}
    drawn = {node: count for node, count in sent.items() if count}
    assert to_server == {node: 2 * count for node, count in drawn.items()}  # it asks for the model, and sends its own
    assert from_server == drawn


def test_offline_nodes_are_not_drawn(tmp_path, monkeypatch):
    away = "churn={name: schedule, offline: [{node: 1, start_s: 0, end_s: 1000}, {node: 5, start_s: 0.5, end_s: 1}]}"
    trained, _ = run_sampled(tmp_path, monkeypatch, "learning=none", away)
    assert {node for nodes in trained.values() for node in nodes} <= {0, 2, 3, 4, 5, 6, 7}
    assert len(trained) == ROUNDS and all(len(nodes) == 3 for nodes in trained.values())


@pytest.mark.parametrize("algorithm", ["scaffold", "fedsim"])
def test_rounds_end_under_deadlines_churn_and_losses(tmp_path, monkeypatch, algorithm):
    harsh = (
        "churn={name: schedule, offline: [{node: 2, start_s: 0.35, end_s: 1.5}, {node: 7, start_s: 0.9, end_s: 99}]}",
        "devices={name: lognormal, median_step_time_s: 0.05}",
        "network={drop_probability: 0.2, on_drop: drop}",
        "protocol={deadline_s: 0.4, late_messages: keep}",
        "learning=none",
    )
    trained, _ = run_sampled(tmp_path, monkeypatch, *harsh, algorithm=f"{algorithm}, clients_per_round: 0.5")
    assert max(trained) == ROUNDS - 1


def test_evaluations_test_the_servers_model_on_all_nodes(tmp_path, monkeypatch):
    _, out = run_sampled(tmp_path, monkeypatch)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    for completed in (2, 4, 6):
        found = [(row["node"], row["value"]) for row in rows if (row["name"], row["round"]) == ("accuracy", completed)]
        assert len(found) == 8
        assert len({value for node, value in found if node < 6}) == 1  # one test set per cluster
