import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from ddlsim.data.cluster_partitions import Domains, LabelClusters
from ddlsim.data.dataset import Dataset
from ddlsim.data.partitions import Random, Uniform
from ddlsim.data.pixels import normalize
from ddlsim.data.prepared import prepare
from ddlsim.data.shifts import NoShift, Rotate
from ddlsim.foundation.errors import ScenarioError


def tiny(num_train=40, num_test=20, num_classes=4):
    """Image i has the value i, except its first pixel, which is 255; its label is i mod classes."""

    def images(count):
        stack = np.tile(np.arange(count, dtype=np.uint8)[:, None, None, None], (1, 2, 2, 1))
        stack[:, 0, 0] = 255
        return stack

    labels = [np.arange(count) % num_classes for count in (num_train, num_test)]
    mean, std = np.zeros(1, np.float32), np.full(1, 1 / 255, np.float32)  # so that pixel values are unchanged
    return Dataset("tiny", images(num_train), labels[0], images(num_test), labels[1], num_classes, mean, std, "here")


def prepared(clusters=(2, 2), source="none", fraction=0.25, placement="contiguous", validation_seed=None, **keys):
    parts = {"partition": Random(), "shift": Rotate(), "seed": 0, "dataset": tiny(), **keys}
    return prepare(
        parts["dataset"],
        parts["partition"],
        parts["shift"],
        SimpleNamespace(source=source, fraction=fraction, seed=validation_seed),
        SimpleNamespace(clusters=clusters, placement=placement),
        parts["seed"],
        parts.get("test_samples"),
    )


def numbers(samples):
    """Return the numbers of these images; only one corner is 255, so the smallest pixel is the number."""
    return sorted(np.rint(np.asarray(samples[0]).min(axis=(1, 2, 3))).astype(int).tolist())


def test_images_are_float32_contiguous_channels_first():
    for kept, labels in [*prepared().node_train, *prepared().cluster_test]:
        images = np.asarray(kept)
        assert images.dtype == np.float32 and images.flags.c_contiguous and images.shape[1:] == (1, 2, 2)
        assert labels.dtype == np.int64


def test_labels_stay_with_their_images():
    for images, labels in prepared().node_train:
        which = np.rint(np.asarray(images).min(axis=(1, 2, 3))).astype(int)
        assert np.array_equal(labels, which % 4)


def test_cluster_shift_applies_to_its_nodes_and_its_test_set():
    data = prepared()
    marked = [np.argwhere(np.rint(np.asarray(images)[0, 0]) == 255).tolist() for images, _ in data.node_train]
    assert marked == [[[0, 0]], [[0, 0]], [[1, 1]], [[1, 1]]]
    tests = [np.asarray(images) for images, _ in data.cluster_test]
    assert tests[0][5, 0, 0, 0] > 200 and tests[1][5, 0, 1, 1] > 200


def test_every_cluster_has_the_whole_test_set():
    assert [numbers(samples) for samples in prepared().cluster_test] == [list(range(20))] * 2


def test_a_sample_of_the_test_set_is_the_same_for_all_clusters():
    found = prepared(test_samples=5)
    first, second = (numbers(samples) for samples in found.cluster_test)
    assert first == second and len(set(first)) == 5 and set(first) < set(range(20))
    assert found.about["tested"] == [[5, 20]]
    assert numbers(prepared(test_samples=5, seed=1).cluster_test[0]) != first


def test_oversized_sample_is_the_whole_test_set():
    assert [numbers(samples) for samples in prepared(test_samples=21).cluster_test] == [list(range(20))] * 2


def test_clusters_with_equal_data_share_one_copy():
    test = prepared(shift=NoShift()).cluster_test
    assert test[0][0].stored is test[1][0].stored and test[0][0].rows is test[1][0].rows


def test_validation_from_train_is_never_trained_on():
    data = prepared(source="train")
    held_out = numbers(data.cluster_validation[0])
    assert len(held_out) == 10 and data.about["validation"] == 10
    assert not set(held_out) & {number for samples in data.node_train for number in numbers(samples)}


def test_validation_from_test_is_removed_from_the_test_set():
    data = prepared(source="test")
    assert len(data.cluster_test[0][1]) == 15
    assert sorted(numbers(data.cluster_validation[1]) + numbers(data.cluster_test[1])) == list(range(20))


def test_validation_of_a_node_is_a_part_of_its_samples():
    data, whole = prepared(source="node"), prepared()
    assert data.cluster_validation is None
    for own, kept, before in zip(data.node_train, data.node_validation, whole.node_train, strict=True):
        assert len(kept[1]) == round(0.25 * 10)
        assert sorted(numbers(own) + numbers(kept)) == numbers(before)


def all_numbers(nodes):
    return sorted(number for samples in nodes for number in numbers(samples))


@pytest.mark.parametrize("source", ["train", "test"])
def test_validation_seed_fixes_the_validation_set_for_every_scenario_seed(source):
    first, other = (prepared(source=source, validation_seed=7, seed=seed) for seed in (1, 2))
    held_out = numbers(first.cluster_validation[0])
    assert held_out == numbers(other.cluster_validation[0])
    assert held_out != numbers(prepared(source=source, validation_seed=8).cluster_validation[0])
    assert not set(held_out) & set(
        all_numbers(first.node_train) if source == "train" else numbers(first.cluster_test[0])
    )


def test_validation_seed_deals_the_same_validation_samples_for_every_scenario_seed():
    order = np.arange(40)
    np.random.default_rng(42).shuffle(order)
    first, other = (prepared(source="node", fraction=0.2, validation_seed=42, seed=seed) for seed in (1, 2))
    for data in (first, other):
        assert all_numbers(data.node_train) == sorted(order[:32].tolist())
        assert all_numbers(data.node_validation) == sorted(order[32:].tolist())
        assert [len(labels) for _, labels in data.node_validation] == [2] * 4
    assert numbers(first.node_train[0]) != numbers(other.node_train[0])


def test_validation_seed_with_samples_per_node_uses_only_dealt_samples():
    order = np.random.default_rng(3).permutation(40)
    data = prepared(source="node", validation_seed=3, partition=Random(samples_per_node=4))
    assert all_numbers(data.node_train) == sorted(order[:12].tolist())
    assert all_numbers(data.node_validation) == sorted(order[12:16].tolist())


def test_validation_seed_shuffles_every_domain_separately():
    dataset = tiny()
    domains = {"train": np.repeat([0, 1], 20), "test": np.repeat([0, 1], 10)}
    dataset = dataclasses.replace(dataset, domains=domains)
    found = prepared(source="node", validation_seed=3, partition=Domains(samples_per_node=4), dataset=dataset)
    order = np.random.default_rng(3).permutation(20)
    for nodes, start in ((slice(0, 2), 0), (slice(2, 4), 20)):
        assert all_numbers(found.node_train[nodes]) == sorted((start + order[:6]).tolist())
        assert all_numbers(found.node_validation[nodes]) == sorted((start + order[6:8]).tolist())


def test_validation_seed_with_a_partition_by_labels_is_refused():
    with pytest.raises(ScenarioError, match=r"validation\.seed"):
        prepared(source="node", validation_seed=3, partition=Uniform())


@pytest.mark.parametrize("fraction", [0.05, 0.95])
def test_validation_seed_must_leave_samples_for_every_node(fraction):
    with pytest.raises(ScenarioError, match=r"validation\.fraction: .* for each of 4 nodes"):
        prepared(source="node", validation_seed=3, fraction=fraction)


def test_validation_of_all_samples_is_refused():
    with pytest.raises(ScenarioError, match=r"validation\.fraction"):
        prepared(source="train", fraction=0.001)


def test_label_clusters_are_tested_on_their_labels():
    data = prepared(partition=LabelClusters(labels=((0, 1), (2, 3))), source="train")
    assert [set(labels) for _, labels in data.cluster_test] == [{0, 1}, {2, 3}]
    assert [set(labels) for _, labels in data.cluster_validation] == [{0, 1}, {2, 3}]


def test_shuffled_placement_keeps_cluster_sizes_and_shifts():
    data = prepared(clusters=(6, 2), placement="shuffled", seed=3)
    assert np.bincount(data.node_cluster).tolist() == [6, 2]
    assert data.node_cluster.tolist() != [0] * 6 + [1] * 2
    upright = [np.rint(np.asarray(images)[0, 0, 0, 0]) == 255 for images, _ in data.node_train]
    assert upright == [cluster == 0 for cluster in data.node_cluster]


def test_same_seed_repeats_the_data_and_another_seed_changes_it():
    first, again, other = prepared(seed=1), prepared(seed=1), prepared(seed=2)
    assert np.array_equal(first.node_train[0][0], again.node_train[0][0])
    assert not np.array_equal(first.node_train[0][0], other.node_train[0][0])


def test_a_node_without_samples_is_refused():
    with pytest.raises(ScenarioError, match="node 0"):
        prepared(partition=Uniform(), clusters=(20, 20))


def test_description_lists_the_dealt_samples():
    about = prepared().about
    assert about["per_node"] == {"min": 10, "max": 10, "total": 40}
    assert (about["train"], about["test"], about["origin"]) == (40, 20, "here")
    assert about["sha256"] == tiny().sha256


def test_release_frees_the_samples():
    data = prepared()
    data.release()
    assert data.node_train == [] and data.cluster_test == []


def test_normalization_equals_torchvision():
    import torch
    from torchvision.transforms import functional

    images = np.arange(768, dtype=np.int64).astype(np.uint8).reshape(4, 8, 8, 3)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    expected = torch.stack([functional.normalize(functional.to_tensor(image), mean, std) for image in images])
    assert np.array_equal(normalize(images, np.float32(mean), np.float32(std)), expected.numpy())


def test_float_features_are_not_divided_by_255():
    features = np.array([2.0, 4.0], np.float32).reshape(1, 1, 2, 1)
    assert normalize(features, np.float32([1]), np.float32([2])).ravel().tolist() == [0.5, 1.5]
