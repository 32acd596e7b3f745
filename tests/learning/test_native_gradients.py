"""Native plans have the gradients of PyTorch's autograd, on every instruction set."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from native_plans import SGD, plan_of, workspace_of
from torch import nn
from torch.nn import functional as F

from ddlsim.foundation import native
from ddlsim.learning.backends.workspace import ModelWorkspace
from ddlsim.learning.training_inputs import Batches
from ddlsim.models import MODELS
from ddlsim.models.split import SplitModel


def check_gradients(workspace: ModelWorkspace, shape, batch: int, classes: int) -> None:
    """Compare the gradient (one step of size 1) with autograd in float64; float32 autograd differs by 1e-6 to 3e-6."""
    images, labels = torch.randn(batch + 2, *shape), torch.randint(0, classes, (batch + 2,))
    rows = np.random.default_rng(0).permutation(batch + 2)[:batch]
    before = workspace.flat.clone()
    plan_of(workspace, shape).train(images, labels, Batches.of([rows]), SGD, None, None, [1.0])
    found = (before - workspace.flat).double()
    workspace.flat.copy_(before)
    exact = workspace.module.double()
    loss = F.cross_entropy(exact(images[rows].double()), labels[rows])
    gradients = torch.autograd.grad(loss, list(exact.parameters()))
    for entry, expected in zip(workspace.layout.parts["model"].entries, gradients, strict=True):
        scale = max(before[entry.start : entry.stop].abs().max().item(), expected.abs().max().item(), 0.01)
        ours = found[entry.start : entry.stop].reshape(entry.shape)
        where = lambda text, name=entry.name: f"{name}: {text}"  # noqa: E731
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5 * scale, msg=where)


def check_core(workspace: ModelWorkspace, shape, batch: int) -> None:
    """Compare the features of the native core, and gradients of their product with random ones, with float64."""
    images, before = torch.randn(batch, *shape), workspace.flat.clone()
    parameters = list(workspace.module.core.parameters())
    with workspace.native_core(images):
        features = workspace.module.core(images)
        grad_out = torch.randn_like(features)
        found = torch.autograd.grad(features, parameters, grad_out)
    exact = workspace.module.core.double()
    expected = exact(images.double())
    torch.testing.assert_close(features.double(), expected, rtol=1e-4, atol=1e-5 * expected.abs().max().item())
    gradients = torch.autograd.grad(expected, list(exact.parameters()), grad_out.double())
    for ours, theirs in zip(found, gradients, strict=True):
        scale = max(before.abs().max().item(), theirs.abs().max().item())
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5 * scale)


@st.composite
def networks(draw):
    """Return (shape, classes, batch, layers of core and head) of any network that a plan supports."""
    channels, height, width = draw(st.sampled_from([1, 2, 3])), draw(st.integers(5, 19)), draw(st.integers(5, 19))
    shape, core = (channels, height, width), []
    for _ in range(draw(st.integers(0, 3))):
        kernel = (draw(st.sampled_from([1, 2, 3, 5])), draw(st.sampled_from([1, 3, 5])))
        padding = tuple(draw(st.sampled_from([0, size // 2, size - 1])) for size in kernel)
        rows, columns = height + 2 * padding[0] - kernel[0] + 1, width + 2 * padding[1] - kernel[1] + 1
        if min(rows, columns) < 2:
            break
        groups = draw(st.sampled_from([0, 1, 2, 3]))
        out = draw(st.sampled_from([1, 2, 4, 7])) * max(1, groups) if draw(st.booleans()) else 16 * max(1, groups)
        core.append(nn.Conv2d(channels, out, kernel, padding=padding, bias=draw(st.booleans())))
        relu, pool = draw(st.booleans()), draw(st.booleans())
        layers = [layer for layer, wanted in ((nn.ReLU(), relu), (nn.MaxPool2d(2), pool)) if wanted]
        core += [*([nn.GroupNorm(groups, out)] if groups else []), *layers[:: draw(st.sampled_from([1, -1]))]]
        channels, height, width = out, rows // (1 + pool), columns // (1 + pool)
    core.append(nn.Flatten())
    inputs = channels * height * width
    for _ in range(draw(st.integers(0, 2))):
        out = draw(st.sampled_from([3, 16, 21]))
        core += [nn.Linear(inputs, out), *([nn.ReLU()] if draw(st.booleans()) else [])]
        inputs = out
    classes = draw(st.sampled_from([2, 10, 17]))
    return shape, classes, draw(st.sampled_from([1, 2, 8, 17])), core, [nn.Linear(inputs, classes)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(networks())
def test_gradients_of_any_network_equal_autograd(network):
    shape, classes, batch, core, head = network
    best = native.extension().isa()
    try:
        for name in native.extension().isas():
            native.extension().set_isa(name)
            torch.manual_seed(1)
            build = lambda: copy.deepcopy(SplitModel(nn.Sequential(*core), nn.Sequential(*head)))  # noqa: E731
            check_gradients(workspace_of(build), shape, batch, classes)
            if isinstance(core[0], nn.Conv2d):
                check_core(workspace_of(build), shape, batch)
    finally:
        native.extension().set_isa(best)


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("cifar_cnn", (3, 32, 32)),
        ("fashion_cnn", (1, 28, 28)),
        ("gn_lenet", (3, 32, 32)),
        ("gn_lenet", (1, 28, 28)),
        ("mlp", (1, 28, 28)),
        ("linear", (2, 3, 3)),
    ],
)
def test_shipped_models_agree_on_every_instruction_set(isa, model, shape):
    torch.manual_seed(2)
    workspace = workspace_of(lambda: MODELS[model]().build(shape, 10))
    images = torch.randn(70, *shape)  # more than the plan takes at a time
    plan = plan_of(workspace, shape)
    with torch.no_grad():
        expected = workspace.module.eval()(images)
    torch.testing.assert_close(plan.outputs(plan.features(images)), expected, rtol=1e-4, atol=1e-5)
    check_gradients(workspace, shape, 5, 10)


@pytest.mark.parametrize(
    ("size", "padding", "batch", "channels"),
    [
        ((5, 5), 0, 7, (16, 48)),
        ((7, 9), 2, 1, (3, 6)),
        ((17, 18), (4, 1), 7, (2, 20)),
        ((33, 31), 2, 1, (16, 48)),
        ((33, 31), 2, 7, (3, 6)),
    ],
)
def test_convolutions_in_tiles_have_autograds_gradients(isa, size, padding, batch, channels):
    """5x5 kernels on many and few channels, and images with fewer and more tiles than one sum."""
    torch.manual_seed(6)
    inputs, between = channels
    convs = nn.Conv2d(inputs, between, 5, padding=padding), nn.Conv2d(between, 16, 5, padding=4)
    core = nn.Sequential(convs[0], nn.ReLU(), convs[1], nn.Flatten())
    with torch.no_grad():
        features = core(torch.zeros(1, inputs, *size)).shape[1]
    workspace = workspace_of(lambda: copy.deepcopy(SplitModel(core, nn.Linear(features, 3))))
    check_gradients(workspace, (inputs, *size), batch, 3)


def test_first_of_equal_pixels_gets_the_gradient(isa):
    workspace = workspace_of(
        lambda: SplitModel(nn.Sequential(nn.Conv2d(1, 3, 1), nn.MaxPool2d(2), nn.Flatten()), nn.Linear(3 * 4, 2))
    )
    image = torch.arange(16.0).reshape(1, 1, 4, 4)
    image[0, 0, 0, 1] = image[0, 0, 0, 0] = 9.0  # of this window the largest, and equal
    with torch.no_grad():
        workspace.module.core[0].weight.fill_(1.0)
        workspace.module.core[0].bias.zero_()
    before = workspace.flat.clone()
    plan_of(workspace, (1, 4, 4)).train(image, torch.tensor([1]), Batches.of([np.array([0])]), SGD, None, None, [1.0])
    found = before - workspace.flat
    workspace.flat.copy_(before)
    loss = F.cross_entropy(workspace.module(image), torch.tensor([1]))
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(workspace.module.parameters()))])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
