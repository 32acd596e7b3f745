"""Classes of clusters, samples of nodes."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from ddlsim.data.cluster_partitions import ClassClusters
from ddlsim.data.dataset import Dataset
from ddlsim.data.prepared import prepare
from ddlsim.data.shifts import NoShift
from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import load

LABELS = np.tile(np.arange(10), 600)


def rng():
    return np.random.default_rng(0)


def test_scenario_1_has_disjoint_classes_and_scenario_2_shares_four():
    assert ClassClusters().cluster_labels(2, 10) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert ClassClusters(overlap=4).cluster_labels(2, 10) == [[0, 1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 7, 8, 9]]


def test_nodes_have_their_clusters_classes_within_the_spread_without_repeats():
    nodes = ClassClusters(overlap=4, samples_per_class=20, spread=5).assign(LABELS, [10, 10], rng())
    counts = [np.bincount(LABELS[own], minlength=10) for own in nodes]
    assert all((count[7:] == 0).all() and (count[:7] >= 15).all() and (count[:7] <= 25).all() for count in counts[:10])
    assert all((count[:3] == 0).all() for count in counts[10:])
    assert {int(count) for own in counts for count in own} > {15, 25}
    everything = np.concatenate(nodes)
    assert len(np.unique(everything)) == len(everything)


def test_normal_spread_has_that_standard_deviation():
    part = ClassClusters(samples_per_class=20, spread=4, draw="normal")
    counts = np.concatenate([np.bincount(LABELS[own])[:5] for own in part.assign(LABELS, [25, 1], rng())[:25]])
    assert counts.mean() == pytest.approx(20, abs=1) and counts.std() == pytest.approx(4, abs=0.8)


def test_stride_makes_adjacent_nodes_share_samples():
    nodes = ClassClusters(samples_per_class=30, spread=0, stride=20).assign(LABELS, [3, 3], rng())
    zeros = np.flatnonzero(LABELS == 0)
    assert (nodes[1][:30] == zeros[20:50]).all()
    assert len(np.intersect1d(nodes[0], nodes[1])) == 5 * 10 and len(np.intersect1d(nodes[0], nodes[2])) == 0


def test_too_few_samples_are_named():
    with pytest.raises(ScenarioError, match=r"partition\.samples_per_class: node 6"):
        ClassClusters(samples_per_class=100, spread=0).assign(LABELS, [7, 1], rng())


def test_spread_without_samples_is_refused():
    with pytest.raises(ScenarioError, match="spread: expected less than"):
        ClassClusters(samples_per_class=10, spread=10)


@pytest.mark.parametrize("placement", ["contiguous", "shuffled"])
def test_every_node_is_tested_on_separate_samples_of_its_classes(placement):
    images = np.zeros((600, 2, 2, 1), np.uint8)
    images[:, 0, 0, 0] = np.arange(600) % 256
    labels = np.tile(np.arange(10), 60)
    dataset = Dataset("d", images, labels, images, labels, 10, np.zeros(1, np.float32), np.ones(1, np.float32), "here")
    prepared = prepare(
        dataset,
        ClassClusters(samples_per_class=10, spread=2, test_samples_per_class=4),
        NoShift(),
        SimpleNamespace(source="none", fraction=0.1, seed=None),
        SimpleNamespace(clusters=[3, 2], placement=placement),
        seed=1,
    )
    assert prepared.test_set.tolist() == [0, 1, 2, 3, 4]
    for cluster, (_, own) in zip(prepared.node_cluster, prepared.cluster_test, strict=True):
        assert np.bincount(own, minlength=10).tolist() == ([4] * 5 + [0] * 5 if cluster == 0 else [0] * 5 + [4] * 5)


def test_classes_are_counted_in_the_data_set_not_in_the_samples():
    labels = np.tile(np.arange(6), 20)  # of eight classes, 6 and 7 without samples
    data = SimpleNamespace(train_labels=labels, test_labels=labels, num_classes=8)
    partition = ClassClusters(samples_per_class=5, spread=0, test_samples_per_class=5)
    with pytest.raises(ScenarioError, match="of class 6, got 0"):
        partition.deal(data, np.arange(120), np.array([0, 1]), rng())
    with pytest.raises(ScenarioError, match="of class 6, got 0"):
        partition.deal_test(data, np.arange(120), [], np.array([0, 1]), rng())


@pytest.mark.parametrize(
    ("clusters", "classes", "overlap", "fit"),
    [(2, 10, 1, "0, 2, 4, 6 and 8"), (3, 10, 2, "1, 4 and 7"), (3, 10, 0, "1, 4 and 7"), (4, 10, 1, "2 and 6")],
)
def test_overlap_impossible_for_windows_of_equal_width_is_refused(clusters, classes, overlap, fit):
    with pytest.raises(ScenarioError, match=rf"overlap: expected {fit}: .* cover {classes} classes, got {overlap}\."):
        ClassClusters(overlap=overlap).assign_classes(np.arange(classes), [1] * clusters, rng(), classes)


@pytest.mark.parametrize(("clusters", "classes", "overlap"), [(2, 10, 4), (3, 10, 1), (4, 10, 2), (5, 10, 0)])
def test_neighboring_clusters_share_the_overlap_and_all_classes_are_covered(clusters, classes, overlap):
    windows = ClassClusters(overlap=overlap).cluster_labels(clusters, classes)
    assert {label for window in windows for label in window} == set(range(classes))
    assert all(len(set(one) & set(other)) == overlap for one, other in pairwise(windows))


def test_valid_overlap_passes_the_check_of_a_scenario():
    """The check passes even if the number of classes is not known yet."""
    sets = ("partition={name: class_clusters, overlap: 2}", "nodes.clusters=[2, 2, 2, 2]", "algorithm={name: el}")
    assert load("scenarios/smoke.yaml", sets).partition.cluster_labels(4, 10)[1] == [2, 3, 4, 5]
