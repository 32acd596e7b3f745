"""Dropout: the same masks for a node, however the work is grouped."""

import numpy as np
import pytest
import torch
from torch import nn

from ddlsim.errors import ScenarioError
from ddlsim.learning.dropout import OwnDropout, draws_noise, own_dropouts, seed_dropouts
from ddlsim.learning.layout import Layout
from ddlsim.models.split import SplitModel


def net(p=0.5):
    return SplitModel(
        nn.Sequential(nn.Flatten(), nn.Linear(72, 16), nn.ReLU(), nn.Dropout(p)),
        nn.Sequential(nn.Dropout(p), nn.Linear(16, 3)),
    )


def rng(node):
    return np.random.default_rng(100 + node)


@pytest.fixture
def train(make_learner):
    """Trains nodes from their own starts; returns their flat values."""

    def train(nodes, threads=2, one_by_one=False, p=0.5, waves=None):
        learner = make_learner(threads=threads, builders={"net": lambda: net(p)})
        if waves:
            waves(learner)
        trained = []
        for node in nodes:
            trained.append(learner.train(node, learner.init_models(node)[0], 5, rng(node)))
            if one_by_one:
                learner.jobs.force_params(trained[-1])
        learner.jobs.force_params([params for model in trained for params in model])
        return [torch.cat([params.values() for params in model]).clone() for model in trained]

    return train


def test_a_dropout_drops_its_share_and_keeps_the_mean():
    dropout = OwnDropout(0.2, torch.device("cpu"))
    dropout.generator.manual_seed(1)
    values = dropout(torch.ones(100_000))
    assert abs((values == 0).float().mean() - 0.2) < 0.01
    assert torch.allclose(values[values > 0], torch.tensor(1.25)) and abs(values.mean() - 1) < 0.01
    assert torch.equal(dropout.eval()(torch.ones(5)), torch.ones(5))


def test_dropouts_of_a_module_are_replaced_and_differ():
    module = net()
    dropouts = own_dropouts(module, torch.device("cpu"))
    assert [type(module.core[3]), type(module.head[0])] == [OwnDropout, OwnDropout]
    seed_dropouts(dropouts, 7)
    first, second = (dropout(torch.ones(50)) for dropout in dropouts)
    assert not torch.equal(first, second)
    seed_dropouts(dropouts, 7)
    assert torch.equal(dropouts[0](torch.ones(50)), first)
    seed_dropouts(dropouts, 8)
    assert not torch.equal(dropouts[0](torch.ones(50)), first)


def test_masks_do_not_depend_on_threads_or_on_grouping(train):
    expected = train([0, 1, 2], threads=1)
    for found in (train([0, 1, 2], threads=2), train([0, 1, 2], one_by_one=True)):
        assert all(torch.equal(one, two) for one, two in zip(expected, found, strict=True))
    assert torch.equal(train([2])[0], expected[2])  # whoever else trains


def test_the_way_of_a_gpu_draws_the_same_masks(train, as_on_a_gpu):
    for one, two in zip(train([0, 1]), train([0, 1], waves=as_on_a_gpu), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


def test_dropout_changes_what_is_learned(train):
    assert not torch.equal(train([0])[0], train([0], p=0.0)[0])


def test_a_node_s_next_training_draws_other_masks(make_learner):
    learner = make_learner(builders={"net": net})
    stream, start = rng(0), learner.init_models(0)[0]
    seeds = []
    submit = learner.jobs.submit
    learner.jobs.submit = lambda job: seeds.append(job.spec.seed) or submit(job)
    for _ in range(2):
        learner.train(0, start, 1, stream)
    assert len(set(seeds)) == 2 and None not in seeds


def test_without_dropout_no_numbers_are_drawn(make_learner):
    learner = make_learner()
    stream, reference = rng(0), rng(0)
    learner.train(0, learner.init_models(0)[0], 3, stream)
    from ddlsim.learning.batches import draw_batches

    draw_batches(reference, 20, 4, 3)
    assert stream.integers(2**62) == reference.integers(2**62)


def test_other_kinds_of_dropout_are_refused():
    with pytest.raises(ScenarioError, match=r"its Dropout2d draws from a generator.*Use nn\.Dropout"):
        Layout("net", SplitModel(nn.Dropout2d(0.1), nn.Linear(1, 1)))
    assert draws_noise(net()) and not draws_noise(net(0.0))
