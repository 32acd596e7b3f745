"""Nodes of several architectures in one learner: the same numbers as separately, and merges of common parts."""

import numpy as np
import pytest
import torch
from torch import nn

from ddlsim.foundation.errors import DataMissing, DdlsimError, ScenarioError
from ddlsim.learning.architecture import read_architecture
from ddlsim.models.split import SplitModel


class Wide(nn.Module):
    """One convolution with BatchNorm; 144 features as the tiny net, other core, same head."""

    def __init__(self):
        super().__init__()
        self.core = nn.Sequential(
            nn.Conv2d(2, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(64, 144)
        )
        self.head = nn.Linear(144, 3)

    def forward(self, x):
        return self.head(self.core(x))


class WithExtra(Wide):
    """Like Wide, with one more part."""

    extra_parts = ("projection",)

    def __init__(self):
        super().__init__()
        self.projection = nn.Linear(144, 5)


@pytest.fixture
def mixed(make_learner, tiny_net):
    return make_learner(builders={"tiny": tiny_net, "wide": Wide}, assigned=["tiny", "wide", "tiny"])


def rng(node):
    return np.random.default_rng(100 + node)


def train_all(learner, steps=(5, 3, 5)):
    trained = [
        learner.train(node, learner.init_models(node, node=node)[0], steps[node], rng(node)) for node in range(3)
    ]
    learner.jobs.force_params([params for model in trained for params in model])
    return trained


@pytest.mark.parametrize("waves", ["threads", "stacked"])
def test_mixed_wave_equals_separate_architectures(mixed, make_learner, tiny_net, as_on_a_gpu, waves):
    if waves == "stacked":
        as_on_a_gpu(mixed)
    trained = train_all(mixed)
    assert mixed.jobs.waves["training"] == [3]
    for name, build, nodes in (("tiny", tiny_net, (0, 2)), ("wide", Wide, (1,))):
        alone = make_learner(builders={name: build})
        for node in nodes:
            model = alone.train(node, alone.init_models(node)[0], (5, 3, 5)[node], rng(node))
            alone.jobs.force_params(model)
            for own, other in zip(trained[node], model, strict=True):
                torch.testing.assert_close(own.values(), other.values(), rtol=1e-5, atol=1e-6)


def test_equal_heads_of_unequal_architectures_merge(mixed):
    (core, head), (_, other) = mixed.init_models(0, node=0)[0], mixed.init_models(1, node=1)[0]
    merged = mixed.merge([head, other], [0.25, 0.75])
    mixed.jobs.force_params([merged])
    torch.testing.assert_close(merged.values(), 0.25 * head.values() + 0.75 * other.values())
    ((_, _, confusion),) = mixed.value(mixed.test([(core, merged)], 0))
    assert confusion.sum() == 25


def test_merging_unequal_cores_names_architectures_and_nodes(mixed):
    cores = [mixed.init_models(node, node=node)[0][0] for node in range(3)]
    with pytest.raises(DdlsimError, match=r"core of wide \(node 1\) .* core of tiny \(nodes 0, 2\)"):
        mixed.merge(cores, [1 / 3] * 3)


def test_losses_of_models_of_other_architectures(mixed):
    models = [mixed.init_models(node, node=node)[0] for node in range(3)]
    found = mixed.value(mixed.losses(0, models, 2, rng(0), common=True))
    for node, loss in enumerate(found):
        assert mixed.value(mixed.losses(0, [models[node]], 2, rng(0), common=True)) == [loss]


def test_extra_parts_have_separate_rows(make_learner):
    learner = make_learner(builders={"extra": WithExtra})
    core, head, projection = learner.init_models(0)[0]
    ((whole,),) = learner.init_models(0, whole=True)
    assert (head.size, projection.size) == (144 * 3 + 3, 144 * 5 + 5)
    assert torch.equal(whole.values(), torch.cat([core.values(), head.values(), projection.values()]))
    trained = learner.train(0, (core, head, projection), 3, rng(0), only="projection")
    assert trained[0] is core and trained[1] is head


def test_ddlsim_errors_of_a_model_are_not_rewritten():
    class Stale(nn.Module):
        def forward(self, inputs):
            raise DataMissing("the compiled module is stale")

    build = lambda: SplitModel(nn.Sequential(nn.Linear(2, 2), Stale()), nn.Linear(2, 2))  # noqa: E731
    with pytest.raises(DataMissing, match=r"^the compiled module is stale$"):
        read_architecture("net", build, samples=(torch.zeros(1, 2), torch.zeros(1, dtype=torch.int64)))


class Rotated(nn.Module):
    """This forward would also work with complex weights without an imaginary part."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 2, dtype=torch.complex64))

    def forward(self, inputs):
        return torch.abs(inputs.to(torch.complex64) @ (self.weight + 0j))


def test_complex_parameters_are_refused_unless_frozen():
    def build(trained=True):
        return SplitModel(Rotated().requires_grad_(trained), nn.Linear(2, 2))

    with pytest.raises(ScenarioError, match=r"core\.weight of net is torch\.complex64 on cpu, expected real numbers"):
        read_architecture("net", build)
    assert read_architecture("net", lambda: build(False)).constants["core.weight"].is_complex()
