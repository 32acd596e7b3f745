"""Convolutions of many models' images in one launch, on a GPU's tensor cores: float32 in products of TF32, or bfloat16.

With images [b, N * C, H, W] of N models along the channels, a convolution is N products of matrices,

    outputs [pixels, O] = the values under the kernel [pixels, kh * kw * C]  x  weights [kh * kw * C, O],

whose left side is read in place (an implicit matrix product). cuDNN's kernels for groups in float32 take several times
as long for small models. A product in TF32 keeps three digits; each factor is split into two TF32 numbers, and their
four products are summed, which keeps about six. The gradient by the images is a convolution of the outputs'
gradient with turned kernels; the gradient by the weights is a product over all pixels, over parts of the images
so that all of the device works. Sums have a fixed order: the same bits every time. Infinite values give NaN.

The kernels (conv_products.py) are written in Triton, which comes with PyTorch for CUDA. A rule decides whether they or
cuDNN compute the convolutions of many models; `DDLSIM_TRITON=0` selects cuDNN.
"""

import os
import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ddlsim.kernels.launching import are_noted

Pair = Sequence[int]


class Geometry(NamedTuple):
    """Geometry of a convolution, (rows, columns) each."""

    stride: Pair
    padding: Pair
    dilation: Pair


class _GroupedConv(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, images: Any, weights: Any, biases: Any, count: int, geometry: Geometry, dtype: torch.dtype
    ) -> Tensor:
        from ddlsim.kernels import conv_products  # needs Triton, which PyTorch for the CPU does not have

        (stride, padding, dilation), kernel = geometry, tuple(weights.shape[2:])
        padded = [length + 2 * pad for length, pad in zip(images.shape[2:], padding, strict=True)]
        copied = conv_products.copied_images(images, count, padded, padding, (1, 1), dtype)
        ctx.save_for_backward(copied, weights)
        ctx.count, ctx.geometry, ctx.shape, ctx.types = count, geometry, images.shape, (images.dtype, dtype)
        factors = conv_products.copied_weights(weights, count, False, dtype)
        found = conv_products.convolved(copied, factors, biases, kernel, stride, dilation, dtype)
        if are_noted():  # arbitrary values might fail an assertion on the device, which would end the run
            found.copy_(F.conv2d(images, weights, biases, stride, padding, dilation, count))
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple:
        from ddlsim.kernels import conv_products

        copied, weights = ctx.saved_tensors
        count, (stride, padding, dilation), (found_type, dtype) = ctx.count, ctx.geometry, ctx.types
        wanted, kernel, gradients = ctx.needs_input_grad, tuple(weights.shape[2:]), gradients.contiguous()
        by_images = by_weights = by_biases = None
        if wanted[0]:  # zeros around and between the gradients, for turned kernels
            reach = [(taps - 1) * by for taps, by in zip(kernel, dilation, strict=True)]
            size = [length + far for length, far in zip(ctx.shape[2:], reach, strict=True)]
            corner = [far - pad for far, pad in zip(reach, padding, strict=True)]
            spaced = conv_products.copied_images(gradients, count, size, corner, stride, dtype)
            factors = conv_products.copied_weights(weights, count, True, dtype)
            by_images = conv_products.convolved(spaced, factors, None, kernel, (1, 1), dilation, found_type)
        if wanted[1]:
            channels = weights.shape[1]
            by_weights = conv_products.weight_gradients(copied, gradients, count, channels, kernel, stride, dilation)
        if wanted[2]:
            by_biases = gradients.sum((0, 2, 3), dtype=torch.float32)
        return by_images, by_weights, by_biases, None, None, None


def grouped_conv2d(
    images: Tensor, weights: Tensor, biases: Tensor | None, count: int, geometry: Geometry, dtype: torch.dtype
) -> Tensor:
    """Compute F.conv2d with one group for each model.

    Args:
        images: [b, N * C, H, W], of N models side by side; float32 or bfloat16.
        weights: [N * O, C, kh, kw] float32.
        biases: [N * O] float32, or none.
        count: N.
        geometry: of the convolution; the padding reaches no further than the kernel.
        dtype: of the products and of the result: float32 or bfloat16.

    Returns:
        [b, N * O, OH, OW], differentiable once.
    """
    return _GroupedConv.apply(images.contiguous(), weights.contiguous(), biases, count, geometry, dtype)


MOST_VALUES = 2**31 - 1
"""Largest number of values of a tensor and of its copies, since kernels count places in 32 bits."""
FEWEST_MODELS = 2
"""One model alone is an ordinary convolution, at which cuDNN is faster."""
MOST_MODELS = 2**15
"""With the parts that a gradient's sum is split into they are the third side of a grid, 65,535 at most."""
MOST_PARTS = 2**21
"""Most values of these parts in addition to the gradient itself."""
TF32_SINCE = (8, 0)
"""The compute capability."""


def stacked_conv2d(
    images: Tensor, weights: Tensor, biases: Tensor | None, count: int, stride: Any, padding: Any, dilation: Any
) -> Tensor:
    """Convolve N models' images, each with its own kernels; differentiable.

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
    dtype = _precision(images, weights)
    if dtype is not None and not isinstance(padding, str):
        geometry = Geometry(_pair(stride), _pair(padding), _pair(dilation))
        if FEWEST_MODELS <= count <= MOST_MODELS and _fits(images, weights, count, geometry.padding, geometry.dilation):
            return grouped_conv2d(images, weights, biases, count, geometry, dtype)
    return F.conv2d(images, weights, biases, stride, padding, dilation, count)


def _precision(images: Tensor, weights: Tensor) -> torch.dtype | None:
    """What the kernels multiply: float32, or bfloat16 by autocast; None if torch computes the convolution."""
    if not images.is_cuda or weights.dtype != torch.float32 or why_no_kernels(images.device):
        return None
    mixed = torch.is_autocast_enabled("cuda")
    dtype = torch.get_autocast_dtype("cuda") if mixed else torch.float32
    fits = dtype in (torch.float32, torch.bfloat16) and images.dtype in (torch.float32, dtype)
    return dtype if fits else None


@cache
def why_no_kernels(device: torch.device) -> str:
    """Return the reason why a device cannot use the kernels; empty if they run. They are tried on one pixel."""
    if device.type != "cuda" or torch.version.hip:
        return "they are for CUDA"
    if os.environ.get("DDLSIM_TRITON") == "0":
        return "DDLSIM_TRITON=0"
    if torch.cuda.get_device_capability(device) < TF32_SINCE:
        return "the device does not multiply TF32"
    try:
        pixel = torch.zeros(1, 1, 1, 1, device=device)
        grouped_conv2d(pixel, pixel, None, 1, Geometry((1, 1), (0, 0), (1, 1)), torch.float32)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton, a C compiler, or a writable folder for compiled kernels is missing
        return f"{type(error).__name__}: {textwrap.shorten(str(error), 100, placeholder=' ...')}"
    return ""


def _fits(images: Tensor, weights: Tensor, count: int, padding: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether places fit 32 bits, of gradients too, and no kernel sees nothing but padding."""
    from ddlsim.kernels.conv_products import INNER, padded_channels

    if images.shape[1] != count * weights.shape[1] or len(weights) % count:
        return False  # torch raises the error
    reach = [(taps - 1) * by for taps, by in zip(weights.shape[2:], dilation, strict=True)]
    lengths = [length + 2 * far for length, far in zip(images.shape[2:], reach, strict=True)]
    across = max(padded_channels(weights.shape[1]), 2 * padded_channels(len(weights) // count))
    most = len(images) * count * across * lengths[0] * lengths[1]
    inside = all(0 <= pad <= far for pad, far in zip(padding, reach, strict=True))
    seen = all(length + 2 * pad > far for length, pad, far in zip(images.shape[2:], padding, reach, strict=True))
    of_weights = 4 * weights.numel() + 2 * INNER * max(len(weights), images.shape[1])
    return inside and seen and 0 < most <= MOST_VALUES and of_weights + MOST_PARTS <= MOST_VALUES


def _pair(value: Any) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values[0], values[-1]
