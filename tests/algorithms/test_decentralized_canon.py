"""D2, exact diffusion, EXTRA, quasi-global momentum and RelaySGD against the equations of their papers in NumPy."""

import networkx as nx
import numpy as np
import pytest
from number_network import QuadraticNode, play, quadratics
from quadratic_runs import quadratic_run

from ddlsim.aggregation.base import metropolis_hastings
from ddlsim.algorithms import ALGORITHMS
from ddlsim.topologies.base import spanning_tree

RATE = 0.05
PATH = ((1,), (0, 2), (1, 3), (2, 4), (3,))
CHORDAL = ((1, 4), (0, 2, 4), (1, 3), (2, 4), (0, 1, 3))  # a ring of five nodes with a chord
NODES = 6  # of quadratic_run


def setting(graph, local_steps=1):
    """Return nodes on a graph, their start [n, P], the gradients of all nodes, and the mixing matrix."""
    curvatures, centers = quadratics(len(graph))
    starts = np.random.default_rng(1).normal(size=centers.shape)
    parts = zip(curvatures, centers, starts, strict=True)
    nodes = [QuadraticNode(i, graph, *part, RATE, local_steps) for i, part in enumerate(parts)]
    w = np.zeros((len(graph), len(graph)))
    for node, neighbors in enumerate(graph):
        row = metropolis_hastings(node, graph, neighbors)
        w[node, list(row)] = list(row.values())
    return nodes, starts, lambda x: np.stack([node.gradient(each) for node, each in zip(nodes, x, strict=True)]), w


def models_of(states):
    return np.stack([state["model"] for state in states])


@pytest.mark.parametrize("name", ["d2", "exact_diffusion"])
def test_d2_and_exact_diffusion_equal_their_equations(name):
    nodes, x, g, w = setting(CHORDAL)
    w = w if name == "d2" else (np.eye(5) + w) / 2
    before = None
    for states in play(ALGORITHMS[name](), nodes, 25):
        half = x - RATE * g(x) if before is None else 2 * x - before - RATE * (g(x) - g(before))
        before, x = x, w @ half
        assert models_of(states) == pytest.approx(x, abs=1e-12)


def test_extra_equals_its_equations():
    nodes, x, g, w = setting(CHORDAL)
    before = None
    for states in play(ALGORITHMS["extra"](), nodes, 25):
        if before is None:
            after = w @ x - RATE * g(x)
        else:
            after = x + w @ x - (before + w @ before) / 2 - RATE * (g(x) - g(before))
        before, x = x, after
        assert models_of(states) == pytest.approx(x, abs=1e-12)


@pytest.mark.parametrize(("local_steps", "nesterov"), [(1, False), (3, False), (1, True), (2, True)])
def test_quasi_global_momentum_equals_its_equations(local_steps, nesterov):
    nodes, x, g, w = setting(CHORDAL, local_steps)
    momentum = np.zeros_like(x)
    for states in play(ALGORITHMS["qgm"](momentum=0.8, nesterov=nesterov), nodes, 25):
        half = x
        for _ in range(local_steps):
            gradient = g(half)
            step = 0.8 * momentum + gradient
            half = half - RATE * (gradient + 0.8 * step if nesterov else step)
        before, x = x, w @ half
        momentum = 0.8 * momentum + 0.2 * (before - x) / RATE / local_steps
        assert models_of(states) == pytest.approx(x, abs=1e-12)


def test_quasi_global_momentum_under_changing_learning_rates():
    nodes, x, g, w = setting(CHORDAL)
    momentum = np.zeros_like(x)

    def rate_of(round_num):
        return RATE / (1 + round_num)

    for node in nodes:
        node.learning_rate = RATE
    for round_num, states in enumerate(play(ALGORITHMS["qgm"](), nodes, 10, rate=lambda r, _: rate_of(r))):
        before, x = x, w @ (x - rate_of(round_num) * (0.9 * momentum + g(x)))
        momentum = 0.9 * momentum + 0.1 * (before - x) / rate_of(round_num)
        assert models_of(states) == pytest.approx(x, abs=1e-12)


@pytest.mark.parametrize("graph", [PATH, CHORDAL], ids=["path", "ring with a chord"])
def test_relaysgd_delays_models_by_one_round_per_edge(graph):
    nodes, x, g, _ = setting(graph)
    tree = nx.Graph((node, peer) for node, peers in enumerate(spanning_tree(graph)) for peer in peers)
    distance = dict(nx.all_pairs_shortest_path_length(tree))
    assert nx.is_tree(tree) and len(tree) == 5
    halves = []
    for round_num, states in enumerate(play(ALGORITHMS["relaysgd"](), nodes, 25)):
        halves.append(x - RATE * g(x))
        late = [{j: max(0, distance[i][j] - 1) for j in range(5)} for i in range(5)]
        seen = [[halves[round_num - by][j] for j, by in row.items() if by <= round_num] for row in late]
        x = np.stack([sum(models) + (5 - len(models)) * halves[-1][i] for i, models in enumerate(seen)]) / 5
        assert models_of(states) == pytest.approx(x, abs=1e-12)


def test_relaysgd_replaces_lost_relays_by_the_nodes_own_model():
    nodes, x, _, _ = setting(PATH)
    for node in nodes:
        node.rate = 0.0
    first, second = play(ALGORITHMS["relaysgd"](), nodes, 2, lambda round_num, src, dst: (src, dst) != (2, 1))
    assert models_of(first)[1] == pytest.approx((x[0] + 4 * x[1]) / 5)
    assert models_of(first)[2] == pytest.approx((x[1] + x[3] + 3 * x[2]) / 5)
    zero, one, two, three, _ = models_of(first)
    assert models_of(second)[1] == pytest.approx((zero + 4 * one) / 5)
    assert models_of(second)[2] == pytest.approx((one + x[0] + three + x[4] + two) / 5)


def test_relaysgd_without_training_reaches_consensus_on_a_mean_of_all_starts():
    starts = np.eye(NODES)
    models = quadratic_run(
        "algorithm={name: relaysgd}", "topology={name: tree}", "rounds=200", rate=0.0, starts=starts
    )[0]
    assert np.ptp(models, axis=0).max() < 1e-9  # consensus, on a mean of all starts
    assert models[0].sum() == pytest.approx(1) and models[0].min() > 0.01
