"""The core of a module as one native call in each direction, under a head and a loss that PyTorch computes.

Trainings that a plan (native_plan.py) cannot compute as a whole (the algorithm defines the loss, the module has a
projection, gradients are accumulated) spend most of their time in the core. The plan of the core computes its features
and the gradients of its parameters; PyTorch's autograd computes everything else.

A plan holds the state of its last forward pass alone. The backward pass of an earlier one, and gradients that are to be
differentiated again, repeat the forward pass in PyTorch.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ddlsim.learning.backends.native_plan import compiled
from ddlsim.learning.dropout import CounterDropout
from ddlsim.learning.layout import Layout
from ddlsim.learning.training_inputs import CORE
from ddlsim.models.from_python import MODULE_HOOKS


class NativeCore:
    """Replacement of `module.core.forward` within a `with` block. Inputs and states that its plan does not cover go to
    PyTorch.

    For the arguments and errors see NativePlan.
    """

    def __init__(self, module: nn.Module, layout: Layout, flat: Tensor, image_shape: Sequence[int]):
        self._core, self._part, self._flat = module.get_submodule(CORE), layout.parts[CORE], flat
        self._plan = compiled(module, layout, flat, image_shape, (CORE,))
        self._layers = list(self._core.modules())
        flattens = any(type(layer) is nn.Flatten for layer in self._layers)
        self._shape = (math.prod(self._plan.core_shape),) if flattens else tuple(self._plan.core_shape)
        self._dropouts = [layer for layer in module.modules() if type(layer) is CounterDropout]
        self._images = (Tensor, torch.float32, "cpu", torch.Size(image_shape))
        self._addresses, self._calls = self._present_addresses(), 0

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features of images [n, C, H, W]."""
        if self._applies(images):
            return _CoreFunction.apply(self, images, *self._core.parameters())
        return type(self._core).forward(self._core, images)

    def __enter__(self) -> None:
        vars(self._core)["forward"] = self

    def __exit__(self, *error: object) -> None:
        del vars(self._core)["forward"]

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = memo.get(id(self._core))  # a loss may copy the module, whose parameters are then others
        return self if copied is None else type(copied).forward.__get__(copied)

    def forward(self, images: Tensor) -> tuple[Tensor, int, list[Tensor]]:
        """Return the features of images, and for `gradients` the number of the call and the state before it."""
        state = [buffer.clone() for buffer in self._core.buffers()]
        images, found = images.contiguous(), torch.empty(len(images), *self._shape)
        keys = [int(dropout.counter) % 2**64 for dropout in self._dropouts]
        addresses = self._flat.data_ptr(), images.data_ptr(), len(images)
        self._plan.core_forward(*addresses, self._core.training, keys, found.data_ptr())
        for layer in self._layers if self._core.training else ():
            if isinstance(layer, CounterDropout) and layer.p:
                layer.advance()
            elif isinstance(layer, nn.BatchNorm2d) and layer.num_batches_tracked is not None:
                layer.num_batches_tracked.add_(1)
        self._calls += 1
        return found, self._calls, state

    def gradients(
        self, images: Tensor, parameters: Sequence[Tensor], grad_out: Tensor, call: int, state: list[Tensor]
    ) -> Sequence[Tensor]:
        """Return the gradients of the core's parameters from those of the features of a call of `forward`."""
        with_graph = torch.is_grad_enabled()
        if call == self._calls and not with_graph:
            grad_out, found = grad_out.contiguous(), torch.empty(self._part.size)
            self._plan.core_backward(grad_out.data_ptr(), found.data_ptr())
            return [entry.view(found) for entry in self._part.entries if entry.trainable]
        present = self._exchange(state)
        with torch.enable_grad():
            features = type(self._core).forward(self._core, images)
        self._exchange(present)
        return torch.autograd.grad(features, parameters, grad_out, create_graph=with_graph)

    def _exchange(self, state: list[Tensor]) -> list[Tensor]:
        """Give the core's buffers other values; return the present ones."""
        present = [buffer.clone() for buffer in self._core.buffers()]
        for buffer, values in zip(self._core.buffers(), state, strict=True):
            buffer.data.copy_(values)  # .data, because the graph may have saved the buffer
        return present

    def _applies(self, images: Tensor) -> bool:
        """Whether the plan computes what the core's own forward would compute now."""
        if torch.compiler.is_compiling() or torch._C._functorch.maybe_current_level() is not None:
            return False
        known = (type(images), images.dtype, images.device.type, images.shape[1:]) == self._images and len(images)
        learning = {parameter.requires_grad for parameter in self._core.parameters()}
        other = images.requires_grad or torch.is_autocast_enabled("cpu") or len(learning) > 1
        if not known or other or any(getattr(layer, name) for layer in self._layers[1:] for name in MODULE_HOOKS):
            return False
        modes = {True}, {torch.is_grad_enabled() and True in learning}  # evaluation mode only without gradients
        return {layer.training for layer in self._layers} in modes and self._present_addresses() == self._addresses

    def _present_addresses(self) -> list[int]:
        """Places of all values that the plan reads; a functional call has others for its time."""
        tensors = (*self._core.parameters(), *self._core.buffers())
        return [tensor.data_ptr() for tensor in tensors if tensor.is_floating_point()]


class _CoreFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, native: NativeCore, images: Tensor, *parameters: Tensor) -> Tensor:
        (found, *ctx.call), ctx.native = native.forward(images), native
        ctx.save_for_backward(images, *parameters)
        return found

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        images, *parameters = ctx.saved_tensors
        return None, None, *ctx.native.gradients(images, parameters, grad_out, *ctx.call)
