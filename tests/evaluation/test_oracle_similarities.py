"""True similarities of selected nodes to all others, computed by hand from the final models."""

from types import SimpleNamespace

import numpy as np
import pytest

from ddlsim import assembly, runs
from ddlsim.algorithms.similarity import ComparedModel, Similarity
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import from_mapping

BASE = {
    "name": "tiny",
    "rounds": 4,
    "nodes": {"clusters": [3, 3]},
    "model": {"name": "linear"},
    "data": {"name": "synthetic_regression", "samples_per_node": 48, "test_samples": 20},
    "partition": {"name": "domains"},
    "validation": {"source": "own"},
    "topology": {"name": "complete"},
    "network": {"fidelity": "ideal"},
    "training": {"learning_rate": 0.003, "epochs": 1, "batch_size": 8},
    "evaluation": {"every": 2},
    "records": {"true_similarities": [4, 0]},
}
DAC = {"name": "dac", "variant": "hagander_2024", "sampled_peers": 2}


class Vectors:
    """A learner whose models are vectors, so that values can be written down."""

    def batches_in(self, split, node):
        return 7

    def losses(self, node, models, batches, rng, common, local_state=None):
        assert (node, batches, common) == (3, 7, True)
        return [1.0 * value[0] for (value,) in models]

    def compare(self, metric, own, peers, start=None, alpha=None):
        minus = 0 if start is None else start[0]
        vectors = [np.asarray(model[0]) - minus for model in (own, *peers)]
        if metric == "inverse_l2":
            return [1 / (np.linalg.norm(vectors[0] - peer) + 1e-6) for peer in vectors[1:]]
        return [vectors[0] @ v / np.linalg.norm(vectors[0]) / np.linalg.norm(v) for v in vectors[1:]]

    def value(self, job):
        return job


@pytest.mark.parametrize(
    ("similarity", "expected"),
    [
        (Similarity("cosine_weights"), [0.6, 0.0]),
        (Similarity("cosine_gradients"), [0.0, -1 / 2**0.5]),  # from (0, 1): (1, -1) with (3, 3) and with (0, 2)
        (Similarity("inverse_l2"), [1 / (20**0.5 + 1e-6), 1 / (10**0.5 + 1e-6)]),
        (Similarity("inverse_loss", offset=0.0), [1 / 3, 1e12]),
    ],
)
def test_similarity_values_by_hand(similarity, expected):
    own, peers, start = np.array([1.0, 0.0]), [np.array([3.0, 4.0]), np.array([0.0, 3.0])], np.array([0.0, 1.0])
    models = {node: ComparedModel(peer) for node, peer in enumerate(peers)}
    found = similarity.look(3, ComparedModel(own, start=start), models, Vectors(), None)()
    assert list(found.values()) == pytest.approx(expected)


def finished(algorithm, **sections):
    scenario = from_mapping({**BASE, "algorithm": algorithm, **sections})
    prepared = runs.prepare(runs.load_data(scenario))
    learner, recorder = assembly.build_learner(scenario, prepared, "cpu"), Recorder()
    simulation = assembly.build_simulation(scenario, prepared, learner, recorder)
    simulation.run()
    states = [member.state for member in simulation.members]
    starts = [getattr(state, "start", None) for state in states]  # local keeps none
    learner.jobs.force_params([params for params in (*(state.model for state in states), *starts) if params])
    learner.close()
    return SimpleNamespace(
        rows=recorder.rows,
        prepared=prepared,
        models=[state.model.values().numpy() for state in states],
        start=starts[0].values().numpy() if starts[0] else None,
    )


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def mean_squared_error(run, node, model):
    """Return the error over all samples of a node: 48 are six full mini-batches of equal weight."""
    images, labels = run.prepared.node_train[node]
    return np.mean((images.reshape(len(images), -1) @ model[:-1] + model[-1] - labels) ** 2)


HAND = {
    "cosine_weights": lambda run, a, b: cosine(run.models[a], run.models[b]),
    "cosine_gradients": lambda run, a, b: cosine(run.models[a] - run.start, run.models[b] - run.start),
    "inverse_l2": lambda run, a, b: 1 / (np.linalg.norm(run.models[a] - run.models[b]) + 1e-6),
    "inverse_loss": lambda run, a, b: 1 / (mean_squared_error(run, a, run.models[b]) + 1e-6),
}


@pytest.mark.parametrize("similarity", HAND)
def test_rows_hold_the_similarities_of_the_models_of_their_round(similarity):
    run = finished({**DAC, "similarity": similarity})
    rows = [row for row in run.rows if row["name"].startswith("true_similarity_")]
    assert [(row["node"], row["round"]) for row in rows] == [(n, r) for r in (2, 4) for n in (4, 0) for _ in range(5)]
    last = {(r["node"], int(r["name"].rsplit("_", 1)[1])): r["value"] for r in rows if r["round"] == 4}
    assert set(last) == {(node, peer) for node in (0, 4) for peer in range(6) if peer != node}
    for (node, peer), value in last.items():
        assert value == pytest.approx(HAND[similarity](run, node, peer), rel=1e-5)


def test_monitoring_changes_no_record():
    algorithm = {**DAC, "similarity": "inverse_loss"}
    looking, blind = finished(algorithm), finished(algorithm, records={})
    assert [row for row in looking.rows if not row["name"].startswith("true_")] == blind.rows


@pytest.mark.parametrize("name", ["random", "oracle", "local"])
@pytest.mark.parametrize("similarity", ["cosine_weights", "inverse_l2", "inverse_loss"])
def test_monitoring_works_for_algorithms_without_model_comparisons(name, similarity):
    run = finished({"name": name, "monitored_similarity": similarity})
    last = [row for row in run.rows if row["name"].startswith("true_similarity_") and row["round"] == 4]
    assert len(last) == 2 * 5
    for row in last:
        peer = int(row["name"].rsplit("_", 1)[1])
        assert row["value"] == pytest.approx(HAND[similarity](run, row["node"], peer), rel=1e-5)


@pytest.mark.parametrize("algorithm", [{"name": "pens"}, {"name": "panm", "similarity": "cosine_gradients"}])
def test_monitoring_works_for_algorithms_with_model_comparisons(algorithm):
    assert sum(row["name"].startswith("true_similarity_") for row in finished(algorithm).rows) == 2 * 2 * 5


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"algorithm": {"name": "el"}}, r"records.true_similarities: expected no nodes: el compares no models"),
        ({"algorithm": DAC, "records": {"true_similarities": [6]}}, r"true_similarities\[0\]: node ids are 0 to 5"),
    ],
)
def test_incomparable_models_are_refused(changes, text):
    with pytest.raises(ScenarioError, match=text):
        from_mapping({**BASE, **changes})
