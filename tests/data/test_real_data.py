"""The real data sets in $DDLSIM_DATA; skipped without them."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from ddlsim.data import DATASETS, PARTITIONS, SHIFTS, DataSearch
from ddlsim.data.prepared import prepare
from ddlsim.foundation.errors import DataMissing

pytestmark = pytest.mark.slow


def load(name):
    try:
        return DATASETS[name]().load(DataSearch(download=False))
    except DataMissing as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", ["cifar10", "mnist", "fashion-mnist", "cifar100"])
def test_sizes_and_classes_are_the_published_ones(name):
    data, about = load(name), DATASETS[name]
    channels, height, width = about.image_shape
    assert data.train_images.shape == (about.num_samples[0], height, width, channels)
    assert len(data.test_labels) == about.num_samples[1]
    assert set(np.unique(data.train_labels)) == set(range(about.num_classes))


def test_the_embedded_part_is_the_first_of_each_class():
    full, mini = load("fashion-mnist"), load("fashion-mnist-mini")
    for split, count in (("train", 1000), ("test", 200)):
        labels, images = getattr(full, f"{split}_labels"), getattr(full, f"{split}_images")
        first = np.sort(np.concatenate([np.flatnonzero(labels == label)[:count] for label in range(10)]))
        assert np.array_equal(getattr(mini, f"{split}_labels"), labels[first])
        assert np.array_equal(getattr(mini, f"{split}_images"), images[first])


def test_cifar10_for_32_nodes_is_1406_each_in_upright_and_turned():
    data = prepare(
        load("cifar10"),
        PARTITIONS["random"](),
        SHIFTS["rotate"](),
        SimpleNamespace(source="train", fraction=0.1, seed=None),
        SimpleNamespace(clusters=(30, 2), placement="contiguous"),
        1,
    )
    assert {len(labels) for _, labels in data.node_train} == {1406}
    upright, turned = (np.asarray(images) for images, _ in data.cluster_test)
    assert len(upright) == 10_000 and np.array_equal(turned, upright[:, :, ::-1, ::-1])


def test_the_digest_of_cifar10_takes_under_a_second():
    data = load("cifar10")
    started = time.perf_counter()
    assert len(data.sha256) == 64
    assert time.perf_counter() - started < 1.0
