"""Published numbers stay with a scenario while data, nodes, model and algorithm match."""

import pytest

from ddlsim.scenario import load
from ddlsim.scenario.load import from_python


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ("data.name=fashion-mnist-mini", False),
        ("nodes.clusters=[8, 8]", False),
        ("model={name: mlp}", False),
        ("shift={name: none}", False),
        ("algorithm.name=el", False),
        ("data.name=cifar10", True),
        ("rounds=40", True),
        ("algorithm.heads=3", True),
    ],
)
def test_published_numbers_are_dropped_with_other_data(change, kept):
    assert (load("facade_30_2", [change]).paper is not None) is kept


def test_published_numbers_are_dropped_if_the_nodes_change(tmp_path):
    nodes = {"clusters": [4, 4]}
    assert from_python("facade_30_2", {"nodes": nodes}).paper is None
    assert from_python({"extends": "facade_30_2", "nodes": nodes}, {}).paper is None
    own = {"source": "me", "accuracy": {"all": 0.5}}
    assert from_python("facade_30_2", {"nodes": nodes, "paper": own}).paper == own
    file = tmp_path / "mine.yaml"
    file.write_text("extends: facade_30_2\nnodes: {clusters: [4, 4]}\n")
    assert load(file).paper is None
