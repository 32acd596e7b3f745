"""The native core under a loss of PyTorch trains and evaluates as PyTorch alone does."""

import copy

import numpy as np
import pytest
import torch
from native_plans import workspace_of
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from ddlsim.learning import losses
from ddlsim.learning.backends.native_core import NativeCore
from ddlsim.learning.dropout import seed_dropouts
from ddlsim.learning.training_inputs import LocalStep, Objective
from ddlsim.models.split import SplitModel

IMAGES = torch.randn(7, 2, 6, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0])


class Projected(SplitModel):
    """Has a third part, and a head that no plan covers."""

    extra_parts = ("projection",)

    def __init__(self, *layers):
        core = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), *layers, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
        super().__init__(core, nn.Sequential(nn.Tanh(), nn.Linear(36, 3)))
        self.projection = nn.Linear(36, 5)


def with_noise():
    torch.manual_seed(3)
    made = Projected(nn.BatchNorm2d(4))
    made.core.append(nn.Dropout(0.4))
    return made


def contrast(step: LocalStep) -> torch.Tensor:
    features = step.module.core(step.images)
    step.collect(features, step.labels)
    projected = losses.supervised_contrastive(step.module.projection(features), step.labels, 0.5)
    start = [step.start[f"head.{name}"] for name, _ in step.module.head.named_parameters()]
    near = losses.proximity(step.module.head.parameters(), start)
    return step.task_loss(step.module.head(features), step.labels) + projected + near


SETTINGS = [
    ({}, None),
    ({"accumulate": 2, "clip_norm": 0.5, "proximal": 0.1}, None),
    ({"optimizer": "adam", "eps": 0.01, "learning_rate": 1e-3, "optimizer_state": "kept"}, None),
    ({"augmentation": "crop_flip", "optimizer": {"name": "sgd", "momentum": 0.9, "nesterov": True}}, None),
    ({}, "core"),
    ({}, "head"),
]


@pytest.mark.parametrize(("changes", "only"), SETTINGS)
def test_algorithms_losses_train_natively_as_by_pytorch(make_learner, monkeypatch, changes, only):
    found, calls, forward = [], [], NativeCore.forward
    monkeypatch.setattr(NativeCore, "forward", lambda *args: calls.append(args) or forward(*args))
    for switch in ("1", "0"):
        monkeypatch.setenv("DDLSIM_NATIVE_TRAINING", switch)
        learner = make_learner(builders={"net": with_noise}, assigned=["net"] * 3, **changes)
        rng, kept, model = np.random.default_rng(5), None, learner.init_models(0)[0]
        objective = Objective(contrast, views=2, class_means=True, keeps_start=True)
        for _ in range(2):
            model, kept, means = learner.train_towards(0, model, 4, rng, only, kept, objective)
        tested = learner.test([model], 0)
        rows = [*model, *means.values()]
        learner.jobs.force_params(rows)
        learner.jobs.force([tested])
        assert set(learner.paths) == {"native" if switch == "1" else "one by one"}
        found.append((torch.cat([params.values() for params in rows]), tested.value[0].loss))
    assert len(calls) == 2 * 4 + 3  # mini-batches, and chunks of the 25 test samples
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=2e-4 if "optimizer" in changes else 1e-5)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4)


def by_functional_call(module, start):
    """A teacher's features by the same module, and gradients of both."""
    teacher = functional_call(module, start, (IMAGES,))
    return F.mse_loss(module(IMAGES), teacher.detach()) + F.cross_entropy(teacher, LABELS)


def copied(module, start):
    other = copy.deepcopy(module)
    with torch.no_grad():
        other.core[0].weight.mul_(2)
    return F.mse_loss(module.core(IMAGES), other.core(IMAGES))


def adversarial(module, start):
    images = IMAGES.clone().requires_grad_()
    (direction,) = torch.autograd.grad(F.cross_entropy(module(images), LABELS), images)
    return F.cross_entropy(module(IMAGES + 0.1 * direction.sign()), LABELS)


def penalized(module, start):
    loss = F.cross_entropy(module(IMAGES), LABELS)
    gradients = torch.autograd.grad(loss, list(module.core.parameters()), create_graph=True)
    return loss + sum(gradient.square().sum() for gradient in gradients)


def twice(module, start):
    """The first call's gradients after the second call, and after a third one without gradients."""
    first, second = module.core(IMAGES), module.core(IMAGES.flip(3)[:4])
    with torch.no_grad():
        module.core(IMAGES[:2])
    return F.cross_entropy(module.head(first), LABELS) + second.square().mean()


def in_evaluation_mode(module, start):
    module.core.eval()
    loss = module.core(IMAGES).square().mean()
    module.core.train()
    return loss


def inner_layer_hooked(module, start):
    seen = []
    handle = module.core[0].register_forward_hook(lambda layer, given, found: seen.append(found))
    loss = module(IMAGES).square().mean() + seen[0].square().mean() if module.core(IMAGES) is not None else None
    handle.remove()
    return loss


LOSSES = [by_functional_call, copied, adversarial, penalized, twice, in_evaluation_mode, inner_layer_hooked]


@pytest.mark.parametrize("loss_of", LOSSES)
@pytest.mark.parametrize("build", [with_noise, lambda: Projected(nn.GroupNorm(2, 4))])
def test_unusual_losses_have_pytorchs_gradients_and_statistics(build, loss_of):
    workspace = workspace_of(build)
    module, values = workspace.module.train(), workspace.flat.clone()
    parameters, results = workspace.trained(), []
    start = {name: 0.9 * parameter.detach() for name, parameter in module.named_parameters()}
    for native in (True, False):
        workspace.flat.copy_(values)
        workspace.local.copy_(workspace.values_of_local(None))
        seed_dropouts(workspace.dropouts.values(), 11)
        if native:
            with workspace.native_core(IMAGES):
                loss = loss_of(module, start)
                gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        else:
            gradients = torch.autograd.grad(loss_of(module, start), parameters, materialize_grads=True)
        counters = [int(dropout.counter) for dropout in workspace.dropouts.values()]
        results.append((gradients, workspace.flat.clone(), workspace.local.clone(), counters))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    assert "forward" not in vars(module.core)
