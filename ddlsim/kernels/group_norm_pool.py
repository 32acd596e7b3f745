"""Group normalization, ReLU and 2x2 max pooling as one layer, the part of GN-LeNet that is not convolution.

Y. Wu and K. He, "Group Normalization", ECCV 2018. The three operations of torch each pass over the images and keep
their outputs for the backward pass; the native kernel reads and writes each image once per direction and keeps its
input, two numbers per group and one byte per pooled pixel (benches/bench_group_norm_pool.py compares them).
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ddlsim.foundation import native


def reference(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
    """The same in plain torch; arguments and result as in `group_norm_relu_pool`.

    ReLU after pooling gives the same numbers and gradients as before it, and has a quarter of the pixels to pass over.
    """
    return F.relu(F.max_pool2d(F.group_norm(x, groups, weight, bias, eps), 2))


def group_norm_relu_pool(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float = 1e-5) -> Tensor:
    """Normalizes each group of channels of each image, cuts at zero, and keeps the largest of every 2x2 pixels.

    Native for contiguous float32 images in host memory; plain torch for everything else, for tensors of other classes
    than torch's own, within torch.func transforms (vmap, grad), and for second derivatives.

    Args:
        x: [N, C, H, W], H and W at least 2.
        weight: [C], factor after normalization.
        bias: [C].
        groups: into how many groups of consecutive channels; divides C.
        eps: added to the variance.

    Returns:
        [N, C, H // 2, W // 2].

    Raises:
        RuntimeError: from torch, if the shapes do not fit.
    """
    if not _fits_native(x, weight, bias, groups):
        return reference(x, weight, bias, groups, eps)
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad or bias.requires_grad):
        return _GroupNormReLUPool.apply(x, weight, bias, groups, eps)
    return _forward(x, weight, bias, groups, eps)


class GroupNormReLUPool(nn.Module):
    """nn.GroupNorm, ReLU and MaxPool2d(2) in one; parameters, their names and initial values are nn.GroupNorm's.

    Args:
        groups: number of groups; divides `channels`.
        channels: C of the images.
        eps: added to the variance.
    """

    def __init__(self, groups: int, channels: int, eps: float = 1e-5):
        super().__init__()
        if groups < 1 or channels % groups:
            raise ValueError(f"{channels} channels do not divide into {groups} groups")
        self.groups, self.eps = groups, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return group_norm_relu_pool(x, self.weight, self.bias, self.groups, self.eps)


class _GroupNormReLUPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float) -> Tensor:
        mean, rstd = torch.empty(len(x), groups, dtype=torch.float32), torch.empty(len(x), groups, dtype=torch.float32)
        winner = torch.empty(_pooled_shape(x), dtype=torch.uint8)
        ctx.groups, ctx.eps = groups, eps
        ctx.save_for_backward(x, weight, bias, mean, rstd, winner)
        return _forward(x, weight, bias, groups, eps, mean, rstd, winner)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, rstd, winner = ctx.saved_tensors
        if torch.is_grad_enabled():  # these gradients are to be differentiated again
            return _gradients_with_graph(ctx, (x, weight, bias), grad_out)
        grad_out = grad_out.contiguous()
        grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        tensors = (x, weight, mean, rstd, winner, grad_out, grad_x, grad_weight, grad_bias)
        addresses = [tensor.data_ptr() for tensor in tensors]
        native.extension().group_norm_pool_backward(_native_shape(x, ctx.groups), *addresses)
        return grad_x, grad_weight, grad_bias, None, None


def _gradients_with_graph(
    ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], grad_out: Tensor
) -> tuple[Tensor | None, ...]:
    wanted = [tensor for tensor, needed in zip(inputs, ctx.needs_input_grad[:3], strict=True) if needed]
    out = reference(*inputs, ctx.groups, ctx.eps)
    found = iter(torch.autograd.grad(out, wanted, grad_out, create_graph=True))
    return *(next(found) if needed else None for needed in ctx.needs_input_grad[:3]), None, None


def _forward(x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, *saved: Tensor) -> Tensor:
    """Compute the layer; `saved` receives means, inverse deviations and places of maxima (none for inference)."""
    out = torch.empty(_pooled_shape(x), dtype=torch.float32)
    inputs = [tensor.data_ptr() for tensor in (x, weight, bias)]
    outputs = [tensor.data_ptr() for tensor in saved] or [0, 0, 0]
    native.extension().group_norm_pool(_native_shape(x, groups), *inputs, eps, out.data_ptr(), *outputs)
    return out


def _fits_native(x: Tensor, weight: Tensor, bias: Tensor, groups: int) -> bool:
    """Whether the native kernel applies; also false for invalid arguments, for which torch then raises an error."""
    if torch._C._functorch.maybe_current_level() is not None or torch.compiler.is_compiling():
        return False
    tensors = (x, weight, bias)
    if any(type(each) not in (Tensor, nn.Parameter) for each in tensors):
        return False
    if any(t.device.type != "cpu" or t.dtype != torch.float32 or not t.is_contiguous() for t in tensors):
        return False
    if x.ndim != 4 or x.shape[2] < 2 or x.shape[3] < 2 or groups < 1 or x.shape[1] % groups:
        return False
    return x.shape[1] > 0 and weight.shape == bias.shape == (x.shape[1],)


def _pooled_shape(x: Tensor) -> tuple[int, int, int, int]:
    return (x.shape[0], x.shape[1], x.shape[2] // 2, x.shape[3] // 2)


def _native_shape(x: Tensor, groups: int) -> tuple[int, int, int, int, int]:
    return (x.shape[0], x.shape[1], groups, x.shape[2], x.shape[3])
