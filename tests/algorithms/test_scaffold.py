"""SCAFFOLD and FedProx against the equations of their papers in plain NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
from number_network import QuadraticNode, play, quadratics
from number_node import NumberNode, answer, message

from ddlsim.algorithms.decentralized.gtsgd import GTSGD
from ddlsim.algorithms.server.fedprox import FedProx
from ddlsim.algorithms.server.scaffold import Scaffold

RATE, STEPS, NODES = 0.05, 4, 4
SERVER = NODES


def nodes_and_start():
    curvatures, centers = quadratics(NODES)
    start = np.random.default_rng(1).normal(size=centers.shape[1])
    star = ((SERVER,),) * NODES
    nodes = [QuadraticNode(i, star, curvatures[i], centers[i], start, RATE, STEPS) for i in range(NODES)]
    for node in nodes:
        node.is_server, node.num_samples = False, 10
    server = NumberNode(SERVER, NODES, tuple(range(NODES)), ((start,),))
    server.is_server = True
    return nodes, server, start


def play_with_server(algorithm, rounds, heard=lambda round_num, node: True, rate=lambda round_num: RATE):
    """Play rounds of training and exchange with a server; return the states after each round."""
    nodes, server, _ = nodes_and_start()
    states = [algorithm.start(node) for node in nodes]
    own = algorithm.start(server)
    seen = []
    for round_num in range(rounds):
        lives, inbox = [], []
        for node, state in zip(nodes, states, strict=True):
            node.rate = rate(round_num)
            life = algorithm.round(node, state, round_num)
            assert life.send(next(life)[1])[0] == "wait"
            ((_, _, payload),) = node.sent
            node.sent.clear()
            lives.append(life)
            if heard(round_num, node.id):
                inbox.append(message(node.id, **payload))
        life = algorithm.round(server, own, round_num)
        next(life)
        with pytest.raises(StopIteration):
            life.send(inbox)
        ((receivers, _, answer),) = server.sent
        server.sent.clear()
        for node, life in zip(nodes, lives, strict=True):
            with pytest.raises(StopIteration):
                life.send([message(SERVER, **answer)] if node.id in receivers else [])
        seen.append(SimpleNamespace(nodes=[vars(state).copy() for state in states], server=vars(own).copy()))
    return seen


@pytest.mark.parametrize("sends", ["variates", "changes"])
@pytest.mark.parametrize("global_rate", [1.0, 0.5])
def test_scaffold_equals_algorithm_1_with_option_2(global_rate, sends):
    nodes, _, x = nodes_and_start()
    c, own = np.zeros_like(x), np.zeros((NODES, len(x)))
    for found in play_with_server(Scaffold(global_rate=global_rate, sends=sends), 8):
        models, then = [], []
        for node in nodes:
            y = x
            for _ in range(STEPS):
                y = y - RATE * (node.gradient(y) - own[node.id] + c)
            models.append(y)
            then.append(own[node.id] - c + (x - y) / (STEPS * RATE))
        x = x + global_rate * np.mean([y - x for y in models], axis=0)
        c, own = c + np.mean(np.array(then) - own, axis=0), np.array(then)
        assert found.server["model"] == pytest.approx(x, abs=1e-12)
        assert found.server["common"] == pytest.approx(c, abs=1e-12)
        for node in range(NODES):
            assert found.nodes[node]["model"] == pytest.approx(x, abs=1e-12)
            assert found.nodes[node]["control"] == pytest.approx(own[node], abs=1e-12)


def test_global_rate_does_not_scale_buffers():
    server = NumberNode(SERVER, NODES, tuple(range(NODES)), ((np.array([0.0, 1.0]),),))  # a weight and a variance
    server.is_server = True
    server.trained_values = lambda params: params[:1]
    server.with_trained_values = lambda params, values: np.append(values, params[1])
    scaffold = Scaffold(global_rate=2.0)
    state = scaffold.start(server)
    models = [np.array([2.0, 0.1]), np.array([4.0, 0.5])]
    inbox = [message(node, model=model, control=np.zeros(1)) for node, model in enumerate(models)]
    answer(scaffold.round(server, state, 0), inbox)
    assert state.model == pytest.approx([6.0, 0.3])


@pytest.mark.parametrize("global_rate", [1.0, 0.5])
def test_lost_answer_does_not_count_a_model_twice(global_rate):
    server = NumberNode(SERVER, 1, (0,), ((0.0,),))
    server.is_server = True
    scaffold = Scaffold(global_rate=global_rate)
    state = scaffold.start(server)
    for round_num in range(40):  # the node received nothing and has not trained since
        answer(scaffold.round(server, state, round_num), [message(0, model=1.0, control=0.0)])
        assert state.model <= 1.0
    assert state.model == pytest.approx(1.0)


def test_scaffold_converges_to_zero_mean_gradient_and_fedavg_does_not():
    curvatures, centers = quadratics(NODES)
    best = np.linalg.solve(curvatures.sum(0), np.einsum("nij,nj->i", curvatures, centers))
    assert play_with_server(Scaffold(), 300)[-1].server["model"] == pytest.approx(best, abs=1e-9)
    fedavg = play_with_server(FedProx(mu=0.0), 300)[-1].nodes[0]["model"][0]
    assert np.abs(fedavg - best).max() > 1e-3


def test_server_variate_is_the_mean_of_the_last_received_variates():
    def heard(round_num, node):
        return (round_num + node) % 3 != 0

    known = np.zeros((NODES, 3))
    for number, found in enumerate(play_with_server(Scaffold(), 7, heard)):
        changes = [n for n in range(NODES) if heard(number, n)]
        assert all(found.nodes[n]["model"] is found.server["model"] for n in changes)
        known[changes] = [found.nodes[n]["control"] for n in changes]
        assert found.server["common"] == pytest.approx(known.mean(axis=0), abs=1e-12)


def test_node_without_an_answer_uses_its_control_variate():
    nodes, _, y = nodes_and_start()
    own = np.zeros_like(y)
    for found in play_with_server(Scaffold(), 4, lambda round_num, node: node):
        x = y
        for _ in range(STEPS):
            y = y - RATE * (nodes[0].gradient(y) - own)  # its c is still 0
        own = own + (x - y) / (STEPS * RATE)
        assert found.nodes[0]["model"] == pytest.approx(y, abs=1e-12)
        assert found.nodes[0]["control"] == pytest.approx(own, abs=1e-12)


def test_lost_messages_do_not_move_the_fixed_point_of_scaffold():
    curvatures, centers = quadratics(NODES)
    best = np.linalg.solve(curvatures.sum(0), np.einsum("nij,nj->i", curvatures, centers))
    found = play_with_server(Scaffold(), 400, lambda round_num, node: round_num >= 40 or (round_num + node) % 3)
    assert found[-1].server["model"] == pytest.approx(best, abs=1e-9)


def test_lost_changes_shift_the_fixed_point_permanently():
    found = play_with_server(Scaffold(sends="changes"), 400, lambda round_num, node: round_num or node)
    curvatures, centers = quadratics(NODES)
    best = np.linalg.solve(curvatures.sum(0), np.einsum("nij,nj->i", curvatures, centers))
    assert np.abs(found[-1].server["model"] - best).max() > 1e-3


@pytest.mark.parametrize("sends", ["variates", "changes"])
def test_control_variates_stay_at_a_rate_of_zero(sends):
    found = play_with_server(Scaffold(sends=sends), 6, rate=lambda round_num: RATE if round_num < 3 else 0.0)
    for later in found[3:]:
        assert later.server["common"] == pytest.approx(found[2].server["common"], abs=1e-12)
        for node, before in zip(later.nodes, found[2].nodes, strict=True):
            assert node["control"] == pytest.approx(before["control"], abs=1e-12)


def test_gradient_tracking_on_the_complete_graph_equals_scaffold():
    curvatures, centers = quadratics(NODES)
    _, _, start = nodes_and_start()
    graph = tuple(tuple(j for j in range(NODES) if j != i) for i in range(NODES))
    nodes = [QuadraticNode(i, graph, curvatures[i], centers[i], start, RATE, STEPS) for i in range(NODES)]
    with_gossip = play(GTSGD(), nodes, 8)
    with_server = play_with_server(Scaffold(), 8)
    for gossip, server in zip(with_gossip, with_server, strict=True):
        for state in gossip:
            assert state["model"] == pytest.approx(server.server["model"], abs=1e-12)


def test_fedprox_pulls_to_the_servers_model():
    nodes, _, x = nodes_and_start()
    for found in play_with_server(FedProx(mu=3.0), 5):
        models = []
        for node in nodes:
            y = x
            for _ in range(STEPS):
                y = y - RATE * (node.gradient(y) + 3.0 * (y - x))
            models.append(y)
        x = np.mean(models, axis=0)
        assert found.nodes[2]["model"][0] == pytest.approx(x, abs=1e-12)
