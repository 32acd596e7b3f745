"""When convolutions of many models are computed by the kernels of grouped_conv.py, and when by cuDNN."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn import functional as F

MOST_VALUES = 2**31 - 1
"""Of a tensor: places in it are counted in 32 bits."""
MOST_MODELS = 2**15
"""With the parts that a gradient's sum is split into they are the third side of a grid, 65,535 at most."""


def stacked_conv2d(
    images: torch.Tensor,
    weights: torch.Tensor,
    biases: torch.Tensor | None,
    count: int,
    stride: Any,
    padding: Any,
    dilation: Any,
) -> torch.Tensor:
    """A convolution of N models' images, each with kernels of its own; differentiable.

    Args:
        images: [b, N * C, H, W].
        weights: [N * O, C, kh, kw].
        biases: [N * O], or none.
        count: N.
        stride: as F.conv2d takes it.
        padding: likewise.
        dilation: likewise.

    Returns:
        [b, N * O, OH, OW].
    """
    trains = torch.is_grad_enabled() and (images.requires_grad or weights.requires_grad)
    if trains and not isinstance(padding, str) and _on_tensor_cores(images, weights):
        from ddlsim.kernels.grouped_conv import Geometry, grouped_conv2d

        geometry = Geometry(_pair(stride), _pair(padding), _pair(dilation))
        if count <= MOST_MODELS and _fits(images, weights, geometry.padding, geometry.dilation):
            return grouped_conv2d(images, weights, biases, count, geometry)
    return F.conv2d(images, weights, biases, stride, padding, dilation, count)


def _on_tensor_cores(images: torch.Tensor, weights: torch.Tensor) -> bool:
    in_float32 = images.dtype == weights.dtype == torch.float32
    return images.is_cuda and in_float32 and not torch.is_autocast_enabled("cuda") and has_kernels(images.device)


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether the kernels are for such a device: one that multiplies TF32, where Triton is installed."""
    if device.type != "cuda" or torch.version.hip or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def _fits(images: torch.Tensor, weights: torch.Tensor, padding: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether places fit 32 bits, and no kernel sees nothing but padding."""
    reach = [(taps - 1) * by for taps, by in zip(weights.shape[2:], dilation, strict=True)]
    lengths = [length + 2 * far for length, far in zip(images.shape[2:], reach, strict=True)]
    most = len(images) * max(images.shape[1], len(weights)) * lengths[0] * lengths[1]
    inside = all(pad <= far for pad, far in zip(padding, reach, strict=True))
    seen = all(length + 2 * pad > far for length, pad, far in zip(images.shape[2:], padding, reach, strict=True))
    return inside and seen and 0 < most <= MOST_VALUES


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    values = tuple(value)
    return values if len(values) == 2 else values * 2  # type: ignore[return-value]
