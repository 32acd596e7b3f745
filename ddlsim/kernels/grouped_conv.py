"""Convolutions of many models' images in one launch, on a GPU: float32, by tensor cores, in three products of TF32.

With images [b, N * C, H, W] of N models along the channels, a convolution is N products of matrices,

    outputs [O, pixels] = weights [O, kh * kw * C]  x  the values under the kernel [kh * kw * C, pixels],

whose right side is read in place (an implicit matrix product). cuDNN's kernels for groups in float32 take several times
as long for small models. A product in TF32 keeps three digits; each factor is split into two TF32 numbers, and three of
their four products are summed, which keeps about six. The gradient by the images is a convolution of the outputs'
gradient with turned kernels; the gradient by the weights is a product over all pixels, split over the images so that
all of the device works. Sums have a fixed order: the same bits every time. Infinite values give NaN.

The kernels are written in Triton, which comes with PyTorch for CUDA.

A rule decides whether these kernels or cuDNN compute the convolutions of many models.
"""

import textwrap
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

PIXELS, INNER, WARPS, STAGES = 128, 16, 4, 3
"""Sizes of a block of outputs: its pixels, values under the kernel in one product, warps, and blocks loaded ahead."""
W_COLUMNS, W_PIXELS, W_WARPS, W_STAGES = 64, 16, 4, 3
"""Sizes of a block of the weights' gradient: its columns, pixels in one product, warps, and blocks loaded ahead."""
MOST_OUTPUTS = 32
"""Output channels in a block, at most."""
ENOUGH_BLOCKS = 528
"""Number of blocks that keep all of a large device busy."""


class Geometry(NamedTuple):
    """Geometry of a convolution, (rows, columns) each."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


@triton.jit
def _halves(values):  # type: ignore[no-untyped-def]
    """float32 as the sum of two numbers, the first of which TF32 holds exactly."""
    high = (values.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)
    return high, values - high


@triton.jit
def _product(left, right):  # type: ignore[no-untyped-def]
    """left @ right; added to a longer sum outside of the tensor cores, whose sums are cut off, not rounded."""
    left_high, left_low = _halves(left)
    right_high, right_low = _halves(right)
    product = tl.dot(left_low, right_high, input_precision="tf32")
    product = tl.dot(left_high, right_low, product, input_precision="tf32")
    return tl.dot(left_high, right_high, product, input_precision="tf32")


@triton.jit
def _convolve(  # type: ignore[no-untyped-def]
    images,
    weights,
    biases,
    outputs,
    count,
    pixels,
    H,
    W,
    OUT,
    OH,
    OW,
    stride_y,
    stride_x,
    dilation_y,
    dilation_x,
    C: tl.constexpr,
    TAPS: tl.constexpr,
    KW: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """A block of one model's outputs; in one product BLOCK_T places under the kernel with BLOCK_C channels each."""
    model = tl.program_id(2)
    pixel = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    seen = tl.minimum(pixel, pixels - 1)
    image = seen // (OH * OW)
    place = seen % (OH * OW)
    corner = (image * count + model) * (C * H * W) + (place // OW) * (stride_y * W) + (place % OW) * stride_x
    each = tl.arange(0, BLOCK_T * BLOCK_C)
    inside, later = each % BLOCK_C, each // BLOCK_C
    kernels = weights + model * (OUT * TAPS * C)
    own = channel * (TAPS * C)
    blocks: tl.constexpr = (C + BLOCK_C - 1) // BLOCK_C
    whole: tl.constexpr = (C % BLOCK_C == 0) and (TAPS % BLOCK_T == 0)
    sums = tl.zeros((BLOCK_O, BLOCK_P), dtype=tl.float32)
    for turn in range(0, (TAPS + BLOCK_T - 1) // BLOCK_T * blocks):
        start = (turn % blocks) * BLOCK_C
        tap = (turn // blocks) * BLOCK_T + later
        under = (start + inside) * (H * W) + (tap // KW) * (dilation_y * W) + (tap % KW) * dilation_x
        if whole:
            values = tl.load(images + (under[:, None] + corner[None, :]))
            mask = (channel < OUT)[:, None]
        else:
            there = (tap < TAPS) & (start + inside < C)
            values = tl.load(images + (under[:, None] + corner[None, :]), mask=there[:, None], other=0.0)
            mask = (channel < OUT)[:, None] & there[None, :]
        factors = tl.load(kernels + (own[:, None] + (tap * C + start + inside)[None, :]), mask=mask, other=0.0)
        sums += _product(factors, values)
    if HAS_BIAS:
        sums += tl.load(biases + model * OUT + channel, mask=channel < OUT, other=0.0)[:, None]
    where = ((image * count + model) * OUT)[None, :] + channel[:, None]
    mask = (channel < OUT)[:, None] & (pixel < pixels)[None, :]
    tl.store(outputs + (where * (OH * OW) + place[None, :]), sums, mask=mask)


@triton.jit
def _weight_gradient(  # type: ignore[no-untyped-def]
    images,
    gradients,
    found,
    count,
    parts,
    batch,
    images_a_part,
    C,
    H,
    W,
    OUT,
    OH,
    OW,
    stride_y,
    stride_x,
    dilation_y,
    dilation_x,
    TAPS: tl.constexpr,
    KW: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """A block of one model's gradient, summed over some of its images; `found` is [parts, N, O, C * TAPS]."""
    model = tl.program_id(2) // parts
    part = tl.program_id(2) % parts
    under = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    channel = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    inner = C * TAPS
    tap = under % TAPS
    below = (under // TAPS) * (H * W) + (tap // KW) * (dilation_y * W) + (tap % KW) * dilation_x
    first_image = part * images_a_part
    pixels = tl.minimum(images_a_part, batch - first_image) * (OH * OW)
    sums = tl.zeros((BLOCK_O, BLOCK_K), dtype=tl.float32)
    for start in range(0, pixels, BLOCK_P):
        pixel = start + tl.arange(0, BLOCK_P)
        member = (first_image + pixel // (OH * OW)) * count + model
        place = pixel % (OH * OW)
        left = member * OUT * (OH * OW) + place
        slopes = tl.load(
            gradients + (left[None, :] + (channel * (OH * OW))[:, None]),
            mask=(channel < OUT)[:, None] & (pixel < pixels)[None, :],
            other=0.0,
        )
        corner = member * (C * H * W) + (place // OW) * (stride_y * W) + (place % OW) * stride_x
        values = tl.load(
            images + (below[:, None] + corner[None, :]),
            mask=(under < inner)[:, None] & (pixel < pixels)[None, :],
            other=0.0,
        )
        sums += _product(slopes, tl.trans(values))
    row = (part * count + model) * OUT + channel
    where = row[:, None] * inner + under[None, :]
    tl.store(found + where, sums, mask=(channel < OUT)[:, None] & (under < inner)[None, :])


def _convolved(
    images: Tensor,
    weights: Tensor,
    biases: Tensor | None,
    width: int,
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> Tensor:
    """Outputs [b, N * O, OH, OW] of images [b, N * C, H, W] without padding; weights [N, O, kh * kw, C].

    Args:
        images: of all models side by side, in one piece.
        weights: in one piece.
        biases: [N * O], or none.
        width: kw.
        stride: of the kernel.
        dilation: of the kernel.
    """
    count, outputs, taps, channels = weights.shape
    reach = (taps // width - 1) * dilation[0], (width - 1) * dilation[1]
    size = [(length - far - 1) // by + 1 for length, far, by in zip(images.shape[2:], reach, stride, strict=True)]
    found = images.new_empty(len(images), count * outputs, *size)
    pixels = found.numel() // (count * outputs)
    block_o, block_p = _block(outputs), PIXELS if pixels > PIXELS // 2 else PIXELS // 2
    block_c = min(INNER, triton.next_power_of_2(channels))
    grid = triton.cdiv(pixels, block_p), triton.cdiv(outputs, block_o), count
    tensors = images, weights, weights if biases is None else biases, found
    lengths = count, pixels, *images.shape[2:], outputs, *size, *stride, *dilation
    constants = channels, taps, width, biases is not None, block_o, block_p, block_c, INNER // block_c
    _convolve[grid](*tensors, *lengths, *constants, num_warps=WARPS, num_stages=STAGES)
    return found


def _by_weights(
    images: Tensor,
    gradients: Tensor,
    count: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
) -> Tensor:
    """The gradient [N * O, C, kh, kw] by the weights, from the outputs' [b, N * O, OH, OW] and the padded images."""
    batch, channels, outputs = len(images), images.shape[1] // count, gradients.shape[1] // count
    inner, block_o = channels * kernel[0] * kernel[1], _block(outputs)
    across = triton.cdiv(inner, W_COLUMNS), triton.cdiv(outputs, block_o)
    images_a_part = triton.cdiv(batch, triton.cdiv(ENOUGH_BLOCKS, across[0] * across[1] * count))
    parts = triton.cdiv(batch, images_a_part)
    found = images.new_empty(parts, count * outputs, channels, *kernel)
    sizes = channels, *images.shape[2:], outputs, *gradients.shape[2:]
    lengths = count, parts, batch, images_a_part, *sizes, *stride, *dilation
    constants = kernel[0] * kernel[1], kernel[1], block_o, W_COLUMNS, W_PIXELS
    launch = _weight_gradient[(*across, count * parts)]
    launch(images, gradients, found, *lengths, *constants, num_warps=W_WARPS, num_stages=W_STAGES)
    return found[0] if parts == 1 else found.sum(0)


def _block(outputs: int) -> int:
    return min(MOST_OUTPUTS, max(16, triton.next_power_of_2(outputs)))


class _GroupedConv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Any, weights: Any, biases: Any, count: int, geometry: Geometry) -> Tensor:
        stride, (above, left), dilation = geometry
        padded = F.pad(images, (left, left, above, above)).contiguous() if above or left else images
        ctx.save_for_backward(padded, weights)
        ctx.count, ctx.geometry, ctx.size = count, geometry, images.shape
        turned = weights.flatten(2).transpose(1, 2).contiguous().unflatten(0, (count, -1))
        return _convolved(padded, turned, biases, weights.shape[3], stride, dilation)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple:
        padded, weights = ctx.saved_tensors
        count, (stride, _, dilation), gradients = ctx.count, ctx.geometry, gradients.contiguous()
        wanted, kernel = ctx.needs_input_grad, tuple(weights.shape[2:])
        by_images = by_weights = by_biases = None
        if wanted[0]:
            back = weights.unflatten(0, (count, -1)).flatten(3).flip(3).permute(0, 2, 3, 1).contiguous()
            spaced = _spaced(gradients, ctx.size, kernel, ctx.geometry)
            by_images = _convolved(spaced, back, None, kernel[1], (1, 1), dilation)
        if wanted[1]:
            by_weights = _by_weights(padded, gradients, count, kernel, stride, dilation)
        if wanted[2]:
            by_biases = gradients.sum((0, 2, 3))
        return by_images, by_weights, by_biases, None, None


def _spaced(gradients: Tensor, size: tuple[int, ...], kernel: tuple[int, int], geometry: Geometry) -> Tensor:
    """Insert zeros around and between gradients so that turned kernels yield the gradients by images of `size`."""
    stride, padding, dilation = geometry
    reach = [(taps - 1) * by for taps, by in zip(kernel, dilation, strict=True)]
    (top, left), (rows, columns) = ((far - pad for far, pad in zip(reach, padding, strict=True)), gradients.shape[2:])
    found = gradients.new_zeros(*gradients.shape[:2], size[2] + reach[0], size[3] + reach[1])
    found[:, :, top :: stride[0], left :: stride[1]][:, :, :rows, :columns] = gradients
    return found


def grouped_conv2d(images: Tensor, weights: Tensor, biases: Tensor | None, count: int, geometry: Geometry) -> Tensor:
    """Compute F.conv2d with one group for each model.

    Args:
        images: [b, N * C, H, W] float32, of N models side by side.
        weights: [N * O, C, kh, kw].
        biases: [N * O], or none.
        count: N.
        geometry: of the convolution; the padding reaches no further than the kernel.

    Returns:
        [b, N * O, OH, OW], differentiable once.
    """
    return _GroupedConv.apply(images.contiguous(), weights.contiguous(), biases, count, geometry)


MOST_VALUES = 2**31 - 1
"""Largest number of values of a tensor, since kernels count places in 32 bits."""
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
    trains = torch.is_grad_enabled() and (images.requires_grad or weights.requires_grad)
    if trains and not isinstance(padding, str) and _on_tensor_cores(images, weights):
        geometry = Geometry(_pair(stride), _pair(padding), _pair(dilation))
        if FEWEST_MODELS <= count <= MOST_MODELS and _fits(images, weights, count, geometry.padding, geometry.dilation):
            return grouped_conv2d(images, weights, biases, count, geometry)
    return F.conv2d(images, weights, biases, stride, padding, dilation, count)


def _on_tensor_cores(images: Tensor, weights: Tensor) -> bool:
    in_float32 = images.dtype == weights.dtype == torch.float32
    return images.is_cuda and in_float32 and not torch.is_autocast_enabled("cuda") and not why_no_kernels(images.device)


@cache
def why_no_kernels(device: torch.device) -> str:
    """Return the reason why a device cannot use the kernels; empty if they run. They are tried on one pixel."""
    if device.type != "cuda" or torch.version.hip:
        return "they are for CUDA"
    if torch.cuda.get_device_capability(device) < TF32_SINCE:
        return "the device does not multiply TF32"
    try:
        pixel = torch.zeros(1, 1, 1, 1, device=device)
        grouped_conv2d(pixel, pixel, None, 1, Geometry((1, 1), (0, 0), (1, 1)))
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton, a C compiler, or a writable folder for compiled kernels is missing
        return f"{type(error).__name__}: {textwrap.shorten(str(error), 100, placeholder=' ...')}"
    return ""


def _fits(images: Tensor, weights: Tensor, count: int, padding: Sequence[int], dilation: Sequence[int]) -> bool:
    """Whether places fit 32 bits, of gradients too, and no kernel sees nothing but padding."""
    if images.shape[1] != count * weights.shape[1] or len(weights) % count:
        return False  # torch raises the error
    reach = [(taps - 1) * by for taps, by in zip(weights.shape[2:], dilation, strict=True)]
    lengths = [length + 2 * far for length, far in zip(images.shape[2:], reach, strict=True)]
    most = len(images) * max(images.shape[1], len(weights)) * lengths[0] * lengths[1]
    inside = all(0 <= pad <= far for pad, far in zip(padding, reach, strict=True))
    seen = all(length + 2 * pad > far for length, pad, far in zip(images.shape[2:], padding, reach, strict=True))
    return inside and seen and 0 < most <= MOST_VALUES and weights.numel() + MOST_PARTS <= MOST_VALUES


def _pair(value: Any) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values[0], values[-1]
