"""Aliases of names."""

import jsonschema
import pytest
from ruamel.yaml import YAML

from ddlsim.scenario import json_schema, load, to_yaml


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topology={name: full}", "topology={name: complete}"),
        ("topology={name: fully_connected}", "topology={name: complete}"),
        ("topology={name: er, edge_probability: 0.9}", "topology={name: erdos_renyi, edge_probability: 0.9}"),
        ("topology={name: ws}", "topology={name: watts_strogatz}"),
        ("partition={name: iid}", "partition={name: random}"),
    ],
)
def test_alias_means_the_same_scenario(write, typed, meant):
    one, other = load(write(), [typed]), load(write(), [meant])
    assert one == other and to_yaml(one) == to_yaml(other)
    key, value = typed.split("=", 1)
    part = json_schema()["$defs"][key]
    jsonschema.validate(YAML(typ="safe").load(value), part)


def test_alias_of_the_current_part_keeps_its_keys(write):
    file = write(more="topology: {name: random_regular, degree: 2}\n")
    assert load(file, ["topology.name=regular"]).topology.degree == 2
    assert load(file, ["topology={name: regular, degree: 6}", "topology.name=random_regular"]).topology.degree == 6
    child = write("extends: test.yaml\ntraining: {optimizer: sgd, momentum: 0.5}\n", "child.yaml")
    assert load(child, ["training.optimizer=SGD"]).training.optimizer.momentum == 0.5
    assert load(write(more="topology: {name: ba, edges: 2}\n"), ["topology.name=regular"]).topology.degree == 4


def test_another_path_to_the_current_file_keeps_its_keys(write, here):
    write("from ddlsim.models.cnn import MLP\n\n\nclass Mine(MLP):\n    pass\n", "mine.py")
    (here / "below").mkdir()
    text = (here / write()).read_text().replace("{name: mlp}", "{name: ../mine.py:Mine, hidden: [7]}")
    file = write(text, "below/test.yaml")
    assert load(file, ["model.name=mine.py:Mine"]).model.hidden == (7,)


def test_misspelled_alias_is_corrected(problems):
    (message,) = problems(sets=["topology.name=fuly_connected"])
    assert "Did you mean 'fully_connected'?" in message
