"""Consensus weights, preserved means and optima of every averaging algorithm, in whole runs on quadratic losses."""

import numpy as np
import pytest
from quadratic_runs import quadratic_run

from ddlsim.algorithms import ALGORITHMS

NODES = 6
PRESERVES_MEAN = {  # name: settings; rows of their mixing matrices, or halves of their exchanges, sum to 1 per sender
    "dpsgd": [()],
    "el": [(), ("topology={name: random_regular, degree: 3, dynamic: true}",)],
    "dfedavgm": [()],
    "gtsgd": [()],
    "sgp": [(), ("topology={name: one_peer_exponential}",)],
    **{name: [("topology={name: complete}",)] for name in ("d2", "exact_diffusion", "extra")},  # slower on a ring
    "adpsgd": [()],
    "fedavg": [()],
    "fedprox": [()],
    "scaffold": [()],
    "hierfavg": [()],
    "ditto": [()],
    "data_parallel": [],
    "local_sgd": [()],
    "sparta": [],
}
NO_SUCH_PROMISE = {
    "gossip": "merges with what has arrived: each initial model weighs 1/n only in expectation",
    **dict.fromkeys(("random", "oracle", "dac", "pens", "panm"), "pulls models of some peers, which do not pull back"),
    **dict.fromkeys(("facade", "deprl", "mapl", "fedsim", "fedclassavg"), "averages parts of models"),
    "fedproto": "averages prototypes",
    "qgm": "moves models by momentum",
    "relaysgd": "models of distant nodes are missing in the first rounds",
    **dict.fromkeys(("fedavgm", "fedadagrad", "fedadam", "fedyogi", "feddyn"), "moves the server's model by its state"),
    **dict.fromkeys(("fedasync", "fedbuff", "async_diloco", "halos"), "merges each model when it arrives"),
    **dict.fromkeys(("fedper", "fedrep", "ifca"), "averages parts of models, or models of some nodes"),
    "local": "does not average",
    "sparseloco": "moves models by errors of earlier rounds",
    "demo": "moves models by signs",
    "fednova": "divides changes by learning rates",
    **dict.fromkeys(("diloco", "streaming_diloco", "noloco"), "moves models by momentum"),
}
CASES = [(name, *keys) for name, settings in PRESERVES_MEAN.items() for keys in settings]


def run(name, *keys, **settings):
    return quadratic_run("topology={name: ring}", f"algorithm={{name: {name}}}", *keys, **settings)[0]


def test_cases_cover_all_averaging_algorithms():
    assert PRESERVES_MEAN.keys() | NO_SUCH_PROMISE.keys() == set(ALGORITHMS)


@pytest.mark.parametrize("case", CASES)
def test_without_training_each_initial_model_has_weight_1_over_n(case):
    models = run(*case, "rounds=100", rate=0.0, starts=np.eye(NODES))
    assert models == pytest.approx(np.full((NODES, NODES), 1 / NODES), abs=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_mean_of_all_models_changes_by_the_mean_gradient_only(case):
    centers = np.random.default_rng(0).normal(size=(NODES, 2))
    models = run(*case, "rounds=20", rate=0.1, starts=np.zeros((NODES, 2)), centers=centers)
    # x := x - 0.1 (x - b) from 0, for the means over nodes
    assert models.mean(0) == pytest.approx((1 - 0.9**20) * centers.mean(0), abs=1e-12)


@pytest.mark.parametrize(
    "case",
    [
        ("gtsgd",),
        ("gtsgd", "training.local_steps=3"),
        ("scaffold",),
        ("scaffold", "training.local_steps=3"),
        ("fedavg",),
        ("fedprox",),
        ("d2", "topology={name: torus}"),  # a ring of six nodes has the eigenvalue -1/3
        ("exact_diffusion",),
        ("extra",),
        ("relaysgd", "topology={name: tree}"),
    ],
)
def test_nodes_with_different_losses_reach_the_minimum_of_the_sum(case):
    rng = np.random.default_rng(1)
    curvatures, centers = rng.uniform(1, 3, NODES), rng.normal(size=(NODES, 2))
    optimum = curvatures @ centers / curvatures.sum()
    models = run(*case, "rounds=200", rate=0.1, starts=np.zeros((NODES, 2)), curvatures=curvatures, centers=centers)
    assert models == pytest.approx(np.tile(optimum, (NODES, 1)), abs=1e-6)


@pytest.mark.parametrize("name", ["dpsgd", "dfedavgm"])
def test_gossip_averaging_reaches_its_fixed_point(name):
    rng = np.random.default_rng(2)
    curvatures, centers = rng.uniform(1, 3, NODES), rng.normal(size=(NODES, 2))
    mixing = (np.eye(NODES) + np.roll(np.eye(NODES), 1, 0) + np.roll(np.eye(NODES), -1, 0)) / 3
    step = 0.1 * np.diag(curvatures)
    fixed_point = np.linalg.solve(np.eye(NODES) - mixing @ (np.eye(NODES) - step), mixing @ step @ centers)
    keys = ("algorithm.final_all_reduce=false",) if name == "dpsgd" else ()
    models = run(name, *keys, "rounds=200", rate=0.1, starts=centers, curvatures=curvatures, centers=centers)
    assert models == pytest.approx(fixed_point, abs=1e-9)


@pytest.mark.parametrize("name", ["gossip", "el", "dpsgd", "dfedavgm", "adpsgd"])
@pytest.mark.parametrize(
    ("step_times_s", "least"),
    [((0.05, 0.0505, 0.051, 0.0515, 0.052, 0.0525), 0.1), ((0.03, 0.04, 0.05, 0.06, 0.07, 0.08), 0.05)],
)
def test_fastest_node_learns_from_all_others_in_async_mode(name, step_times_s, least):
    devices = f"devices={{name: per_node, step_times_s: {list(step_times_s)}}}"
    keys = ("mode=async", "rounds=150", "topology={name: complete}", devices)
    # With losses |x - e_i|^2 / 2 and a start at 0, entry i of a model is the influence of node i.
    fastest = run(name, *keys, rate=0.04, starts=np.zeros((NODES, NODES)), centers=np.eye(NODES))[0]
    assert fastest.min() > least


@pytest.mark.parametrize("losses", [(), ("network.drop_probability=0.2",)])
def test_adpsgd_preserves_the_mean_at_any_speeds_and_delays(losses):
    devices = "devices={name: per_node, step_times_s: [0.01, 0.02, 0.05, 0.06, 0.07, 0.3]}"
    keys = ("rounds=60", "topology={name: complete}", devices, *losses)
    models = run("adpsgd", *keys, rate=0.0, starts=np.eye(NODES))
    assert models.sum(0) == pytest.approx(np.ones(NODES), abs=1e-12)
