"""Native plans train through batch normalization as PyTorch does, on every instruction set."""

import copy

import numpy as np
import pytest
import torch
from native_plans import SGD, plan_of, workspace_of
from torch import nn
from torch.nn import functional as F

from ddlsim.learning.training_inputs import Batches
from ddlsim.models.split import SplitModel


def batch_norm_net(momentum=0.1) -> SplitModel:
    core = nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1, bias=False),
        nn.BatchNorm2d(5, momentum=momentum),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(5, 16, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.BatchNorm2d(32, eps=1e-3),
        nn.MaxPool2d(2),
        nn.Flatten(),
    )
    return SplitModel(core, nn.Sequential(nn.Dropout(0.2), nn.Linear(32, 3)))


@pytest.mark.parametrize(("buffers", "only"), [("shared", None), ("local", None), ("local", "core"), ("local", "head")])
def test_batch_normalization_equals_pytorch(isa, make_learner, monkeypatch, buffers, only):
    """Values, running statistics and counts of batches after two trainings, and losses with the node's statistics."""
    found = []
    for native_training in ("1", "0"):
        monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", native_training)
        learner = make_learner(builders={"net": batch_norm_net}, buffers=buffers, threads=1)
        model, kept, stream = learner.init_models(0)[0], None, np.random.default_rng(5)
        for _ in range(2):
            model, kept, _ = learner.train_towards(0, model, 6, stream, only, kept, None)
        losses = learner.value(learner.losses(0, [model], 3, np.random.default_rng(6), local_state=kept))
        flat = torch.cat([params.values() for params in model])
        layout = learner.architecture_of(0).layout
        local = {entry.name: entry.view(kept.local.values()) for entry in layout.local.entries}
        found.append((flat, losses, local))
        assert ("native" in learner.fallback_counts) == (native_training == "0"), learner.fallback_counts
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-3, atol=1e-4)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-3)
    for name, values in found[0][2].items():
        torch.testing.assert_close(values, found[1][2][name], rtol=1e-3, atol=1e-4)
        if name.endswith("num_batches_tracked"):
            assert values.item() == (0 if only == "head" else 12)


@pytest.mark.parametrize("batch", [1, 2, 9])
def test_gradients_through_batch_normalization_equal_autograd(isa, batch):
    torch.manual_seed(8)
    build = lambda: SplitModel(  # noqa: E731
        nn.Sequential(
            nn.Conv2d(2, 7, 3), nn.BatchNorm2d(7), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(7, 5, 2), nn.BatchNorm2d(5)
        ).append(nn.Flatten()),
        nn.Linear(5 * 3 * 2, 3),
    )
    workspace = workspace_of(build)
    images, labels, rows = torch.randn(batch, 2, 10, 8), torch.randint(0, 3, (batch,)), np.arange(batch)
    before, local = workspace.flat.clone(), workspace.local.clone()
    plan_of(workspace, (2, 10, 8)).train(images, labels, Batches.of([rows]), SGD, None, None, [1.0])
    found = workspace.flat.clone()
    workspace.flat.copy_(before)
    workspace.local.copy_(local)
    exact = copy.deepcopy(workspace.module).double().train()
    parameters = list(exact.parameters())
    gradients = torch.autograd.grad(F.cross_entropy(exact(images.double()), labels), parameters)
    expected = dict(zip((name for name, _ in exact.named_parameters()), gradients, strict=True))
    buffers = dict(exact.named_buffers())
    for entry in workspace.layout.parts["model"].entries:
        columns = slice(entry.start, entry.stop)
        if entry.trainable:
            ours, theirs = (before - found)[columns].double(), expected[entry.name].flatten()
        else:
            ours, theirs = found[columns].double(), buffers[entry.name].flatten()
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=2e-5)
