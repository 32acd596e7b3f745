"""Server methods against their papers' equations, as plain loops over quadratic losses, with and without sampling.

Node i has the loss a_i |x - b_i|^2 / 2; the engine and the network are real.
"""

import heapq

import numpy as np
import pytest
from number_node import NumberNode, answer, message
from quadratic_runs import quadratic_simulation

from ddlsim.algorithms.server.fedrep import FedPer, FedRep
from ddlsim.algorithms.server.ifca import IFCA

NODES, ROUNDS, RATE = 6, 8, 0.1
rng = np.random.default_rng(3)
CENTERS, CURVATURES = rng.normal(size=(NODES, 2)), rng.uniform(0.5, 2, NODES)
DRAWN = "clients_per_round: 0.5"


def simulate(algorithm, *keys, **settings):
    """Return the server's state, the nodes' states, and the nodes that trained, by round."""
    keys = (f"algorithm={{name: {algorithm}}}", f"rounds={ROUNDS}", "training.local_steps=3", *keys)
    fixed = {"rate": RATE, "starts": np.zeros((NODES, 2)), "curvatures": CURVATURES, "centers": CENTERS}
    simulation, compute = quadratic_simulation(*keys, **fixed | settings)
    *nodes, server = (member.state for member in simulation.members)
    return server, nodes, compute.trained


def local(node, start, steps=3, control=0.0, proximal=0.0, towards=None):
    """Local steps on the node's loss plus proximal / 2 |x - towards|^2 + control' x."""
    x, towards = start, start if towards is None else towards
    for _ in range(steps):
        x = x - RATE * (CURVATURES[node] * (x - CENTERS[node]) + proximal * (x - towards) + control)
    return x


def drawn_rounds(trained, size=NODES // 2):
    rounds = [trained[at : at + size] for at in range(0, len(trained), size)]
    assert len(rounds) == ROUNDS and all(len({*clients}) == size for clients in rounds)
    assert len({tuple(clients) for clients in rounds}) > 1
    return rounds


def value_of(model):
    return (model[0] if isinstance(model, tuple) else model).value


def fedavgm(change, v, new):
    change = 0.9 * change + new
    return change, v, 0.5 * change


def adaptive(beta1, second):
    def step(change, v, new):
        change = beta1 * change + (1 - beta1) * new
        v = second(v, change**2)
        return change, v, 0.5 * change / (np.sqrt(v) + 0.01)

    return step


OPTIMIZERS = {
    "fedavgm, server_momentum: 0.9": fedavgm,
    "fedadagrad, tau: 0.01": adaptive(0.0, lambda v, square: v + square),
    "fedadam, beta2: 0.8, tau: 0.01": adaptive(0.9, lambda v, square: 0.8 * v + 0.2 * square),
    "fedyogi, beta2: 0.8, tau: 0.01": adaptive(0.9, lambda v, square: v - 0.2 * square * np.sign(v - square)),
}


@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_server_optimizers_equal_algorithm_2(algorithm):
    server, _, trained = simulate(f"{algorithm}, server_rate: 0.5, {DRAWN}")
    x, change, v = np.zeros(2), np.zeros(2), np.full(2, 0.01**2)
    for clients in drawn_rounds(trained):
        new = np.mean([local(node, x) - x for node in clients], axis=0)
        change, v, step = OPTIMIZERS[algorithm](change, v, new)
        x = x + step
    assert value_of(server.model) == pytest.approx(x, abs=1e-12)


def test_fedavg_and_fedprox_average_the_drawn_nodes():
    for algorithm, mu in (("fedavg", 0.0), ("fedprox, mu: 0.7", 0.7)):
        server, _, trained = simulate(f"{algorithm}, {DRAWN}")
        x = np.zeros(2)
        for clients in drawn_rounds(trained):
            x = np.mean([local(node, x, proximal=mu) for node in clients], axis=0)
        assert value_of(server.model) == pytest.approx(x, abs=1e-12)


def test_scaffold_scales_the_server_variate_by_the_share_of_drawn_nodes():
    server, _, trained = simulate(f"scaffold, {DRAWN}")
    x, c, own = np.zeros(2), np.zeros(2), np.zeros((NODES, 2))
    for clients in drawn_rounds(trained):
        ends = {node: local(node, x, control=c - own[node]) for node in clients}
        new = {node: own[node] - c + (x - y) / (3 * RATE) for node, y in ends.items()}
        c = c + len(clients) / NODES * np.mean([new[node] - own[node] for node in clients], axis=0)
        x = np.mean(list(ends.values()), axis=0)
        for node in clients:
            own[node] = new[node]
    assert value_of(server.model) == pytest.approx(x, abs=1e-12)
    assert server.common.value == pytest.approx(c, abs=1e-12)


def test_feddyn_equals_algorithm_1():
    server, _, trained = simulate(f"feddyn, alpha: 0.3, {DRAWN}")
    x, h, own = np.zeros(2), np.zeros(2), np.zeros((NODES, 2))
    for clients in drawn_rounds(trained):
        ends = {node: local(node, x, control=-own[node], proximal=0.3) for node in clients}
        for node, y in ends.items():
            own[node] = own[node] - 0.3 * (y - x)
        h = h - 0.3 / NODES * sum(y - x for y in ends.values())
        x = np.mean(list(ends.values()), axis=0) - h / 0.3
    assert value_of(server.model) == pytest.approx(x, abs=1e-12)


def test_fednova_divides_changes_by_local_steps():
    def unequal(compute):
        compute.steps_per_epoch = lambda node: node + 1

    server, nodes, _ = simulate("fednova", "training.epochs=1", "training.local_steps=null", adapt=unequal)
    x, steps = np.zeros(2), np.arange(NODES) + 1
    for _ in range(ROUNDS):
        normalized = [(local(node, x, steps[node]) - x) / steps[node] for node in range(NODES)]
        x = x + steps.mean() * np.mean(normalized, axis=0)
    assert value_of(server.model) == pytest.approx(x, abs=1e-12)
    assert value_of(nodes[0].model) == pytest.approx(x, abs=1e-12)


def test_ditto_keeps_personal_models_near_the_common_one():
    server, nodes, _ = simulate("ditto, pull: 0.6")
    x, personal = np.zeros(2), np.zeros((NODES, 2))
    for _ in range(ROUNDS):
        personal = [local(node, personal[node], proximal=0.6, towards=x) for node in range(NODES)]
        x = np.mean([local(node, x) for node in range(NODES)], axis=0)
    assert value_of(server.model) == pytest.approx(x, abs=1e-12)
    assert [value_of(node.personal) for node in nodes] == [pytest.approx(each, abs=1e-12) for each in personal]


def test_hierfavg_averages_clusters_in_every_round_and_all_nodes_in_every_second():
    _, nodes, _ = simulate("hierfavg, edge_rounds: 2", "rounds=5", "nodes.clusters=[4, 2]")
    models, edges = np.zeros((NODES, 2)), ([0, 1, 2, 3], [4, 5])
    for round_num in range(5):
        models = np.array([local(node, models[node]) for node in range(NODES)])
        for edge in edges:
            models[edge] = models[edge].mean(axis=0)
        if round_num % 2:
            models[:] = models.mean(axis=0)
    assert [value_of(node.model) for node in nodes] == [pytest.approx(each, abs=1e-12) for each in models]


def arrivals(seconds, rounds=ROUNDS):
    """Return nodes in the order of their finished tasks, if all start at once and messages take no time."""
    queue = [(second, node, 1) for node, second in enumerate(seconds)]
    heapq.heapify(queue)
    while queue:
        now, node, done = heapq.heappop(queue)
        yield node
        if done < rounds:
            heapq.heappush(queue, (now + seconds[node], node, done + 1))


STEP_TIMES = (0.11, 0.13, 0.17, 0.19, 0.23, 0.29)
IDEAL = ("network.fidelity=ideal", f"devices={{name: per_node, step_times_s: {list(STEP_TIMES)}}}")


@pytest.mark.parametrize(
    ("staleness", "factor"),
    [
        ("constant", lambda delay: 1),
        ("polynomial, a: 0.5", lambda delay: (delay + 1) ** -0.5),
        ("hinge, a: 10, b: 4", lambda delay: 1 if delay <= 4 else 1 / (10 * (delay - 4) + 1)),
    ],
)
def test_fedasync_weighs_models_by_staleness(staleness, factor):
    server, _, _ = simulate(f"fedasync, mixing: 0.5, rho: 0.2, staleness: {staleness}", *IDEAL)
    x, taken = np.zeros(2), dict.fromkeys(range(NODES), (0, np.zeros(2)))
    for t, node in enumerate(arrivals(STEP_TIMES), 1):
        tau, start = taken[node]
        weight = 0.5 * factor(t - tau)
        x = (1 - weight) * x + weight * local(node, start, proximal=0.2)
        taken[node] = t, x
    assert server.version == NODES * ROUNDS
    assert value_of(server.model) == pytest.approx(x, abs=1e-12)


def test_fedbuff_steps_along_the_mean_of_buffered_changes():
    server, _, _ = simulate("fedbuff, buffer_size: 5, server_rate: 0.7", *IDEAL)
    x, t, buffer = np.zeros(2), 0, []
    taken = dict.fromkeys(range(NODES), (0, x))
    for node in arrivals(STEP_TIMES):
        tau, start = taken[node]
        buffer.append((local(node, start) - start) / np.sqrt(1 + t - tau))
        if len(buffer) == 5:
            x, t, buffer = x + 0.7 * np.mean(buffer, axis=0), t + 1, []
        taken[node] = t, x
    assert (server.version, len(server.buffer)) == (t, len(buffer)) == (9, 3)
    assert value_of(server.model) == pytest.approx(x, abs=1e-12)


def test_concurrency_limits_simultaneous_trainings():
    starts = []

    def noting(compute):
        train = compute.train_towards

        def noted(node, *arguments, **terms):
            starts.append(node)
            return train(node, *arguments, **terms)

        compute.train_towards = noted

    server, _, _ = simulate("fedbuff, concurrency: 1, retry_s: 0.2, buffer_size: 1", *IDEAL, adapt=noting)
    assert server.version == NODES * ROUNDS == len(starts)
    x = np.zeros(2)
    for node in starts:  # one after the other, so that no change is stale
        x = local(node, x)
    assert value_of(server.model) == pytest.approx(x, abs=1e-12)


def test_fedper_and_fedrep_send_only_the_core():
    node = NumberNode(models=((10.0, 1.0),))
    node.is_server = False
    for algorithm, trainings in ((FedPer(), [(None, None)]), (FedRep(head_steps=4), [(4, "head"), (None, "core")])):
        state = algorithm.start(node)
        trained = [(11.0 + at, 2.0 + at) for at in range(len(trainings))]
        verbs = answer(algorithm.local_update(node, state), *trained)
        assert [verb[2:4] for verb in verbs] == trainings and state.model == trained[-1]
        server = algorithm.start(_server())
        inbox = [message(0, core=4.0, samples=30), message(2, core=8.0, samples=10)]
        algorithm.server_update(node, server, inbox)
        algorithm.apply_result(state, algorithm.server_result(server))
        assert state.model == (5.0, trained[-1][1])


def test_ifca_averages_each_model_over_the_nodes_that_chose_it():
    node = NumberNode(models=((10.0,), (20.0,), (30.0,)))
    algorithm = IFCA(models=3)
    state = algorithm.start(node)
    verbs = answer(algorithm.local_update(node, state), [0.5, 0.2, 0.4], (21.0,))
    assert verbs[0][1] == [(10.0,), (20.0,), (30.0,)] and verbs[1][1] == (20.0,)
    assert (state.chosen, state.models) == (1, {0: 10.0, 1: 21.0, 2: 30.0})
    server = algorithm.start(node)
    inbox = [
        message(0, model=1.0, number=2, samples=10),
        message(2, model=5.0, number=2, samples=30),
        message(3, model=7.0, number=0, samples=20),
    ]
    algorithm.server_update(node, server, inbox)
    assert algorithm.server_result(server) == {"models": {0: 7.0, 1: 20.0, 2: 4.0}}


def _server():
    node = NumberNode()
    node.is_server = True
    return node
