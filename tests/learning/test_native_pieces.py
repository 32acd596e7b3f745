"""A native plan trains batches of many images in pieces without changing results."""

import numpy as np
import pytest
import torch
from local_training import local_training
from torch import nn
from torch.nn import functional

from ddlsim.learning.architecture import read_architecture
from ddlsim.learning.backends.native_plan import NativePlan
from ddlsim.learning.backends.workspace import ModelWorkspace, local_steps
from ddlsim.learning.dropout import dropout_keys, seed_dropouts
from ddlsim.learning.training_inputs import Batches
from ddlsim.models.split import SplitModel

SHAPE, SAMPLES = (3, 32, 32), 60


def net() -> SplitModel:
    """Return a network that stores 390 KB per image (pieces of 5), with dropout before and between linear layers."""
    convs = [nn.Conv2d(3, 32, 5, padding=2), nn.GroupNorm(2, 32), nn.ReLU(), nn.MaxPool2d(2)]
    convs += [nn.Conv2d(32, 24, 3), nn.ReLU(), nn.MaxPool2d(2)]
    features = [nn.Flatten(), nn.Dropout(0.2), nn.Linear(24 * 49, 20), nn.ReLU(), nn.Dropout(0.5)]
    return SplitModel(nn.Sequential(*convs, *features), nn.Sequential(nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 4)))


@pytest.mark.parametrize("only", [None, "core", "head"])
@pytest.mark.parametrize("sizes", [(23, 60, 2), (5, 6, 4)])
def test_batches_of_many_images_train_as_with_pytorch(isa, only, sizes):
    torch.manual_seed(1)
    workspace = ModelWorkspace(read_architecture("net", net), torch.device("cpu"))
    workspace.flat.copy_(workspace.layout.flatten(net(), "model"))
    images, labels = torch.randn(SAMPLES, *SHAPE), torch.randint(0, 4, (SAMPLES,))
    batches = Batches.of([np.random.default_rng(size).permutation(SAMPLES)[:size] for size in sizes])
    training, rates, start = local_training(learning_rate=0.05), [0.05] * len(sizes), workspace.flat.clone()
    seed_dropouts(list(workspace.dropouts.values()), 3)
    forward = lambda x, y: functional.cross_entropy(workspace.module(x), y)  # noqa: E731
    local_steps(workspace, [(images[rows], labels[rows]) for rows in batches], training, forward, only, rates=rates)
    expected = workspace.flat.clone()
    workspace.flat.copy_(start)
    keys = dropout_keys(len(workspace.dropouts), 3)
    plan = NativePlan(workspace.module, workspace.layout, workspace.flat, SHAPE)
    plan.train(images, labels, batches, training, only, None, rates, dropout_keys=keys)
    for entry in workspace.layout.parts[
        "model"
    ].entries:  # as a whole: rounding may change the largest pixel of a window
        columns = slice(entry.start, entry.stop)
        moved, apart = (expected - start)[columns].norm(), (workspace.flat - expected)[columns].norm()
        assert apart <= 0.02 * moved and (moved > 0) == (only is None or entry.name.startswith(only)), entry.name


def test_weights_on_the_border_only_have_no_gradient(isa):
    def small() -> SplitModel:
        layers = [nn.Conv2d(16, 32, 5, padding=2), nn.GroupNorm(2, 32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        return SplitModel(nn.Sequential(*layers), nn.Linear(32, 4))

    torch.manual_seed(1)
    workspace = ModelWorkspace(read_architecture("net", small), torch.device("cpu"))
    workspace.flat.copy_(workspace.layout.flatten(small(), "model"))
    before = workspace.module.core[0].weight.detach().clone()
    images, labels = torch.randn(6, 16, 2, 2), torch.randint(0, 4, (6,))
    plan = NativePlan(workspace.module, workspace.layout, workspace.flat, (16, 2, 2))
    training = local_training(learning_rate=1.0)
    plan.train(images, labels, Batches.of([np.arange(6)]), training, None, None, [1.0])
    moved = workspace.module.core[0].weight.detach() != before
    assert moved[:, :, 1:4, 1:4].any() and not moved[:, :, [0, 4]].any() and not moved[..., [0, 4]].any()
