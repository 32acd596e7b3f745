from types import SimpleNamespace

import numpy as np
import pytest

from ddlsim.data import DATASETS, DataSearch
from ddlsim.data.cluster_partitions import Domains
from ddlsim.data.derived import Joined
from ddlsim.data.prepared import prepare
from ddlsim.data.shifts import NoShift, Rotate
from ddlsim.foundation.errors import DataMissing, ScenarioError

MINI = "fashion-mnist-mini"
NODES = SimpleNamespace(clusters=(2, 3), placement="contiguous")
NONE = SimpleNamespace(source="none", fraction=0.1, seed=None)


def twice(**keys):
    return Joined(sets=(MINI, MINI), **keys)


def test_labels_of_the_second_set_follow_the_labels_of_the_first():
    data = twice().load(DataSearch())
    assert data.num_classes == twice().num_classes == 20
    assert data.domains["train"].tolist() == [0] * 10_000 + [1] * 10_000
    for domain, labels in ((0, range(10)), (1, range(10, 20))):
        assert set(data.test_labels[data.domains["test"] == domain]) == set(labels)


def test_common_labels_are_unchanged():
    data = twice(labels="common").load(DataSearch())
    assert data.num_classes == 10 and set(data.train_labels) == set(range(10))


def test_each_cluster_trains_and_is_tested_on_its_set():
    data = prepare(twice().load(DataSearch()), Domains(samples_per_node=500), NoShift(), NONE, NODES, 0)
    assert [len(labels) for _, labels in data.node_train] == [500] * 5
    assert [labels.max() >= 10 for _, labels in data.node_train] == [False, False, True, True, True]
    assert [set(labels) for _, labels in data.cluster_test] == [set(range(10)), set(range(10, 20))]


def test_every_set_keeps_its_normalization(monkeypatch):
    data = twice().load(DataSearch())
    data.mean[:] = [[0.0], [0.5]]
    data.std[:] = [[1.0], [0.25]]
    tests = prepare(data, Domains(), NoShift(), NONE, NODES, 0).cluster_test
    first, second = (np.asarray(images) for images, _ in tests)
    assert np.allclose(second, (first - 0.5) / 0.25, atol=1e-6)  # both sets hold the same images


def test_black_corners_need_one_black():
    turned = Rotate(degrees=(0.0, 10.0), order="before_normalizing")
    data = twice().load(DataSearch())
    data.mean[:] = [[0.0], [0.5]]
    corner = np.asarray(prepare(data, Domains(), turned, NONE, NODES, 0).cluster_test[1][0])[0, 0, 0, 0]
    assert corner == pytest.approx(-0.5 / 0.5)
    from ddlsim.data.partitions import Random

    with pytest.raises(ScenarioError, match=r"shift\.order: expected after_normalizing"):
        prepare(data, Random(), turned, NONE, NODES, 0)


def test_number_of_clusters_equals_the_number_of_sets():
    with pytest.raises(ScenarioError, match=r"expected data of 3 domains, one per cluster, got 2"):
        nodes = SimpleNamespace(clusters=(1, 1, 1), placement="contiguous")
        prepare(twice().load(DataSearch()), Domains(), NoShift(), NONE, nodes, 0)


@pytest.mark.parametrize(
    "sets, text",
    [
        (("mnist", "fashion"), r"unknown data set 'fashion'"),
        (("mnist", "npz"), "npz needs keys and cannot be joined"),
        (("mnist", "cifar10"), "must have one shape"),
        (("mnist", "imagenette"), r"must have one shape, these have \[\(1, 28, 28\), \(3, 64, 64\)\]"),
        (("mnist", "ag_news"), "images of a known shape, .* got ag_news"),
        (("mnist", "heart_disease"), "images of a known shape, .* got heart_disease"),
        (("mnist", "attributes"), "of one class each, got attributes"),
    ],
)
def test_incompatible_sets_are_refused(sets, text):
    with pytest.raises(ScenarioError, match=text):
        Joined(sets=sets)


def test_shape_fixed_by_keys_is_known_without_reading_the_set():
    both = Joined(sets=("imagenette", "imagenette"))
    assert both.image_shape == (3, 64, 64) and both.num_classes == 20 and both.num_samples == (18_938, 7_850)


def test_shape_of_mnist_with_fashion_mnist_is_known_without_reading_it(tmp_path):
    both = Joined(sets=("mnist", "fashion-mnist"))
    assert both.image_shape == (1, 28, 28) and both.num_classes == 20 and both.num_samples == (120_000, 20_000)
    with pytest.raises(DataMissing, match="mnist is not on this machine"):
        both.load(DataSearch(tmp_path, download=False))
    assert DATASETS["joined"] is Joined
