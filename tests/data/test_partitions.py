from types import SimpleNamespace

import numpy as np
import pytest

from ddlsim.data import PARTITIONS
from ddlsim.data.cluster_partitions import CIFAR100_SUPERCLASSES, ClassClusters, Domains, LabelClusters
from ddlsim.data.fixed_partitions import ByColumn, FromFile
from ddlsim.data.partitions import Dirichlet, QuantitySkew, Random, Shards, Uniform, by_node
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream

LABELS = np.repeat(np.arange(10), 103)  # 1,030 samples, sorted by label
ALL = [Random(), Uniform(), Dirichlet(alpha=0.5), Shards(shards_per_node=2), LabelClusters(), QuantitySkew(alpha=1.0)]


def deal(partition, clusters=(5, 2), labels=LABELS, seed=0):
    return partition.assign(labels, clusters, stream(seed, "partition"))


def histograms(dealt, labels=LABELS):
    return np.array([np.bincount(labels[own], minlength=10) for own in dealt])


def named(partition):
    return type(partition).__name__


def test_every_partition_in_the_table_is_tested_here():
    elsewhere = {ClassClusters, ByColumn, FromFile}  # test_class_clusters.py, test_fixed_partitions.py
    assert {*map(type, ALL), Domains} == {PARTITIONS[name] for name in PARTITIONS} - elsewhere


@pytest.mark.parametrize("partition", ALL, ids=named)
def test_no_sample_has_two_owners(partition):
    dealt = np.concatenate(deal(partition))
    assert len(np.unique(dealt)) == len(dealt)


@pytest.mark.parametrize("partition", ALL, ids=named)
def test_every_node_of_every_cluster_gets_samples(partition):
    dealt = deal(partition)
    assert len(dealt) == 7
    assert min(map(len, dealt)) > 0


@pytest.mark.parametrize("partition", ALL, ids=named)
def test_same_seed_repeats_the_partition_and_another_seed_changes_it(partition):
    first, again, other = deal(partition), deal(partition), deal(partition, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("partition", [Dirichlet(alpha=0.5), Shards(), QuantitySkew(alpha=1.0)], ids=named)
def test_all_samples_are_dealt(partition):
    assert sum(map(len, deal(partition))) == len(LABELS)


@pytest.mark.parametrize("clusters, size", [((16, 16), 1406), ((30, 2), 1406), ((24, 8), 1406), ((20, 10, 2), 1406)])
def test_random_gives_the_published_number_of_cifar10_samples_per_node(clusters, size):
    labels = np.zeros(45_000, np.int64)
    assert {len(own) for own in deal(Random(), clusters, labels)} == {size}


def test_random_leaves_label_counts_to_chance():
    assert len(np.unique(histograms(deal(Random())))) > 1


def test_uniform_gives_every_node_the_same_number_of_each_label_and_drops_the_rest():
    assert np.array_equal(histograms(deal(Uniform())), np.full((7, 10), 103 // 7))


def test_uniform_drops_a_label_that_has_fewer_samples_than_nodes():
    labels = np.array([0] * 14 + [1] * 6)
    assert all(set(labels[own]) == {0} for own in deal(Uniform(), labels=labels))


def test_uniform_reports_fewer_samples_per_node_than_labels():
    with pytest.raises(ScenarioError, match=r"samples_per_node: expected at least 10, the number of labels, got 9\."):
        deal(Uniform(samples_per_node=9))
    assert np.array_equal(histograms(deal(Uniform(samples_per_node=10))), np.ones((7, 10)))


def test_samples_per_node_limits_every_node():
    assert [len(own) for own in deal(Random(samples_per_node=40))] == [40] * 7
    assert np.array_equal(histograms(deal(Uniform(samples_per_node=45))), np.full((7, 10), 4))
    assert [len(own) for own in deal(LabelClusters(samples_per_node=30))] == [30] * 7


def test_small_dirichlet_alpha_is_more_uneven_than_a_large_one():
    uneven, even = (histograms(deal(Dirichlet(alpha=alpha, min_samples=1))).std() for alpha in (0.1, 100.0))
    assert uneven > 4 * even


def test_dirichlet_keeps_the_minimum_per_node():
    assert min(map(len, deal(Dirichlet(alpha=0.2, min_samples=60)))) >= 60


def test_dirichlet_reports_an_impossible_minimum():
    with pytest.raises(ScenarioError, match=r"partition\.min_samples: \d+ samples cannot give each of \d+ nodes 1000"):
        deal(Dirichlet(alpha=0.5, min_samples=1000))


@pytest.mark.parametrize(("equal_sizes", "fewest", "most"), [(False, 10, 1500), (True, 100, 100)])
def test_dirichlet_of_500_nodes_keeps_minimum_and_equal_sizes(equal_sizes, fewest, most):
    labels = np.repeat(np.arange(10), 5000)
    dealt = Dirichlet(alpha=0.1, equal_sizes=equal_sizes).assign(labels, [500], np.random.default_rng(0))
    sizes = [len(own) for own in dealt]
    assert min(sizes) == fewest and max(sizes) <= most
    assert sorted(np.concatenate(dealt)) == list(range(50000))
    assert np.mean([len(np.unique(labels[own])) for own in dealt]) < 5  # of 10 labels


def test_dirichlet_of_equal_sizes_has_the_variance_of_its_distribution():
    labels = np.repeat(np.arange(2), 200_000)
    dealt = Dirichlet(alpha=1.0, equal_sizes=True).assign(labels, [200], np.random.default_rng(0))
    shares = np.array([labels[own].mean() for own in dealt[:100]])  # before a label runs out
    # Dir(1/2, 1/2): mean 1/2, variance 1/4 / (1 + 1)
    assert shares.mean() == pytest.approx(0.5, abs=0.1) and shares.var() == pytest.approx(0.125, abs=0.025)


def test_a_node_with_two_shards_has_few_labels():
    assert (histograms(deal(Shards(shards_per_node=2), clusters=(15, 5))) > 0).sum(1).max() <= 4


def test_shards_differ_by_one_sample_at_most():
    sizes = [len(own) for own in deal(Shards(shards_per_node=1))]
    assert max(sizes) - min(sizes) <= 1


def test_label_clusters_hold_only_their_labels():
    dealt = deal(LabelClusters(labels=((0, 1, 8, 9), (2, 3, 4, 5, 6, 7))), clusters=(3, 2))
    assert [set(LABELS[own]) for own in dealt] == [{0, 1, 8, 9}] * 3 + [{2, 3, 4, 5, 6, 7}] * 2


def test_even_label_clusters_are_labels_in_order():
    assert LabelClusters().cluster_labels(5, 10) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_label_of_two_clusters_is_split_by_their_numbers_of_nodes():
    labels = np.zeros(100, np.int64)
    dealt = deal(LabelClusters(labels=((0,), (0,))), clusters=(3, 1), labels=labels)
    assert [len(own) for own in dealt] == [25] * 4


@pytest.mark.parametrize("labels, text", [(((0,),), "expected 2 lists"), (((0,), (12,)), "0..9")])
def test_invalid_label_lists_are_refused(labels, text):
    with pytest.raises(ScenarioError, match=text):
        LabelClusters(labels=labels).cluster_labels(2, 10)


def test_quantity_skew_gives_different_amounts():
    sizes = [len(own) for own in deal(QuantitySkew(alpha=0.5, min_samples=5))]
    assert max(sizes) > 3 * min(sizes)


def test_a_domain_goes_to_the_nodes_of_its_cluster():
    domains = np.repeat([0, 1], [60, 90])
    dealt = deal(Domains(), (3, 2), domains)
    assert [len(own) for own in dealt] == [20, 20, 20, 45, 45]
    assert [set(domains[own]) for own in dealt] == [{0}] * 3 + [{1}] * 2
    assert [len(own) for own in deal(Domains(samples_per_node=5), (3, 2), domains)] == [5] * 5


def test_label_groups_can_be_selected_by_name():
    assert LabelClusters(labels="vehicles_animals").cluster_labels(2, 10) == [[0, 1, 8, 9], [2, 3, 4, 5, 6, 7]]
    for name in ("cifar100_superclasses", "cifar100_published"):
        groups = LabelClusters(labels=name).cluster_labels(3, 100)
        assert [len(group) for group in groups] == [50, 25, 25]
        assert sorted(label for group in groups for label in group) == list(range(100))
    real = LabelClusters(labels="cifar100_superclasses").cluster_labels(3, 100)
    published = LabelClusters(labels="cifar100_published").cluster_labels(3, 100)
    assert {8, 13, 48, 58, 90} <= set(real[2])  # bicycle, bus, motorcycle, pickup truck, train
    assert published[1] == [*range(10, 25), *range(50, 55), *range(85, 90)]
    with pytest.raises(ScenarioError, match=r"labels 0\.\.9, got labels 10"):
        LabelClusters(labels="cifar100_published").cluster_labels(3, 10)
    with pytest.raises(ScenarioError, match=r"expected 3 lists, one per cluster, .* got 2 lists"):
        LabelClusters(labels="vehicles_animals").cluster_labels(3, 10)


def test_every_superclass_of_cifar100_has_five_labels():
    labels = [label for group in CIFAR100_SUPERCLASSES for label in group]
    assert len(CIFAR100_SUPERCLASSES) == 20 and sorted(labels) == list(range(100))


def test_label_clusters_train_and_test_on_equal_labels_without_the_highest():
    data = SimpleNamespace(train_labels=np.tile(np.arange(7), 4), num_classes=10)
    partition, pool = LabelClusters(), np.arange(28)
    dealt = partition.deal(data, pool, np.array([0, 1]), stream(0, "partition"))
    tested = partition.cluster_labels(2, 10)
    assert [sorted(set(data.train_labels[own])) for own in dealt] == [tested[0], [5, 6]]


@pytest.mark.parametrize(
    ("dealt", "text"),
    [
        ([[0, 1], [-1, 2]], "node 1: expected indices [M] of 0 to 3, got -1"),
        ([[0, 4], [1, 2]], "node 0: expected indices [M] of 0 to 3, got 4"),
        ([[0.0], [1.0]], "node 0: expected indices [M] of 0 to 3, got float64 [1]"),
        ([[[0]], [[1]]], "got int64 [1, 1]"),
        ([[0]], "with the samples of 2 nodes, got a list of 1"),
        (None, "expected a list with the samples of 2 nodes, got nothing (None)"),
        ({0: [0], 1: [1]}, "expected a list with the samples of 2 nodes, got a dict"),
    ],
)
def test_dealt_positions_are_checked_for_every_node(dealt, text):
    with pytest.raises(ScenarioError) as raised:
        given = [np.array(own) for own in dealt] if isinstance(dealt, list) else dealt
        by_node(given, np.arange(10, 14), np.zeros(2, np.int64))
    assert str(raised.value).startswith("partition: ") and text in str(raised.value)
