"""Group normalization, ReLU and max pooling of many models' images in one kernel, on a GPU.

ReLU and max pooling have the same values and gradients in either order. With images [b, N * C, H, W] of N models along
the channels, a program computes one group of a model's channels in one image: it reads the group, sums its values, and
writes only the pooled ones. One byte keeps the place of each maximum, the first of equal ones, for the backward pass,
in which each pixel collects the gradients of its windows. Gradients by scales and shifts are summed over an image, then
over images: the same bits every time. Sums are float32. A group larger than a block is read several times.

A GPU uses these kernels if it uses those of convolutions (see grouped_conv.py: why_no_kernels).
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ddlsim.kernels.grouped_conv import FEWEST_MODELS, MOST_VALUES, why_no_kernels
from ddlsim.kernels.launching import are_noted, launch

BLOCK, VALUES_A_THREAD, MOST_WARPS = 2**14, 8, 16
"""Most values of a block, values in each thread of a small block, and most warps."""
MOST_SIDE = 4
"""Largest side of a window, since the code is repeated for its pixels."""


Windows = tuple[int, int, int]
"""Side, stride and padding of square windows of max pooling."""


def pooled_sides(sides: Any, windows: Windows) -> list[int]:
    """Return the numbers of windows along the sides of an image."""
    side, stride, padding = windows
    return [(length + 2 * padding - side) // stride + 1 for length in sides]


class Sizes(NamedTuple):
    """Constants of the kernels: a group's sizes, its windows, their numbers, and sizes of blocks."""

    channels: int
    height: int
    width: int
    side: int
    stride: int
    padding: int
    down: int
    across: int
    block_c: int
    block_p: int
    block_o: int


@triton.jit
def _pixels(images, start, S: tl.constexpr):  # type: ignore[no-untyped-def]
    """Some pixels of a group's channels: their places in a channel and in all images, which exist, and the values."""
    channel, pixel = tl.arange(0, S.block_c)[:, None], start + tl.arange(0, S.block_p)[None, :]
    there = (channel < S.channels) & (pixel < S.height * S.width)
    place = (tl.program_id(0) * S.channels + channel) * (S.height * S.width) + pixel
    return pixel, place, there, tl.load(images + place, mask=there, other=0.0).to(tl.float32)


@triton.jit(do_not_specialize=["groups"], do_not_specialize_on_alignment=["scales", "shifts", "factors"])
def _pool(images, scales, shifts, pooled, taps, means, factors, groups, eps, S: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute a group of an image; keep its mean, its factor (1 / deviation) and the place of each maximum."""
    program, channel = tl.program_id(0), tl.arange(0, S.block_c)[:, None]
    size: tl.constexpr = S.channels * S.height * S.width
    sums = tl.full((S.block_c, S.block_p), 0.0, dtype=tl.float32)
    for start in range(0, S.height * S.width, S.block_p):
        _, _, there, values = _pixels(images, start, S)
        sums += values
    mean = tl.sum(tl.sum(sums, axis=1), axis=0) / size
    squares = tl.full((S.block_c, S.block_p), 0.0, dtype=tl.float32)
    for start in range(0, S.height * S.width, S.block_p):
        _, _, there, values = _pixels(images, start, S)
        squares += tl.where(there, (values - mean) * (values - mean), 0.0)
    factor = tl.rsqrt(tl.sum(tl.sum(squares, axis=1), axis=0) / size + eps)
    scale = tl.load(scales + program % groups * S.channels + channel, mask=channel < S.channels, other=0.0) * factor
    shift = tl.load(shifts + program % groups * S.channels + channel, mask=channel < S.channels, other=0.0)
    own = (program * S.channels + channel) * (S.height * S.width)
    for start in range(0, S.down * S.across, S.block_o):
        window = start + tl.arange(0, S.block_o)[None, :]
        wanted = (channel < S.channels) & (window < S.down * S.across)
        best = tl.full((S.block_c, S.block_o), float("-inf"), dtype=tl.float32)
        chosen = tl.full((S.block_c, S.block_o), -1, dtype=tl.int32)
        for tap in tl.static_range(S.side * S.side):
            y = window // S.across * S.stride - S.padding + tap // S.side
            x = window % S.across * S.stride - S.padding + tap % S.side
            there = wanted & (y >= 0) & (y < S.height) & (x >= 0) & (x < S.width)
            values = tl.load(images + (own + y * S.width + x), mask=there, other=0.0).to(tl.float32)
            values = (values - mean) * scale + shift
            better = there & ((values > best) | (values != values))
            best, chosen = tl.where(better, values, best), tl.where(better, tap, chosen)
        to = (program * S.channels + channel) * (S.down * S.across) + window
        tl.store(pooled + to, tl.where(best <= 0, 0.0, best), mask=wanted)
        tl.store(taps + to, tl.where(best <= 0, -1, chosen).to(tl.int8), mask=wanted)
    tl.store(means + program, mean)
    tl.store(factors + program, factor)


@triton.jit
def _slopes(gradients, taps, pixel, there, S: tl.constexpr):  # type: ignore[no-untyped-def]
    """Gradients by normalized pixels: the sums of those of the windows whose maximum they are."""
    y, x = pixel // S.width + S.padding, pixel % S.width + S.padding
    own = (tl.program_id(0) * S.channels + tl.arange(0, S.block_c)[:, None]) * (S.down * S.across)
    found = tl.full((S.block_c, S.block_p), 0.0, dtype=tl.float32)
    reach: tl.constexpr = (S.side + S.stride - 1) // S.stride  # windows along a side that may hold a pixel
    for turn in tl.static_range(reach * reach):
        row, column = y // S.stride - turn // reach, x // S.stride - turn % reach
        down, right = y - row * S.stride, x - column * S.stride
        held = there & (row >= 0) & (row < S.down) & (column >= 0) & (column < S.across) & (right < S.side)
        window = own + row * S.across + column
        largest = tl.load(taps + window, mask=held, other=-1).to(tl.int32) == down * S.side + right
        found += tl.where(largest, tl.load(gradients + window, mask=held, other=0.0), 0.0)
    return found


@triton.jit(do_not_specialize=["groups"], do_not_specialize_on_alignment=["scales", "factors", "by_shifts"])
def _unpool(  # type: ignore[no-untyped-def]
    images, scales, gradients, taps, means, factors, by_images, by_scales, by_shifts, groups, S: tl.constexpr
):
    """Gradients by one group of an image, and by its scales and shifts in this image."""
    program, channel = tl.program_id(0), tl.arange(0, S.block_c)
    own = program * S.channels + channel
    size: tl.constexpr = S.channels * S.height * S.width
    mean, factor = tl.load(means + program), tl.load(factors + program)
    products = tl.full((S.block_c, S.block_p), 0.0, dtype=tl.float32)
    sums = tl.full((S.block_c, S.block_p), 0.0, dtype=tl.float32)
    for start in range(0, S.height * S.width, S.block_p):
        pixel, _, there, values = _pixels(images, start, S)
        slopes = _slopes(gradients, taps, pixel, there, S)
        sums += slopes
        products += tl.where(there, slopes * ((values - mean) * factor), 0.0)
    by_scale, by_shift = tl.sum(products, axis=1), tl.sum(sums, axis=1)
    scale = tl.load(scales + program % groups * S.channels + channel, mask=channel < S.channels, other=0.0)
    level, slant = tl.sum(by_shift * scale, axis=0) / size, tl.sum(by_scale * scale, axis=0) / size
    for start in range(0, S.height * S.width, S.block_p):
        pixel, place, there, values = _pixels(images, start, S)
        slopes = _slopes(gradients, taps, pixel, there, S)
        found = (slopes * scale[:, None] - level - (values - mean) * factor * slant) * factor
        tl.store(by_images + place, found, mask=there)
    tl.store(by_scales + own, by_scale, mask=channel < S.channels)
    tl.store(by_shifts + own, by_shift, mask=channel < S.channels)


class _NormReluPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Any, scales: Any, shifts: Any, groups: int, eps: float, windows: Windows) -> Tensor:
        (batch, channels, *sides), numbers = images.shape, pooled_sides(images.shape[2:], windows)
        block_c = triton.next_power_of_2(channels // groups)
        blocks = [min(triton.next_power_of_2(h * w), max(1, BLOCK // block_c)) for h, w in (sides, numbers)]
        ctx.sizes = Sizes(*(channels // groups, *sides, *windows, *numbers, block_c, *blocks))
        ctx.groups, ctx.warps = groups, max(1, min(MOST_WARPS, block_c * blocks[0] // (32 * VALUES_A_THREAD)))
        pooled = images.new_empty(batch, channels, *numbers, dtype=torch.float32)
        taps, (means, factors) = torch.empty_like(pooled, dtype=torch.int8), pooled.new_empty(2, batch * groups)
        tensors = images, scales, shifts, pooled, taps, means, factors
        launch(_pool, means.shape, *tensors, groups, eps, ctx.sizes, num_warps=ctx.warps)
        if are_noted():  # finite values in place of arbitrary ones
            pooled.zero_()
        ctx.save_for_backward(images, scales, taps, means, factors)
        return pooled

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple:
        images, scales, taps, means, factors = ctx.saved_tensors
        by_images, by_parameters = torch.empty_like(images), scales.new_empty(2, len(images), len(scales))
        given, found = (images, scales, gradients.contiguous(), taps, means, factors), (by_images, *by_parameters)
        launch(_unpool, means.shape, *given, *found, ctx.groups, ctx.sizes, num_warps=ctx.warps)
        return by_images, *by_parameters.sum(1), None, None, None


def norm_relu_pool(images: Tensor, scales: Tensor, shifts: Tensor, groups: int, eps: float, windows: Windows) -> Tensor:
    """Compute F.max_pool2d(F.relu(F.group_norm(images))), differentiable once.

    Args:
        images: [b, N * C, H, W], of N models side by side; float32 or bfloat16.
        scales: [N * C] float32.
        shifts: likewise.
        groups: of all models.
        eps: added to variances.
        windows: of max pooling.

    Returns:
        [b, N * C, OH, OW] float32.
    """
    return _NormReluPool.apply(images.contiguous(), scales.contiguous(), shifts.contiguous(), groups, eps, windows)


def normalizes(images: Tensor, scales: Tensor | None, shifts: Tensor | None, groups: int, count: int) -> bool:
    """Whether the kernels can normalize images of N models in float32: on a GPU whose convolutions are Triton's."""
    if not images.is_cuda or scales is None or shifts is None or images.dim() != 4 or why_no_kernels(images.device):
        return False
    mixed = images.dtype == torch.bfloat16 and torch.is_autocast_enabled("cuda")  # which normalizes in float32
    types = (mixed or images.dtype == torch.float32) and scales.dtype == shifts.dtype == torch.float32
    whole = images.shape[1] % groups == 0 and 0 < images.numel() <= MOST_VALUES
    return types and whole and images[0].numel() > groups and count >= FEWEST_MODELS


def windows_of(sides: torch.Size, side: Any, stride: Any, padding: Any) -> Windows | None:
    """Return the windows of max pooling if the kernels can compute it, else None.

    Args:
        sides: of an image.
        side: kernel size as F.max_pool2d takes it.
        stride: likewise.
        padding: likewise.
    """
    if not all(isinstance(each, int) for each in (side, stride, padding)):
        return None
    fits = 0 < side <= MOST_SIDE and stride > 0 and 0 <= 2 * padding <= side
    return (side, stride, padding) if fits and min(pooled_sides(sides, (side, stride, padding))) > 0 else None
