"""Triton kernels of group normalization, max pooling and ReLU; see norm_relu_pool.py."""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ddlsim.kernels.launching import are_noted, launch

BLOCK, VALUES_A_THREAD, MOST_WARPS = 2**14, 8, 16
"""Most values of a block, values in each thread of a small block, and most warps."""


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


class NormReluPool(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, images: Any, scales: Any, shifts: Any, groups: int, eps: float, windows: Any, numbers: Any
    ) -> Tensor:
        batch, channels, *sides = images.shape
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
        return by_images, *by_parameters.sum(1), None, None, None, None
