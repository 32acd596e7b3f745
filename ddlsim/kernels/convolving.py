"""When convolutions of many models are computed by the kernels of grouped_conv.py, and when by cuDNN."""

import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

MOST_VALUES = 2**31 - 1
"""Of a tensor: places in it are counted in 32 bits."""
FEWEST_MODELS = 2
"""One model alone is an ordinary convolution, at which cuDNN is faster."""
MOST_MODELS = 2**15
"""With the parts that a gradient's sum is split into they are the third side of a grid, 65,535 at most."""
MOST_PARTS = 2**21
"""Values that these parts have beyond those of the gradient itself, at most."""
TF32_SINCE = (8, 0)
"""The compute capability."""


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
        if FEWEST_MODELS <= count <= MOST_MODELS and _fits(images, weights, count, geometry.padding, geometry.dilation):
            return grouped_conv2d(images, weights, biases, count, geometry)
    return F.conv2d(images, weights, biases, stride, padding, dilation, count)


def _on_tensor_cores(images: torch.Tensor, weights: torch.Tensor) -> bool:
    in_float32 = images.dtype == weights.dtype == torch.float32
    return images.is_cuda and in_float32 and not torch.is_autocast_enabled("cuda") and not why_no_kernels(images.device)


@cache
def why_no_kernels(device: torch.device) -> str:
    """Why a device has no use for the kernels; empty where they run. They are tried on one pixel."""
    if device.type != "cuda" or torch.version.hip:
        return "they are for CUDA"
    if torch.cuda.get_device_capability(device) < TF32_SINCE:
        return "the device does not multiply TF32"
    try:
        from ddlsim.kernels.grouped_conv import Geometry, grouped_conv2d

        pixel = torch.zeros(1, 1, 1, 1, device=device)
        grouped_conv2d(pixel, pixel, None, 1, Geometry((1, 1), (0, 0), (1, 1)))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton is missing, or what it needs: a C compiler, a folder for what it has compiled
        return f"{type(error).__name__}: {textwrap.shorten(str(error), 100, placeholder=' ...')}"
    return ""


def _fits(
    images: torch.Tensor, weights: torch.Tensor, count: int, padding: Sequence[int], dilation: Sequence[int]
) -> bool:
    """Whether places fit 32 bits, of gradients too, and no kernel sees nothing but padding."""
    if images.shape[1] != count * weights.shape[1] or len(weights) % count:
        return False  # torch says what is wrong
    reach = [(taps - 1) * by for taps, by in zip(weights.shape[2:], dilation, strict=True)]
    lengths = [length + 2 * far for length, far in zip(images.shape[2:], reach, strict=True)]
    most = len(images) * max(images.shape[1], len(weights)) * lengths[0] * lengths[1]
    inside = all(0 <= pad <= far for pad, far in zip(padding, reach, strict=True))
    seen = all(length + 2 * pad > far for length, pad, far in zip(images.shape[2:], padding, reach, strict=True))
    return inside and seen and 0 < most <= MOST_VALUES and weights.numel() + MOST_PARTS <= MOST_VALUES


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, int):
        return value, value
    values = tuple(value)
    return values if len(values) == 2 else values * 2  # type: ignore[return-value]
