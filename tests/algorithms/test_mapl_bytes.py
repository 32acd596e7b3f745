"""Bytes of a round of MAPL and its baselines with 20 nodes and 512 latent features, against counts by hand."""

import json

import pytest

from ddlsim import runs
from ddlsim.report.sections.peers import read_graphs
from ddlsim.scenario import load

PROTOTYPES = 10 * 512 * 4
CLASSIFIER = 10 * 512 * 4
HEAD = (10 * 512 + 10) * 4
EDGES = 20 * 19

SETTING = (
    "nodes={clusters: [10, 10]}",
    "rounds=1",
    "learning=none",
    "network.header_bytes=0",
    "shift={name: none}",
    "training={batch_size: 64, epochs: 1, learning_rate: 0.0001}",
    "model={name: mixed, models: [resnet18, shufflenet_v2, alexnet_small]}",
)


@pytest.fixture
def bytes_of(tmp_path):
    def run(algorithm: str, *changes: str) -> int:
        runs.run(load("tests/helpers/smoke.yaml", (f"algorithm={algorithm}", *SETTING, *changes)), out=tmp_path / "run")
        lines = (tmp_path / "run" / "communication.jsonl").read_text().splitlines()
        return sum(json.loads(line)["payload_bytes"] for line in lines)

    return run


def test_warm_up_sends_prototypes_and_the_number_of_samples_once(bytes_of):
    assert bytes_of("{name: mapl}") == EDGES * (PROTOTYPES + 8) == 7_782_400 + 3_040


def test_learning_the_graph_also_sends_classifiers_without_bias(bytes_of):
    # without learning all classifiers are equal, so all edges keep their weight
    assert bytes_of("{name: mapl, warmup_rounds: 0}") == EDGES * (PROTOTYPES + CLASSIFIER + 8)


@pytest.mark.parametrize("name", ["fedsim", "fedclassavg"])
def test_server_and_nodes_exchange_heads(bytes_of, name):
    assert bytes_of(f"{{name: {name}}}") == 20 * 2 * HEAD == 820_800


def test_fedproto_sends_class_means_with_their_labels(bytes_of):
    assert bytes_of("{name: fedproto}") == 20 * 2 * 10 * (512 * 4 + 8)


def test_fedavg_sends_whole_models(bytes_of):
    trained, buffers = 11_439_168 - 3 * 64 * 49 + 64 * 49 + 5_130, 9_600  # 20 counts of batches stay
    resnet = "model={name: resnet18, latent: 512}"
    assert bytes_of("{name: fedavg}", resnet) == 20 * (2 * (trained + buffers) * 4 + 8)


def test_mapl_plus_sends_cores_without_statistics(bytes_of):
    resnet = "model={name: resnet18, latent: 512}"
    found = bytes_of("{name: mapl, share_backbone: true}", resnet)
    assert found == EDGES * (PROTOTYPES + 8 + 11_432_896 * 4)


@pytest.mark.parametrize("candidates", ["all", "neighbors"])
def test_prototypes_come_from_peers_of_positive_weight_only(tmp_path, candidates):
    # the hand count after the warm-up: 20,480 B per edge of positive weight, here 32 features instead of 512
    mapl = f"algorithm={{name: mapl, warmup_rounds: 2, projection_units: 16, candidates: {candidates}}}"
    clusters = ("partition={name: class_clusters, samples_per_class: 20, spread: 5}", "shift={name: none}", "rounds=8")
    runs.run(
        load("tests/helpers/smoke.yaml", (mapl, "init=own", "nodes={clusters: [4, 4]}", *clusters)),
        out=tmp_path / "run",
    )
    graphs = read_graphs(tmp_path / "run", 8)
    rows = map(json.loads, (tmp_path / "run" / "contents.jsonl").read_text().splitlines())
    sent = {(row["content"], row["round"]): row["bytes"] for row in rows}
    edges = dict(zip(graphs.round.tolist(), graphs.edges().tolist(), strict=True))
    assert list(edges) == [3, 4, 5, 6, 7, 8] and edges[8] < 56
    assert [sent["prototypes", r] for r in range(1, 9)] == [10 * 32 * 4 * edges.get(r, 56) for r in range(1, 9)]
    asked = [56, *(edges[r] for r in range(3, 8))] if candidates == "neighbors" else [56] * 6
    assert [sent["classifier", r] for r in range(3, 9)] == [10 * 32 * 4 * count for count in asked]
