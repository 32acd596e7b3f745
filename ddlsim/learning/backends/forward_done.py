"""What a module's forward does, operator by operator, and what is hooked on it: values alone do not tell all of it.

A forward may change gradients and no values (a custom autograd function, a detach), or only values that are larger
than those it is tried on (a clamp).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ddlsim.identity import MODULE_HOOKS


def has_hooks(module: nn.Module) -> bool:
    """Whether anything is hooked on a module, its submodules or parameters, or takes the place of a forward."""
    modules = list(module.modules())
    return (
        any(getattr(each, name) for each in modules for name in MODULE_HOOKS)
        or any("forward" in vars(each) for each in modules)
        or gradients_hooked(module)
    )


def gradients_hooked(module: nn.Module) -> bool:
    """Whether a parameter has a hook on its gradient."""
    return any(each._backward_hooks for each in module.parameters())


def done_by(forward: Callable[[torch.Tensor], torch.Tensor], inputs: torch.Tensor) -> list[Any]:
    """The operators of a forward pass with what they are given beside tensors, and the nodes of its gradient.

    Args:
        forward: outputs [n, ...] of inputs.
        inputs: [n, ...].
    """
    with torch.enable_grad(), _Operators() as seen:
        outputs = forward(inputs.clone().requires_grad_())
    return [*seen.called, *(_nodes(outputs.grad_fn) if isinstance(outputs, torch.Tensor) else [type(outputs)])]


class _Operators(TorchFunctionMode):
    """Notes every function of torch and every method of a tensor that is called; properties are only looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") != "__get__":
            plain = [each for each in args if not isinstance(each, torch.Tensor)]
            self.called.append((func, repr(plain), repr(kwargs)))
        return func(*args, **(kwargs or {}))


def _nodes(last: Any) -> list[Any]:
    """The nodes of a gradient from its end, each once; of a parameter the parameter."""
    found: list[Any] = []
    seen, left = set(), [last]
    while left:
        node = left.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        found.append(node.name() if variable is None or not variable.is_leaf else (node.name(), tuple(variable.shape)))
        left += [each for each, _ in node.next_functions]
    return found
