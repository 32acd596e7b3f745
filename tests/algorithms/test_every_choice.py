"""Every similarity with every merge in every comparing algorithm runs or is refused with a reason."""

from itertools import product

import numpy as np
import pytest

from ddlsim import assembly, runs
from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import from_mapping

BASE = {
    "name": "tiny",
    "rounds": 4,
    "nodes": {"clusters": [3, 3]},
    "model": {"name": "linear"},
    "data": {"name": "synthetic_regression", "samples_per_node": 16, "validation_samples": 8, "test_samples": 20},
    "partition": {"name": "domains"},
    "validation": {"source": "own"},
    "topology": {"name": "complete"},
    "training": {"learning_rate": 0.0003, "epochs": 1, "batch_size": 8},
    "evaluation": {"every": 4},
}
ALGORITHMS = [
    {"name": "dac", "variant": "listo_zec_2022"},
    {"name": "dac", "variant": "hagander_2024"},
    {"name": "dac", "variant": "text"},
    {"name": "dac", "variant": "facade"},
    {"name": "dac", "variant": "hagander_2024", "tau_schedule": "sigmoid", "scaling": "min_max"},
    {"name": "pens", "stage1_rounds": 2},
    {"name": "panm", "stage1_rounds": 2},
    {"name": "panm", "stage1_rounds": 2, "variant": "code"},
    {"name": "panm", "stage1_rounds": 2, "variant": "published_bug"},
]
SIMILARITIES = [
    ("inverse_loss", 0.0),
    ("cosine_weights", 0.0),
    ("inverse_l2", 0.0),
    ("cosine_gradients", 0.0),
    ("cosine_gradients", 0.5),
    ("cosine_gradients", 1.0),
]


def why_not(algorithm: dict, merge: str) -> str | None:
    if algorithm["name"] == "panm" and merge == "fedsim" and algorithm.get("variant", "thesis") != "thesis":
        return "fedsim weighs by measured similarities, which only thesis has"
    return None


@pytest.mark.parametrize(
    ("mode", "merges"),
    [
        ("sync", ["fedsim"]),
        pytest.param("sync", ["fedavg", "uniform"], marks=pytest.mark.full),
        pytest.param("async", ["fedsim"], marks=pytest.mark.full),
    ],
)
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda one: "-".join(map(str, one.values())))
@pytest.mark.full
def test_every_similarity_with_every_merge(algorithm, mode, merges):
    for (similarity, alpha), merge in product(SIMILARITIES, merges):
        keys = {**algorithm, "merge": merge, "similarity": similarity, "alpha": alpha, "sampled_peers": 2}
        refusal = why_not(algorithm, merge)
        if refusal is not None:
            with pytest.raises(ScenarioError, match=refusal):
                from_mapping({**BASE, "algorithm": keys, "mode": mode})
            continue
        scenario = from_mapping({**BASE, "algorithm": keys, "mode": mode})
        prepared = runs.prepare(runs.load_data(scenario))
        learner, recorder = assembly.build_learner(scenario, prepared, "cpu"), Recorder()
        assembly.build_simulation(scenario, prepared, learner, recorder).run()
        learner.close()
        errors = [row["value"] for row in recorder.rows if row["name"] == "mse"]
        assert len(errors) == 6 and np.isfinite(errors).all(), keys


@pytest.mark.parametrize("name", ["random", "oracle", "local"])
def test_fedsim_needs_similarities(name):
    with pytest.raises(ScenarioError, match=r"algorithm"):
        from_mapping({**BASE, "algorithm": {"name": name, "merge": "fedsim"}})
