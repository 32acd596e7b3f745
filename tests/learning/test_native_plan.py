"""Native plans train as PyTorch does, on every instruction set, and refuse layers that they cannot compute."""

import copy
import math

import numpy as np
import pytest
import torch
from local_training import local_training
from native_plans import SGD, plan_of, workspace_of
from torch import nn
from torch.nn import functional as F

from ddlsim.learning.backends.native_plan import NoPlan, network_of
from ddlsim.learning.backends.workspace import local_steps
from ddlsim.learning.layout import Layout
from ddlsim.learning.training_inputs import Batches
from ddlsim.models import MODELS
from ddlsim.models.split import SplitModel

LAST = {"clip_value": 0.001, "label_smoothing": 0.3, "proximal": 2}


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
        assert (not learner.fallback_counts) == (switch == "1")
        found.append((torch.cat([params.values() for params in model]), losses.value, test.value[0]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-4)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4)
    assert np.array_equal(found[0][2].confusion, found[1][2].confusion)
