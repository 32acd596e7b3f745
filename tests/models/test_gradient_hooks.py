"""Hooks on gradients of parameters: supported in training or refused."""

import pytest
from torch import nn

from ddlsim.foundation.errors import ScenarioError
from ddlsim.learning.architecture import read_architecture
from ddlsim.models.from_python import model_from_python


class Scaled(nn.Sequential):
    """A network with a hook that scales its last gradient."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 10))
        self[1].weight.register_hook(lambda gradient: gradient / 10)


def test_module_with_gradient_hooks_is_refused():
    with pytest.raises(
        ScenarioError, match=r"1\.weight of this Scaled has a hook on its gradient.* Give the class, or"
    ):
        model_from_python(Scaled())
    assert model_from_python(Scaled).build((1, 28, 28), 10)[1].weight._backward_hooks


def test_post_accumulate_hook_is_refused():
    class Hooked(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Flatten(), nn.Linear(784, 10))
            self[1].bias.register_post_accumulate_grad_hook(lambda bias: bias.grad.zero_())

    with pytest.raises(ScenarioError, match=r"1\.bias of Hooked has a post-accumulate gradient hook"):
        read_architecture("Hooked", Hooked)
