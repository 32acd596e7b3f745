"""MAPL finds two planted clusters on real Fashion-MNIST in $DDLSIM_DATA; skipped without the data."""

import json
from pathlib import Path

import numpy as np
import pytest

from ddlsim import runs
from ddlsim.foundation.errors import DataMissing
from ddlsim.scenario import load

BASE = Path(__file__).parents[2] / "scenarios" / "base" / "mapl.yaml"
SETTINGS = (
    "rounds=20",
    "data={name: fashion-mnist}",
    "evaluation.every=20",
    "training.learning_rate=0.001",
    "training.batch_size=32",
    "model={name: mixed, models: [{name: mlp, hidden: [128, 64]}, {name: mlp, hidden: [96, 64]}], latent: null}",
    "algorithm={name: mapl, warmup_rounds: 15, projection_units: 256, temperature: 0.5}",
)


@pytest.mark.slow
def test_the_learned_graph_separates_nodes_of_disjoint_classes(tmp_path):
    scenario = load(BASE, SETTINGS)
    try:
        runs.run(scenario, out=tmp_path / "run", fallback=False, download=False)
    except DataMissing as error:
        pytest.skip(str(error))
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["name"] == "collaboration" and row["round"] == 20]
    graph = {row["node"]: np.array(row["value"]) for row in last}
    cluster = np.repeat([0, 1], len(graph) // 2)
    inside = [graph[node][cluster == cluster[node]].sum() / graph[node].sum() for node in sorted(graph)]
    assert len(inside) == 20
    assert min(inside) > 0.9
    contents = map(json.loads, (tmp_path / "run" / "contents.jsonl").read_text().splitlines())
    (sent,) = (row for row in contents if row["content"] == "prototypes" and row["round"] == 20)
    assert (sent["messages"], sent["bytes"]) == (180, 180 * 10 * 64 * 4)  # of 380 edges, those within clusters
