"""Nodes that join or return in a run with a server start a round from the same model as the others."""

from pathlib import Path

import pytest
from number_node import NumberNode, answer, message

from ddlsim import runs
from ddlsim.algorithms.server.fedavg import FedAvg
from ddlsim.algorithms.server.fedclassavg import FedClassAvg
from ddlsim.algorithms.server.fedproto import FedProto
from ddlsim.algorithms.server.fedprox import FedProx
from ddlsim.algorithms.server.scaffold import Scaffold
from ddlsim.node.node import Node
from ddlsim.scenario import load

SMOKE = Path(__file__).parents[1] / "helpers" / "smoke.yaml"
SMALL = ("rounds=9", "training.local_steps=2", "model.hidden=[8]", "nodes.clusters=[4, 2]", "evaluation.every=9")
AWAY = (
    "{node: 2, start_s: 0.3, end_s: 0.7}",
    "{node: 3, start_s: 0, end_s: 0.5}",
    "{node: 3, start_s: 0.9, end_s: 1.1}",
)
COMES_FROM_THE_SERVER = {
    "fedavg": lambda model, terms: model,
    "fedprox": lambda model, terms: model,
    "scaffold": lambda model, terms: model,
    "fedclassavg": lambda model, terms: model[1:],
    "fedsim": lambda model, terms: model[1:],
    "fedproto": lambda model, terms: tuple(terms["objective"].targets.values()),
}


@pytest.mark.parametrize("state", ["kept", "lost"])
@pytest.mark.parametrize("algorithm", COMES_FROM_THE_SERVER)
def test_joining_node_starts_from_the_servers_model(algorithm, state, tmp_path, monkeypatch):
    began, train = {}, Node.train

    def noted(self, model, *args, **terms):
        began.setdefault(self.round_num, {})[self.id] = COMES_FROM_THE_SERVER[algorithm](model, terms)
        return train(self, model, *args, **terms)

    monkeypatch.setattr(Node, "train", noted)
    churn = f"churn={{name: schedule, state: {state}, offline: [{', '.join(AWAY)}]}}"
    runs.run(load(SMOKE, (*SMALL, f"algorithm={{name: {algorithm}}}", churn)), out=tmp_path / "run")
    sizes = [len(nodes) for _, nodes in sorted(began.items())]
    assert sizes[0] == 5 and min(sizes[1:]) < 6 and sizes[-1] == 6
    for round_num, nodes in began.items():
        of_all = [tuple(map(id, parts)) for parts in nodes.values()]
        assert round_num == 0 or (of_all[0] and len(set(of_all)) == 1), (round_num, nodes)


@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(), Scaffold(), FedClassAvg(), FedProto()])
def test_node_without_an_answer_keeps_its_model(algorithm):
    node = NumberNode()
    node.is_server = False
    state = algorithm.start(node)
    before = vars(state).copy()
    verbs = answer(algorithm.join(node, state, 3), [])
    assert verbs == [("pull", [0, 2], 3, None)] and vars(state) == before


@pytest.mark.parametrize("algorithm", [FedAvg(), FedClassAvg()])
def test_server_publishes_nothing_before_the_first_average(algorithm):
    node = NumberNode()
    node.is_server = False
    state = algorithm.start(node)
    before = vars(state).copy()
    answer(algorithm.join(node, state, 0), [message(9)])
    assert vars(state) == before


def test_returning_node_joins_the_current_round_in_async_runs(tmp_path):
    churn = f"churn={{name: schedule, offline: [{', '.join(AWAY)}]}}"
    network_only = (*SMALL, "algorithm={name: fedavg}", "learning=none", churn)
    for mode in ("sync", "async"):
        runs.run(load(SMOKE, (*network_only, f"mode={mode}")), out=tmp_path / mode)
    for name in ("metrics.jsonl", "communication.jsonl", "links.jsonl"):
        assert (tmp_path / "async" / name).read_bytes() == (tmp_path / "sync" / name).read_bytes()
