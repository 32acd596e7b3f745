"""Defaults do not differ between algorithms: initial models, the last exchange, the graph."""

import dataclasses
import json
import re

import pytest

from ddlsim import runs
from ddlsim.algorithms import ALGORITHMS
from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import load
from ddlsim.scenario.unused_keys import unused_key_notes

TINY = ["rounds=1", "training.local_steps=1", "evaluation.every=1"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_algorithm_sets_initial_models_or_a_final_exchange(name):
    cls = ALGORITHMS[name]
    assert not {"init", "shared_init"} & {field.name for field in dataclasses.fields(cls)}
    assert not cls().has_final_exchange


@pytest.mark.parametrize("name", ["random_regular", "watts_strogatz", "barabasi_albert"])
def test_random_graphs_serve_all_rounds_by_default(name):
    assert not load("smoke", [f"topology={{name: {name}}}"]).topology.dynamic


@pytest.mark.parametrize("algorithm", ["local", "el", "deprl"])
@pytest.mark.parametrize(("init", "starts"), [("shared", 1), ("own", 8)])
def test_init_chooses_how_many_models_the_nodes_start_from(tmp_path, algorithm, init, starts):
    changes = [
        "training.learning_rate=1e-30",
        "topology.name=ring",
        f"algorithm={{name: {algorithm}}}",
        f"init={init}",
        "nodes.clusters=[8]",
        *TINY,
    ]
    runs.run(
        load("smoke", [*changes, "shift.name=none", "network={drop_probability: 0.999999999999, on_drop: drop}"]),
        out=tmp_path,
    )
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len({row["value"] for row in rows if row["name"] == "test_loss"}) == starts


def test_init_below_an_algorithm_is_an_error_that_names_its_place():
    with pytest.raises(ScenarioError, match=r"'init'\. It belongs to the top level of the scenario"):
        load("smoke", ["algorithm={name: dac, init: own}"])


@pytest.mark.parametrize(
    ("algorithm", "dynamic", "words"),
    [
        ("dpsgd", True, "dpsgd is defined for one graph in all rounds, .* the same as el"),
        ("dfedavgm", True, "dfedavgm is defined for one graph in all rounds"),
        ("el", False, "el is defined for a new graph in every round"),
        ("dpsgd", False, None),
        ("el", True, None),
        ("fedavg", True, None),
        ("dac", True, None),
    ],
)
def test_unsupported_graph_of_an_algorithm_is_reported(algorithm, dynamic, words):
    notes = unused_key_notes(
        load("smoke", [f"algorithm={{name: {algorithm}}}", f"topology.dynamic={str(dynamic).lower()}"])
    )
    found = [note for note in notes if "graph" in note]
    assert len(found) == (words is not None)
    if words is not None:
        assert re.search(words, found[0])


def test_similarity_of_updates_since_the_start_needs_equal_starts():
    with pytest.raises(ScenarioError, match="init: cosine_gradients with alpha 0 compares updates since one start"):
        load("smoke", ["algorithm={name: dac, similarity: cosine_gradients}", "init=own"])
