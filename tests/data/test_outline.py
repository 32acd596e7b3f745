"""Runs without learning: samples per node are known without reading data."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import ddlsim
from ddlsim.data import DATASETS, SHIFTS, DataSearch
from ddlsim.data.cluster_partitions import ClassClusters, Domains, LabelClusters
from ddlsim.data.dataset import load_dataset
from ddlsim.data.dataset_spec import outline
from ddlsim.data.fixed_partitions import ByColumn, FromFile
from ddlsim.data.partitions import Dirichlet, Random, Shards, Uniform
from ddlsim.data.prepared import prepare
from ddlsim.data.torchvision_sets import FashionMnistMini

MINI = FashionMnistMini()


def nodes_of(*clusters: int) -> SimpleNamespace:
    return SimpleNamespace(clusters=clusters, placement="contiguous")


def validation_by(source: str, fraction: float = 0.2) -> SimpleNamespace:
    return SimpleNamespace(source=source, fraction=fraction, seed=None)


EVEN = nodes_of(4, 4)


@pytest.mark.parametrize(
    ("partition", "samples"),
    [
        (Random(), 1250),
        (Random(samples_per_node=40), 40),
        (Uniform(samples_per_node=45), 40),
        (LabelClusters(samples_per_node=30), 30),
        (Random(samples_per_node=9999), 1250),
        (ClassClusters(samples_per_class=10, spread=2), 50),
    ],
)
@pytest.mark.parametrize(("source", "share"), [("none", 1.0), ("node", 0.8)])
def test_run_without_data_assigns_as_many_samples_as_the_partition(partition, samples, source, share):
    found = outline(MINI, EVEN, validation_by(source), 0, DataSearch(), partition=partition)
    assert found.samples["train"] == round(share * samples)


@pytest.mark.parametrize(
    ("partition", "samples"), [(Random(), 169), (Uniform(), 160), (LabelClusters(), 169), (Dirichlet(alpha=1.0), 170)]
)
def test_dropped_samples_are_not_counted_without_data(partition, samples):
    nodes, validation = nodes_of(59), validation_by("none", 0)  # 10,000 / 59 = 169.5
    found = outline(MINI, nodes, validation, 0, DataSearch(), partition=partition)
    assert found.samples["train"] == samples


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write a partition and a data set into the current folder."""
    monkeypatch.chdir(tmp_path)
    lists = [list(range(node * 50, node * 50 + 10 + node)) for node in range(8)]
    (tmp_path / "lists.json").write_text(json.dumps(lists))
    rng = np.random.default_rng(0)
    split = {"train": 2000, "test": 400}
    images = {f"x_{name}": rng.integers(0, 256, (count, 4, 4), dtype=np.uint8) for name, count in split.items()}
    labels = {f"y_{name}": rng.integers(0, 10, count) for name, count in split.items()}
    sites = {f"site_{name}": rng.integers(0, 40, count) for name, count in split.items()}
    np.savez(tmp_path / "sites.npz", **images, **labels, **sites)


@pytest.mark.parametrize(
    ("data", "partition", "nodes"),
    [
        (MINI, Random(samples_per_node=50), EVEN),
        (MINI, Uniform(), EVEN),
        (MINI, Dirichlet(alpha=0.5), EVEN),
        (MINI, Shards(), EVEN),
        (MINI, LabelClusters(), EVEN),
        (MINI, LabelClusters(labels=((0,), (1,))), EVEN),
        (MINI, LabelClusters(labels=((0, 1), (1, 2)), samples_per_node=300), EVEN),
        (MINI, LabelClusters(samples_per_node=1000), nodes_of(6, 2)),
        (MINI, ClassClusters(overlap=2, samples_per_class=50, spread=0), EVEN),
        (MINI, FromFile(path="lists.json"), EVEN),
        (DATASETS["npz"](path="sites.npz"), ByColumn(column="site", values_per_node=1), EVEN),
        (DATASETS["npz"](path="sites.npz"), LabelClusters(labels=((0,), (1, 2))), EVEN),
        (DATASETS["heart_disease"](), Domains(), nodes_of(2, 2, 2, 2)),
        (DATASETS["heart_disease"](), Random(), EVEN),
        (DATASETS["synthetic_regression"](), Domains(), nodes_of(6, 2)),
    ],
)
def test_every_node_has_the_mean_number_of_samples(files, data, partition, nodes):
    search = DataSearch(download=False)
    dataset = load_dataset(data, nodes, 0, search)
    for source in ("none", "train", "test", "node"):
        validation = validation_by(source)
        dealt = prepare(dataset, partition, SHIFTS["none"](), validation, nodes, 0)
        own = np.mean([len(labels) for _, labels in dealt.node_train])
        held_out = 0
        if dealt.node_validation is not None:
            held_out = np.mean([len(labels) for _, labels in dealt.node_validation])
        elif dealt.cluster_validation is not None:
            held_out = np.mean([len(dealt.cluster_validation[cluster][1]) for cluster in dealt.node_cluster])
        found = outline(data, nodes, validation, 0, search, partition=partition).samples
        near = {"rel": 0.1, "abs": 2}  # the held-out samples and their classes are random
        assert found == {"train": pytest.approx(own, **near), "validation": pytest.approx(held_out, **near)}, source


@pytest.mark.parametrize(
    "partition",
    [
        {"name": "file", "path": "lists.json"},
        {"name": "label_clusters", "labels": [[0], [1]]},
        {"name": "label_clusters"},
    ],
)
def test_rounds_without_data_take_the_same_time(files, partition):
    scenario = {
        "rounds": 2,
        "nodes": {"clusters": [4, 4]},
        "algorithm": {"name": "local"},
        "model": {"name": "mlp", "hidden": [4]},
        "data": {"name": "fashion-mnist-mini"},
        "partition": partition,
        "topology": {"name": "ring"},
        "training": {"learning_rate": 0.1, "batch_size": 10, "epochs": 1},
    }
    learned, network_only = (
        ddlsim.run({**scenario, "learning": learning}, out=learning, progress=False).summary["sim_time_s"]
        for learning in ("real", "none")
    )
    # Lists of 10 to 17 samples take one or two mini-batches, those of the mean number two.
    assert network_only == pytest.approx(learned)
