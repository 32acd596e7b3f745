"""Stochastic gradient push against the equations of its paper in plain NumPy, and the effect of lost mass."""

import numpy as np
import pytest
from number_network import QuadraticNode, play, quadratics

from ddlsim import assembly, runs
from ddlsim.algorithms.decentralized.sgp import SGP
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import from_mapping

STAR = ((1, 2, 3, 4), (0,), (0,), (0,), (0,))
RING = ((1, 4), (0, 2), (1, 3), (2, 4), (3, 0))
ONE_WAY = ((1, 2), (2,), (3,), (4,), (0, 2))
ONE_PEER = {"name": "one_peer_exponential"}


def nodes_on(graph, rate=0.05, local_steps=1):
    curvatures, centers = quadratics(len(graph))
    starts = np.random.default_rng(1).normal(size=centers.shape)
    parts = zip(curvatures, centers, starts, strict=True)
    return [QuadraticNode(i, graph, *part, rate, local_steps) for i, part in enumerate(parts)], starts


def gradients(nodes, models):
    return np.stack([node.gradient(model) for node, model in zip(nodes, models, strict=True)])


def of(states, name):
    return np.array([state[name] for state in states])


def mass(states):
    return (of(states, "weight")[:, None] * of(states, "model")).sum(axis=0)


def column_stochastic(graph) -> np.ndarray:
    """Row j, column i: the share of i that j gets."""
    matrix = np.eye(len(graph))
    for node, neighbors in enumerate(graph):
        matrix[list(neighbors), node] = 1
    return matrix / matrix.sum(axis=0)


@pytest.mark.parametrize("graph", [STAR, RING])
def test_one_local_step_is_the_textbook_update(graph):
    nodes, x = nodes_on(graph)
    p, w, z = column_stochastic(graph), np.ones(5), x
    for states in play(SGP(), nodes, 25):
        x = p @ (x - 0.05 * gradients(nodes, z))
        w = p @ w
        z = x / w[:, None]
        assert of(states, "weight") == pytest.approx(w)
        assert of(states, "model") == pytest.approx(z, abs=1e-12)
    assert np.ptp(w) == pytest.approx(0 if graph == RING else 15 / 13, abs=0.1)  # 1 + degree, in the mean 13 / 5


def test_x_changes_by_the_change_of_z_in_several_local_steps():
    nodes, x = nodes_on(STAR, local_steps=3)
    p, w, z = column_stochastic(STAR), np.ones(5), x
    for states in play(SGP(), nodes, 10):
        trained = z
        for _ in range(3):
            trained = trained - 0.05 * gradients(nodes, trained)
        x, w = p @ (x + trained - z), p @ w
        z = x / w[:, None]
        assert of(states, "model") == pytest.approx(z, abs=1e-12)


def test_without_training_mass_is_preserved_and_models_reach_the_mean():
    nodes, starts = nodes_on(STAR, rate=0.0)
    rounds = play(SGP(), nodes, 80)
    for states in rounds:
        assert of(states, "weight").sum() == pytest.approx(5)
        assert mass(states) == pytest.approx(starts.sum(axis=0))
    assert of(rounds[-1], "model") == pytest.approx(np.tile(starts.mean(axis=0), (5, 1)), abs=1e-9)


def test_lost_messages_leave_weights_at_1_on_regular_graphs():
    nodes, starts = nodes_on(RING, rate=0.0)
    lots = np.random.default_rng(0)
    rounds = play(SGP(), nodes, 200, lambda *_: lots.random() > 0.3)
    for states in rounds:
        assert of(states, "weight") == pytest.approx(np.ones(5))
    models = of(rounds[-1], "model")
    assert np.ptp(models, axis=0).max() < 1e-9
    assert (starts.min(axis=0) < models[0]).all() and (models[0] < starts.max(axis=0)).all()


def test_lost_messages_leave_weights_near_equilibrium_on_other_graphs():
    nodes, _ = nodes_on(STAR, rate=0.0)
    lots = np.random.default_rng(0)
    rounds = play(SGP(), nodes, 2000, lambda *_: lots.random() > 0.3)
    totals = [of(states, "weight").sum() for states in rounds]
    assert min(totals) > 2 and max(totals) < 10


def test_a_node_without_neighbors_keeps_everything():
    nodes, starts = nodes_on(((1,), (0,), ()), rate=0.0)
    assert play(SGP(), nodes, 3)[-1][2] == {"model": pytest.approx(starts[2]), "weight": 1.0}


def scenario(**sections):
    return from_mapping(
        {
            "name": "tiny",
            "rounds": 12,
            "nodes": {"clusters": [2, 3]},
            "algorithm": {"name": "sgp"},
            "model": {"name": "linear"},
            "data": {"name": "synthetic_regression", "samples_per_node": 16, "test_samples": 20},
            "partition": {"name": "domains"},
            "topology": {"name": "star"},
            "training": {"learning_rate": 0.003, "local_steps": 1, "batch_size": 16},
            "evaluation": {"every": 12},
            **sections,
        }
    )


def ended(made):
    """Return the nodes' data, their common start, their final models and their final weights."""
    prepared = runs.prepare(runs.load_data(made))
    learner = assembly.build_learner(made, prepared, "cpu")
    simulation = assembly.build_simulation(made, prepared, learner, Recorder())
    ((start,),) = simulation.members[0].node.init_models(whole=True, own=False)
    simulation.run()
    models = [member.state.model for member in simulation.members]
    learner.jobs.force_params(models)
    found = np.stack([model.values().numpy().copy() for model in models])
    first = start.values().numpy().astype(float)
    learner.close()
    return prepared.node_train, first, found, [member.state.weight for member in simulation.members]


def hops(num_nodes, round_num):
    return [((node + (1, 2, 4)[round_num % 3]) % num_nodes,) for node in range(num_nodes)]


EDGES = {"name": "edges", "directed": True, "graphs": [[[i, j] for i, peers in enumerate(ONE_WAY) for j in peers]]}


@pytest.mark.parametrize(
    ("topology", "graph"),
    [({"name": "star"}, lambda _: STAR), (EDGES, lambda _: ONE_WAY), (ONE_PEER, lambda number: hops(5, number))],
    ids=["undirected", "directed", "one peer"],
)
def test_a_run_with_the_learner_is_the_textbook_update(topology, graph):
    data, start, found, weights = ended(scenario(topology=topology))
    samples = [(np.hstack([x.reshape(16, -1), np.ones((16, 1))]), y) for x, y in data]
    w, x = np.ones(5), np.tile(start, (5, 1))
    z = x
    for round_num in range(12):
        p = column_stochastic(graph(round_num))
        x = p @ (x - 0.003 * np.stack([2 / 16 * a.T @ (a @ m - y) for (a, y), m in zip(samples, z, strict=True)]))
        w = p @ w
        z = x / w[:, None]
    assert weights == pytest.approx(w)
    assert found == pytest.approx(z, rel=1e-4, abs=1e-4)
    assert np.ptp(found, axis=0).max() > 0.01  # the nodes have not reached consensus yet


@pytest.mark.parametrize("topology", [{"name": "random_regular", "degree": 2, "dynamic": True}, ONE_PEER])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_weights_stay_bounded_under_churn_losses_and_unequal_devices(mode, topology):
    made = scenario(
        rounds=300,
        mode=mode,
        learning="none",
        topology=topology,
        network={"drop_probability": 0.2, "on_drop": "drop"},
        devices={"name": "lognormal", "median_step_time_s": 0.05},
        churn={"name": "schedule", "offline": [{"node": 1, "start_s": 2, "end_s": 9}]},
    )
    prepared = runs.prepare(runs.load_data(made))
    simulation = assembly.build_simulation(made, prepared, assembly.build_learner(made, prepared, "cpu"), Recorder())
    simulation.run()
    weights = [member.state.weight for member in simulation.members]
    assert min(weights) > 0.2 and max(weights) < 5
