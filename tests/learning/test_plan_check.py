"""Networks that compute or learn something else than their layers say get no native plan, those beside them do."""

import copy

import pytest
import torch
from torch import nn

from ddlsim.kernels.group_norm_pool import GroupNormReLUPool
from ddlsim.learning.architecture import read_architecture
from ddlsim.learning.backends.workspace import ModelWorkspace
from ddlsim.models.split import SplitModel

IMAGES = torch.zeros(1, 2, 6, 6)


def why_no_plan(build):
    return ModelWorkspace(read_architecture("net", build), torch.device("cpu")).why_no_plan(IMAGES)


class Frozen(SplitModel):
    """Its normalization stays as it is in evaluation."""

    def train(self, mode=True):
        super().train(mode)
        for layer in self.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
        return self


class Otherwise(SplitModel):
    """Its forward is a function of core, head and samples."""

    forward_is: object = None

    def forward(self, x):
        return type(self).forward_is(self.core, self.head, x)


class Tenth(torch.autograd.Function):
    """The same values, a tenth of the gradient."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad / 10


def convolved(*layers):
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), *layers, nn.Flatten())


def linear():
    return nn.Linear(144, 3)


def otherwise(forward):
    def build():
        return type("Other", (Otherwise,), {"forward_is": staticmethod(forward)})(convolved(nn.ReLU()), linear())

    return build


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
        otherwise(lambda core, head, x: head(core(x).detach())),
        otherwise(lambda core, head, x: head(Tenth.apply(core(x)))),
        otherwise(lambda core, head, x: head(core(x.clamp(-1, 1)))),
        otherwise(lambda core, head, x: head(core(x).clamp(max=99))),
        otherwise(lambda core, head, x: head(core(x)).clamp(-999, 999)),
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
def test_what_its_layers_do_not_say_keeps_a_network_from_a_plan(build):
    assert why_no_plan(build)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), nn.GroupNorm(2, 4), GroupNormReLUPool(2, 4), nn.Identity()])
def test_the_same_networks_without_it_have_a_plan(norm):
    layers = [] if isinstance(norm, nn.Identity) else [norm]
    inputs = 36 if isinstance(norm, GroupNormReLUPool) else 144
    build = lambda: copy.deepcopy(SplitModel(convolved(*layers), nn.Linear(inputs, 3)))  # noqa: E731
    assert not why_no_plan(build)
