"""Gradient tracking against the equations of its papers in plain NumPy."""

import numpy as np
import pytest
from number_network import QuadraticNode, play, quadratics

from ddlsim import assembly, runs
from ddlsim.aggregation import base
from ddlsim.algorithms.decentralized.dpsgd import DPSGD
from ddlsim.algorithms.decentralized.gtsgd import GTSGD
from ddlsim.learning.training_inputs import TrainingContext
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import from_mapping, load

STAR = ((1, 2, 3), (0,), (0,), (0,))
RING = ((1, 3), (0, 2), (1, 3), (0, 2))
RATE = 0.05


def mixing_matrix(graph) -> np.ndarray:
    matrix = np.zeros((len(graph), len(graph)))
    for node, neighbors in enumerate(graph):
        for peer, weight in base.metropolis_hastings(node, graph, neighbors).items():
            matrix[node, peer] = weight
    return matrix


def nodes_on(graph, local_steps=1, rate=RATE):
    curvatures, centers = quadratics(len(graph))
    starts = np.random.default_rng(1).normal(size=centers.shape)
    parts = zip(curvatures, centers, starts, strict=True)
    return [QuadraticNode(i, graph, *part, rate, local_steps) for i, part in enumerate(parts)], starts


def gradients(nodes, models):
    return np.stack([node.gradient(model) for node, model in zip(nodes, models, strict=True)])


def best_of_all(num_nodes):
    curvatures, centers = quadratics(num_nodes)
    return np.linalg.solve(curvatures.sum(0), np.einsum("nij,nj->i", curvatures, centers))


def models_of(states):
    return np.stack([state["model"] for state in states])


@pytest.mark.parametrize("graph", [STAR, RING])
def test_one_local_step_is_the_textbook_update(graph):
    nodes, x = nodes_on(graph)
    w = mixing_matrix(graph)
    y = g = gradients(nodes, x)
    for states in play(GTSGD(), nodes, 25):
        x = w @ (x - RATE * y)
        y, g = w @ y + gradients(nodes, x) - g, gradients(nodes, x)
        assert models_of(states) == pytest.approx(x, abs=1e-12)
        tracked = RATE * gradients(nodes, x) + np.stack([state["correction"] for state in states])
        assert tracked == pytest.approx(RATE * y, abs=1e-12)


def test_several_local_steps_equal_k_gt():
    steps = 4
    nodes, x = nodes_on(STAR, steps)
    w, c = mixing_matrix(STAR), np.zeros_like(x)
    for states in play(GTSGD(), nodes, 25):
        start = x
        for _ in range(steps):
            x = x - RATE * (gradients(nodes, x) + c)
        z = (start - x) / (steps * RATE)
        x, c = w @ (start - steps * RATE * z), c - z + w @ z
        assert models_of(states) == pytest.approx(x, abs=1e-12)


def test_changing_rate_scales_the_tracked_gradient():
    steps, rates = 3, [0.0, 0.01, 0.05, 0.05, 0.005, 0.0, 0.0, 0.02, 0.02]
    nodes, x = nodes_on(STAR, steps)
    w, c = mixing_matrix(STAR), np.zeros_like(x)
    for rate, states in zip(rates, play(GTSGD(), nodes, len(rates), rate=lambda r, _: rates[r]), strict=True):
        start = x
        for _ in range(steps):
            x = x - rate * (gradients(nodes, x) + c)
        if rate:
            z = (start - x) / (steps * rate)
            c = c - z + w @ z
        x = w @ x
        assert models_of(states) == pytest.approx(x, abs=1e-12)


def test_nodes_at_different_rates_mix_gradients_and_keep_their_sum():
    """One node reaches a rate of 0 before the others, as with a schedule per step."""
    steps, rounds = 2, 12
    rates = RATE * np.array([[0.9**k, 0.7**k, 1.0, max(0.0, 1 - k / 8)] for k in range(rounds)])
    nodes, x = nodes_on(STAR, steps)
    w, c = mixing_matrix(STAR), np.zeros_like(x)
    for rate, states in zip(rates, play(GTSGD(), nodes, rounds, rate=lambda r, node: rates[r, node]), strict=True):
        start, each = x, rate[:, None]
        for _ in range(steps):
            x = x - each * (gradients(nodes, x) + c)
        z = np.divide(start - x, steps * each, out=np.zeros_like(x), where=each > 0)
        x, c = w @ x, c - z + w @ z
        assert models_of(states) == pytest.approx(x, abs=1e-12)
        assert sum(state["correction"] for state in states) == pytest.approx(np.zeros(3), abs=1e-12)


def test_rate_near_zero_gives_finite_models(tmp_path):
    """The inverse of such a rate is infinite in float32."""
    smoke = "tests/helpers/smoke.yaml"
    schedule = "training.schedule={name: exponential, gamma: 0.01}"
    sets = ("algorithm={name: gtsgd}", schedule, "rounds=24", "training.local_steps=2", "evaluation.every=24")
    summary = runs.run(load(smoke, sets), out=tmp_path / "run")
    assert summary["diverged"] is None and summary["accuracy"]["all"] > 0.1


def test_training_keeps_its_local_steps_when_a_branch_changes_them():
    nodes, x = nodes_on(STAR, 2)
    gtsgd, node = GTSGD(), nodes[1]
    life = gtsgd.round(node, gtsgd.start(node), 0)
    _, outcome = next(life)
    node.local_steps = 5
    assert life.send(outcome)[0] == "receive"
    ((_, _, payload),) = node.sent
    assert payload["step"] == pytest.approx((x[1] - payload["model"]) / 2, abs=1e-12)


def test_tracked_gradient_is_scaled_by_the_initial_rate():
    """In a branch, nodes one round ahead use the new rate while others send with the old one."""
    scenario = load("tests/helpers/smoke.yaml", ("algorithm={name: gtsgd}",))
    learner = assembly.build_learner(scenario, runs.prepare(runs.load_data(scenario)), "cpu")
    learner.use_training(scenario.training.model_copy(update={"learning_rate": 0.5}))
    assert learner.learning_rate == scenario.training.learning_rate == 0.05
    assert learner.learning_rates(0, 2, None, TrainingContext(0, 1, 2)) == [0.5, 0.5]
    learner.close()


@pytest.mark.parametrize("local_steps", [1, 5])
def test_gradient_tracking_reaches_the_minimum_that_dpsgd_misses(local_steps):
    found = {}
    for algorithm in (GTSGD(), DPSGD()):
        nodes, _ = nodes_on(STAR, local_steps, rate=0.02)
        found[type(algorithm)] = models_of(play(algorithm, nodes, 1500)[-1])
    assert found[GTSGD] == pytest.approx(np.tile(best_of_all(4), (4, 1)), abs=1e-9)
    assert np.abs(found[DPSGD] - best_of_all(4)).max() > 0.01


def test_link_failing_in_both_directions_preserves_the_tracked_sum():
    nodes, _ = nodes_on(RING)
    cut = {(1, 2), (2, 1)}
    states = play(GTSGD(), nodes, 400, lambda round_num, src, dst: round_num % 2 or (src, dst) not in cut)
    for each in states:
        assert sum(state["correction"] for state in each) == pytest.approx(np.zeros(3), abs=1e-12)
    assert models_of(states[-1]) == pytest.approx(np.tile(best_of_all(4), (4, 1)), abs=1e-6)


def test_a_run_with_the_learner_is_the_textbook_update():
    scenario = from_mapping(
        {
            "name": "tiny",
            "rounds": 12,
            "nodes": {"clusters": [2, 2]},
            "algorithm": {"name": "gtsgd"},
            "model": {"name": "linear"},
            "data": {"name": "synthetic_regression", "samples_per_node": 16, "test_samples": 20},
            "partition": {"name": "domains"},
            "topology": {"name": "star"},
            "training": {"learning_rate": 0.003, "local_steps": 1, "batch_size": 16},
            "evaluation": {"every": 12},
        }
    )
    prepared = runs.prepare(runs.load_data(scenario))
    learner = assembly.build_learner(scenario, prepared, "cpu")
    simulation = assembly.build_simulation(scenario, prepared, learner, Recorder())
    simulation.run()
    models = [member.state.model for member in simulation.members]
    learner.jobs.force_params(models)
    found = np.stack([model.values().numpy() for model in models])
    samples = [(np.hstack([x.reshape(16, -1), np.ones((16, 1))]), y) for x, y in prepared.node_train]

    def slopes(models):
        return np.stack([2 / 16 * x.T @ (x @ model - y) for (x, y), model in zip(samples, models, strict=True)])

    ((first,),) = simulation.members[0].node.init_models(whole=True, own=False)
    x, w = np.tile(first.values().numpy().astype(float), (4, 1)), mixing_matrix(STAR)
    y = g = slopes(x)
    for _ in range(12):
        x = w @ (x - 0.003 * y)
        y, g = w @ y + slopes(x) - g, slopes(x)
    learner.close()
    assert found.shape == (4, 11)
    assert found == pytest.approx(x, rel=1e-4, abs=1e-4)
    assert np.ptp(found, axis=0).max() > 0.01  # the nodes have not reached consensus yet
