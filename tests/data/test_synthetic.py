from types import SimpleNamespace

import numpy as np

from ddlsim.data.cluster_partitions import Domains
from ddlsim.data.derived import SyntheticRegression
from ddlsim.data.partitions import Random
from ddlsim.data.prepared import prepare
from ddlsim.data.shifts import NoShift

NODES = SimpleNamespace(clusters=(3, 4), placement="contiguous")


def prepared(partition=None, **keys):
    dataset = SyntheticRegression(**keys).generate(NODES, 0)
    validation = SimpleNamespace(source="own", fraction=0.1, seed=None)
    return prepare(dataset, partition or Domains(), NoShift(), validation, NODES, 0)


def fit(samples):
    """Least squares on samples: parameters and mean squared error."""
    x, y = samples[0].reshape(len(samples[1]), -1), samples[1]
    theta, *_ = np.linalg.lstsq(x, y, rcond=None)
    return theta, float(np.mean((x @ theta - y) ** 2))


def test_default_sizes_equal_the_publication():
    data = prepared()
    assert [len(labels) for _, labels in data.node_train] == [50] * 7
    assert [len(labels) for _, labels in data.cluster_validation] == [100, 100]
    assert [len(labels) for _, labels in data.cluster_test] == [1000, 1000]
    assert data.node_train[0][0].shape == (50, 1, 1, 10) and data.node_train[0][1].dtype == np.float32
    assert (data.task, data.num_classes, data.image_shape) == ("regression", 1, (1, 1, 10))


def test_noise_is_the_lowest_error_of_a_model():
    _, error = fit(prepared(test_samples=20_000).cluster_test[0])
    assert abs(error - 9.0) < 0.4  # the variance of the estimate is 2 * 9^2 / 20,000, deviation 0.09


def test_nodes_and_evaluation_sets_of_a_cluster_share_theta():
    data = prepared(noise_std=0.0)
    thetas = [fit(samples)[0] for samples in (*data.node_train, *data.cluster_test, *data.cluster_validation)]
    first, second = thetas[0], thetas[3]
    assert np.abs(first - second).max() > 1
    for found, theta in zip(thetas, [first] * 3 + [second] * 4 + [first, second, first, second], strict=True):
        assert np.allclose(found, theta, atol=1e-3)


def test_parameters_and_features_are_uniform_in_their_ranges():
    data = prepared(noise_std=0.0, features=400, samples_per_node=500, theta_range=2.0, x_range=5.0)
    x = data.node_train[0][0]
    assert -5 <= x.min() < -4.99 and 4.99 < x.max() <= 5
    theta, _ = fit(data.node_train[0])
    assert 1.8 < np.abs(theta).max() < 2.01


def test_theta_depends_on_the_seed_and_not_on_the_number_of_nodes():
    make = SyntheticRegression(noise_std=0.0)
    same = make.generate(SimpleNamespace(clusters=(9, 4)), 0)
    base, other = make.generate(NODES, 0), make.generate(NODES, 1)
    assert np.array_equal(base.test_labels, same.test_labels)
    assert not np.allclose(base.test_labels, other.test_labels)


def test_without_domains_every_node_gets_a_mixture():
    data = prepared(Random())
    assert [len(labels) for _, labels in data.cluster_test] == [2000, 2000]
