"""Native plans compute what PyTorch computes: gradients, trainings, features and outputs, on every instruction set."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from local_training import local_training
from torch import nn
from torch.nn import functional as F

from ddlsim.foundation import native
from ddlsim.kernels.group_norm_pool import GroupNormReLUPool
from ddlsim.learning.architecture import read_architecture
from ddlsim.learning.backends.native_plan import NativePlan, NoPlan, network_of
from ddlsim.learning.backends.workspace import ModelWorkspace, local_steps
from ddlsim.learning.batches import Batches
from ddlsim.learning.layout import Layout
from ddlsim.models import MODELS
from ddlsim.models.split import SplitModel

SGD = local_training(learning_rate=1.0)
LAST = {"clip_value": 0.001, "label_smoothing": 0.3, "proximal": 2}


def workspace_of(build) -> ModelWorkspace:
    """Return a workspace with random values; those of a normalization differ from 1 and 0."""
    workspace = ModelWorkspace(read_architecture("net", build), torch.device("cpu"))
    module = build()
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.GroupNorm | GroupNormReLUPool):
                layer.weight.normal_()
                layer.bias.normal_()
    workspace.flat.copy_(workspace.layout.flatten(module, "model"))
    return workspace


def plan_of(workspace: ModelWorkspace, shape) -> NativePlan:
    return NativePlan(network_of(workspace.module, workspace.layout), workspace.flat, shape)


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
        fused, pool = draw(st.booleans()) and groups > 0, draw(st.booleans())
        if groups:
            core.append(GroupNormReLUPool(groups, out) if fused else nn.GroupNorm(groups, out))
        if not fused:
            core += [layer for layer, wanted in ((nn.ReLU(), draw(st.booleans())), (nn.MaxPool2d(2), pool)) if wanted]
        channels, height, width = out, rows // (1 + (pool or fused)), columns // (1 + (pool or fused))
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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"momentum": 0.9, "weight_decay": 0.01},
        {"weight_decay": 0.1},
        {"optimizer": "adam", "learning_rate": 1e-3},
        {"optimizer": "adam", "learning_rate": 1e-3, "weight_decay": 0.1, "betas": (0.8, 0.99)},
        {"optimizer": "adamw", "learning_rate": 1e-3, "weight_decay": 10, "eps": 1e-4, "weight_decay_on": "weights"},
        {"momentum": 0.5, "weight_decay": 1, "weight_decay_on": "weights", "clip_norm": 0.5},
        LAST,
    ],
)
def test_training_equals_pytorch_for_native_plans(isa, changes):
    for only in (None, "core", "head") if changes in ({}, LAST) else (None,):
        check_training(changes, only)


def check_training(changes, only) -> None:
    torch.manual_seed(3)
    workspace = workspace_of(lambda: MODELS["fashion_cnn"]().build((1, 28, 28), 10))
    images, labels = torch.randn(30, 1, 28, 28), torch.randint(0, 10, (30,))
    batches = Batches.of([*np.random.default_rng(0).permutation(40).reshape(5, 8) % 30, np.array([3, 1, 2])])
    training = local_training(**{"learning_rate": 0.02} | changes)
    control = 0.1 * torch.randn_like(workspace.flat) if only is None and "proximal" in changes else None
    start, rates = workspace.flat.clone(), [training.learning_rate / (1 + step) for step in range(len(batches))]
    local_steps(
        workspace,
        [(images[batch], labels[batch]) for batch in batches],
        training,
        lambda x, y: F.cross_entropy(workspace.module(x), y, label_smoothing=training.label_smoothing),
        only,
        rates=rates,
        proximal=training.proximal,
        control=control,
    )
    expected = workspace.flat.clone()
    workspace.flat.copy_(start)
    plan_of(workspace, (1, 28, 28)).train(
        images, labels, batches, training, only, None, rates, training.proximal, control
    )
    # Adam divides by the gradient's size: if that is rounding, so is the direction of a step of size 1e-3
    torch.testing.assert_close(workspace.flat, expected, rtol=1e-4, atol=1e-5 if "optimizer" not in changes else 2e-4)
    moved = (workspace.flat != start).nonzero().flatten()
    core = workspace.layout.parts["core"].size
    assert (moved.max() >= core, moved.min() < core) == (only in (None, "head"), only in (None, "core"))


def test_of_equal_pixels_the_first_gets_the_gradient(isa):
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


def test_normalization_is_exact_with_a_large_offset(isa):
    workspace = workspace_of(
        lambda: SplitModel(nn.Sequential(nn.Conv2d(1, 4, 1), nn.GroupNorm(2, 4), nn.Flatten()), nn.Linear(4 * 64, 2))
    )
    images = torch.randn(3, 1, 8, 8)
    with torch.no_grad():
        workspace.module.core[0].weight.fill_(1.0)
        workspace.module.core[0].bias.fill_(1000.0)
        expected = workspace.module.double()(images.double())
    plan = plan_of(workspace, (1, 8, 8))
    torch.testing.assert_close(plan.outputs(plan.features(images)).double(), expected, atol=2e-3, rtol=0)


def test_a_nan_is_not_hidden(isa):
    workspace = workspace_of(lambda: MODELS["fashion_cnn"]().build((1, 28, 28), 10))
    images = torch.randn(2, 1, 28, 28)
    images[1, 0, 5, 5] = torch.nan
    plan = plan_of(workspace, (1, 28, 28))
    found = plan.outputs(plan.features(images))
    assert torch.isfinite(found[0]).all() and torch.isnan(found[1]).all()


def test_plan_keeps_no_state_between_trainings():
    images, labels = torch.randn(20, 3, 32, 32), torch.randint(0, 10, (20,))
    workspace = workspace_of(lambda: MODELS["cifar_cnn"]().build((3, 32, 32), 10))
    start, plan, found = workspace.flat.clone(), plan_of(workspace, (3, 32, 32)), []
    for batches in ([np.arange(8)], [np.arange(20)], [np.arange(8)]):
        workspace.flat.copy_(start)
        plan.train(images, labels, Batches.of(batches), SGD, None, None, [1.0] * len(batches))
        plan.outputs(plan.features(images))
        found.append(workspace.flat.clone())
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("held", [math.nan, math.inf, 1e30])
def test_diverged_training_does_not_affect_the_next(isa, held):
    core = [
        nn.Conv2d(1, 6, 5, padding=2),
        nn.GroupNorm(2, 6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 20, 5, padding=2),
    ]
    workspace = workspace_of(
        lambda: SplitModel(
            nn.Sequential(*copy.deepcopy(core), nn.ReLU(), nn.Flatten(), nn.Linear(20 * 36, 9), nn.ReLU()),
            nn.Linear(9, 3),
        )
    )
    images, labels, batches = torch.randn(8, 1, 12, 12), torch.randint(0, 3, (8,)), Batches.of([np.arange(8)] * 2)
    start, plan, found = workspace.flat.clone(), plan_of(workspace, (1, 12, 12)), []
    for values in (start, torch.full_like(start, held), start):
        workspace.flat.copy_(values)
        plan.train(images, labels, batches, SGD, None, None, [0.1, 0.1])
        found.append((workspace.flat.clone(), plan.outputs(plan.features(images))))
    assert not found[1][0].isfinite().all()
    assert torch.equal(found[2][0], found[0][0]) and torch.equal(found[2][1], found[0][1])


@pytest.mark.parametrize(
    ("norm", "optimizer"), [(nn.GroupNorm(2, 4), "sgd"), (nn.BatchNorm2d(4), "adam"), (None, "sgd")]
)
def test_layers_without_bias_learn_none(isa, norm, optimizer):
    def build():
        conv = [nn.Conv2d(2, 4, 3, padding=1, bias=False), *([copy.deepcopy(norm)] if norm else []), nn.ReLU()]
        return SplitModel(nn.Sequential(*conv, nn.Flatten()), nn.Linear(4 * 36, 3, bias=False))

    torch.manual_seed(4)
    workspace, training = workspace_of(build), local_training(optimizer=optimizer, learning_rate=0.01)
    images, labels, rates = torch.randn(12, 2, 6, 6), torch.randint(0, 3, (12,)), [0.01] * 6
    batches = Batches.of([np.arange(4) + 4 * (step % 3) for step in range(6)])
    start = workspace.flat.clone()
    seen = [(images[batch], labels[batch]) for batch in batches]
    local_steps(workspace, seen, training, lambda x, y: F.cross_entropy(workspace.module(x), y), None, rates=rates)
    expected = workspace.flat.clone()
    with torch.no_grad():
        outputs = workspace.module.eval()(images)
    workspace.flat.copy_(start)
    plan = plan_of(workspace, (2, 6, 6))
    plan.train(images, labels, batches, training, None, None, rates)
    torch.testing.assert_close(workspace.flat, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(plan.outputs(plan.features(images)), outputs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("core", "what"),
    [
        (nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.Flatten()), "stride"),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, momentum=None), nn.Flatten()), "averages them"),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.MaxPool2d(2, stride=1), nn.Flatten()), "2x2"),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.GroupNorm(2, 4), nn.Flatten()), "directly"),
        (nn.Sequential(nn.Flatten(), nn.Dropout(0.5)), "draws from"),
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sigmoid(), nn.Flatten()), "Sigmoid"),
    ],
)
def test_pytorch_computes_other_layers(core, what):
    module = SplitModel(core, nn.Linear(4, 2))
    with pytest.raises(NoPlan, match=what):
        network_of(module, Layout("net", module))


def test_repeated_layer_has_no_plan():
    layer = nn.Linear(4, 4)
    core = nn.Sequential(nn.Flatten(), nn.Sequential(layer, nn.ReLU()), nn.Sequential(layer, nn.ReLU()))
    module = SplitModel(core, nn.Linear(4, 2))
    with pytest.raises(NoPlan, match="comes several times"):
        network_of(module, Layout("net", module))


def test_images_of_unsuitable_size_have_no_plan():
    workspace = workspace_of(lambda: MODELS["cifar_cnn"]().build((3, 32, 32), 10))
    with pytest.raises(NoPlan, match="does not fit"):
        plan_of(workspace, (3, 28, 28))


def test_module_with_code_outside_its_parts_has_no_plan():
    class Scaled(SplitModel):
        def forward(self, images):
            return 2 * super().forward(images)

    workspace = workspace_of(lambda: Scaled(nn.Flatten(), nn.Linear(4, 2)))
    assert workspace.plan(torch.zeros(1, 1, 2, 2)) is None


@pytest.mark.parametrize("bad", [{"rows": [4]}, {"label": 2}, {"label": -1}])
def test_missing_row_or_label_is_refused_without_changes(bad):
    workspace = workspace_of(lambda: SplitModel(nn.Flatten(), nn.Linear(4, 2)))
    labels = torch.tensor([0, 1, 1, bad.get("label", 0)])
    before = workspace.flat.clone()
    with pytest.raises(IndexError):
        rows = np.array(bad.get("rows", [3]))
        plan_of(workspace, (1, 2, 2)).train(torch.ones(4, 1, 2, 2), labels, Batches.of([rows]), SGD, None, None, [1.0])
    assert torch.equal(before, workspace.flat)


@pytest.mark.parametrize("optimizer_state", ["fresh", "kept"])
def test_runs_with_and_without_plans_see_the_same_batches(make_learner, monkeypatch, optimizer_state):
    found = []
    for switch in ("1", "0"):
        monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", switch)
        learner = make_learner(optimizer="adam", learning_rate=0.01, optimizer_state=optimizer_state)
        rng, kept, model = np.random.default_rng(5), None, learner.init_models(0)[0]
        for only in (None, "head", None):
            model, kept = learner.train_towards(0, model, 6, rng, only, kept, None)[:2]
        losses = learner.losses(0, [model, (model[0], learner.init_models(1)[0][1])], 4, rng, common=True)
        test = learner.test([model], 0)
        learner.jobs.force([losses, test])
        assert (not learner.detours) == (switch == "1")
        found.append((torch.cat([params.values() for params in model]), losses.value, test.value[0]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-4)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4)
    assert np.array_equal(found[0][2].confusion, found[1][2].confusion)


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
        assert ("native" in learner.detours) == (native_training == "0"), learner.detours
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
