"""Only a SplitModel of covered layers, without hooks, has a native plan as a whole."""

import copy

import pytest
import torch
from torch import nn

from ddlsim.learning.architecture import read_architecture
from ddlsim.learning.backends.workspace import ModelWorkspace
from ddlsim.models.split import SplitModel

IMAGES = torch.zeros(1, 2, 6, 6)


def has_plan(build):
    return ModelWorkspace(read_architecture("net", build), torch.device("cpu")).plan(IMAGES) is not None


class Frozen(SplitModel):
    """Its normalization stays in evaluation mode."""

    def train(self, mode=True):
        super().train(mode)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
        return self


class OtherForward(SplitModel):
    """Its forward does more than its layers."""

    def forward(self, x):
        return self.head(self.core(x).detach())


def convolved(*layers):
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), *layers, nn.Flatten())


def linear():
    return nn.Linear(144, 3)


def hooked(hook):
    def build():
        made = SplitModel(convolved(nn.ReLU()), linear())
        hook(made)
        return made

    return build


def own_forward(made):
    layer = made.core[0]
    layer.forward = lambda x: type(layer).forward(layer, 2 * x if layer.training else x)


@pytest.mark.parametrize(
    "build",
    [
        lambda: OtherForward(convolved(nn.ReLU()), linear()),
        hooked(lambda made: made.head.weight.register_hook(lambda grad: grad / 2)),
        hooked(lambda made: made.head.register_full_backward_hook(lambda layer, given, found: None)),
        hooked(lambda made: made.head.register_full_backward_pre_hook(lambda layer, found: None)),
        hooked(lambda made: made.core.register_forward_hook(lambda layer, given, found: found.detach())),
        hooked(lambda made: made.core.register_forward_pre_hook(lambda layer, given: None)),
        hooked(lambda made: nn.utils.weight_norm(made.head)),
        hooked(own_forward),
        lambda: Frozen(convolved(nn.BatchNorm2d(4)), linear()),
        lambda: SplitModel(convolved(nn.GroupNorm(2, 4, bias=False)), linear()),
        lambda: SplitModel(nn.Conv2d(2, 4, 3, padding=1), nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), linear())),
        lambda: SplitModel(nn.Conv2d(2, 4, 3, padding=1), nn.Sequential(nn.BatchNorm2d(4), nn.Flatten(), linear())),
    ],
)
def test_model_with_code_outside_its_layers_has_no_plan(build):
    assert not has_plan(build)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.Identity()])
def test_plain_split_model_has_a_plan(norm):
    layers = [] if isinstance(norm, nn.Identity) else [norm]
    build = lambda: copy.deepcopy(SplitModel(convolved(*layers), linear()))  # noqa: E731
    assert has_plan(build)
