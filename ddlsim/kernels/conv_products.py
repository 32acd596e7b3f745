"""Triton kernels of convolutions of many models: implicit matrix products on tensor cores.

Rows are pixels (in the weights' gradient: places under the kernel) and columns are output channels, because Hopper's
`wgmma` needs 64 rows. The right factor is split into two TF32 numbers when it is copied; the halves are two sets of
columns. The left factor passes through registers and is split there: 16-byte copies bypass the L1 cache, so a second
plane of images would double the traffic of the L2 cache. bfloat16 is not split. One kernel copies images, gradients and
weights to channels-last.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from ddlsim.kernels.launching import launch

PIXELS, INNER, STAGES = 128, 16, 3
"""Sizes of a block of outputs: its pixels, values under the kernel in one product, and blocks loaded ahead."""
W_ROWS, W_PIXELS = 64, 16
"""Sizes of a block of the weights' gradient: its rows and pixels in one product."""
ROWS_A_WARP = 16
COPIED_CHANNELS, COPIED_VALUES = 32, 2048
"""Sizes of a block that is copied."""
MOST_OUTPUTS = 32
"""Output channels in a block, at most."""
ENOUGH_BLOCKS = 528
"""Number of blocks that keep all of a large device busy."""
Pair = Sequence[int]


@triton.jit
def _high(values):  # type: ignore[no-untyped-def]
    """The part of a float32 that TF32 holds exactly; TF32 holds most of the rest."""
    return (values.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def _product(left, right, PLANES: tl.constexpr):  # type: ignore[no-untyped-def]
    """left @ right; added to a longer sum outside of the tensor cores, whose sums are cut off, not rounded."""
    if PLANES == 2:
        product = tl.dot(left - _high(left), right, input_precision="tf32")
        high = left.to(tl.int32, bitcast=True) >> 13 << 13  # a result of `_high` used twice is copied through memory
        product = tl.dot(high.to(tl.float32, bitcast=True), right, product, input_precision="tf32")
    else:
        product = tl.dot(left, right)
    return product


@triton.jit(do_not_specialize=[*range(2, 11), 13, 14])
def _copy(  # type: ignore[no-untyped-def]
    values,
    found,
    start,
    by_member,
    by_channel,
    by_row,
    by_column,
    H,
    W,
    C,
    pixels,
    FOUND_H,
    FOUND_W,
    top,
    left,
    every_y,
    every_x,
    FOUND_C: tl.constexpr,
    PLANES: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Copy to [planes, members, rows, columns, channels]; what `values` does not hold is zero."""
    pixel = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    channel = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    y, x = pixel // FOUND_W % FOUND_H - top, pixel % FOUND_W - left
    there = (y >= 0) & (y % every_y == 0) & (y // every_y < H) & (x >= 0) & (x % every_x == 0) & (x // every_x < W)
    place = start + pixel // FOUND_W // FOUND_H * by_member + y // every_y * by_row + x // every_x * by_column
    mask = (channel < C)[:, None] & (there & (pixel < pixels))[None, :]
    copied = tl.load(values + (channel * by_channel)[:, None] + place[None, :], mask=mask, other=0.0)
    copied = tl.trans(copied)
    to = found + (pixel * FOUND_C)[:, None] + channel[None, :]
    mask = (pixel < pixels)[:, None] & (channel < FOUND_C)[None, :]
    if PLANES == 2:
        high = _high(copied)
        tl.store(to + pixels * FOUND_C, copied - high, mask=mask)
        copied = high
    tl.store(to, copied, mask=mask)


@triton.jit(do_not_specialize=["count", "pixels"])
def _convolve(  # type: ignore[no-untyped-def]
    images,
    weights,
    biases,
    outputs,
    count,
    pixels,
    places,
    H,
    W,
    OUT,
    OW,
    stride_y,
    stride_x,
    dilation_y,
    dilation_x,
    C: tl.constexpr,
    TAPS: tl.constexpr,
    KW: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    PLANES: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    """A block of one model's outputs; in one product BLOCK_T places under the kernel with BLOCK_C channels each."""
    model = tl.program_id(2)
    pixel = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    seen = tl.minimum(pixel, pixels - 1)
    member, place = seen // places * count + model, seen % places
    corner = (member * (H * W) + place // OW * (stride_y * W) + place % OW * stride_x) * C
    column = tl.arange(0, PLANES * BLOCK_O)
    factor = tl.minimum(tl.program_id(1) * BLOCK_O + column % BLOCK_O, OUT - 1)
    turns: tl.constexpr = (TAPS + BLOCK_T - 1) // BLOCK_T
    own = ((column // BLOCK_O * count + model) * OUT + factor) * (turns * BLOCK_T * C)
    each = tl.arange(0, BLOCK_T * BLOCK_C)
    blocks: tl.constexpr = C // BLOCK_C
    sums = tl.zeros((BLOCK_P, PLANES * BLOCK_O), dtype=tl.float32)
    for turn in range(0, turns * blocks):
        tap = turn // blocks * BLOCK_T + each // BLOCK_C
        inside = turn % blocks * BLOCK_C + each % BLOCK_C
        under = tl.minimum(tap, TAPS - 1)  # weights beyond are zero
        under = (under // KW * (dilation_y * W) + under % KW * dilation_x) * C + inside
        values = tl.load(images + (corner[:, None] + under[None, :]))
        factors = tl.load(weights + (own[None, :] + (tap * C + inside)[:, None]))
        sums += _product(values, factors, PLANES)
    if PLANES == 2:
        sums = tl.sum(tl.reshape(sums, (BLOCK_P, 2, BLOCK_O)), axis=1)
    channel = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    if HAS_BIAS:
        sums += tl.load(biases + model * OUT + channel, mask=channel < OUT, other=0.0)[None, :]
    where = ((member * OUT)[:, None] + channel[None, :]) * places + place[:, None]
    tl.store(outputs + where, sums, mask=(channel < OUT)[None, :] & (pixel < pixels)[:, None])


@triton.jit(do_not_specialize=["count", "parts", "batch", "images_a_part"])
def _weight_gradient(  # type: ignore[no-untyped-def]
    images,
    gradients,
    found,
    count,
    parts,
    batch,
    images_a_part,
    H,
    W,
    OUT,
    CHANNELS,
    stride_y,
    stride_x,
    dilation_y,
    dilation_x,
    C: tl.constexpr,
    TAPS: tl.constexpr,
    KW: tl.constexpr,
    PLACES: tl.constexpr,
    OW: tl.constexpr,
    PLANES: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """A block of one model's gradient, summed over some of its images; `found` is [parts, N, O, CHANNELS, TAPS]."""
    model, part = tl.program_id(2) // parts, tl.program_id(2) % parts
    row = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K)
    tap = tl.minimum(row // C, TAPS - 1)
    under = (tap // KW * (dilation_y * W) + tap % KW * dilation_x) * C + row % C
    column = tl.arange(0, PLANES * BLOCK_O)
    factor = tl.minimum(tl.program_id(1) * BLOCK_O + column % BLOCK_O, OUT - 1)
    own = (column // BLOCK_O * (batch * count * OUT) + factor) * PLACES
    first_image = part * images_a_part
    pixels = tl.minimum(images_a_part, batch - first_image) * PLACES
    sums = tl.zeros((BLOCK_K, PLANES * BLOCK_O), dtype=tl.float32)
    for start in range(0, pixels, BLOCK_P):
        pixel = start + tl.arange(0, BLOCK_P)
        member = (first_image + pixel // PLACES) * count + model
        there = member * (OUT * PLACES) + pixel % PLACES
        slopes = tl.load(gradients + (there[:, None] + own[None, :]), mask=(pixel < pixels)[:, None], other=0.0)
        seen = tl.minimum(pixel, pixels - 1)  # slopes beyond are zero
        member, place = (first_image + seen // PLACES) * count + model, seen % PLACES
        corner = (member * (H * W) + place // OW * (stride_y * W) + place % OW * stride_x) * C
        values = tl.load(images + (under[:, None] + corner[None, :]))
        sums += _product(values, slopes, PLANES)
    if PLANES == 2:
        sums = tl.sum(tl.reshape(sums, (BLOCK_K, 2, BLOCK_O)), axis=1)
    channel = tl.program_id(1) * BLOCK_O + tl.arange(0, BLOCK_O)
    to = (((part * count + model) * OUT + channel) * CHANNELS)[None, :] + (row % C)[:, None]
    mask = (channel < OUT)[None, :] & ((row // C < TAPS) & (row % C < CHANNELS))[:, None]
    tl.store(found + to * TAPS + (row // C)[:, None], sums, mask=mask)


def padded_channels(channels: int) -> int:
    """Number of channels in copies: a power of two, or a multiple of those in a product."""
    return min(triton.next_power_of_2(channels), triton.cdiv(channels, INNER) * INNER)


def _planes(dtype: torch.dtype) -> int:
    return 2 if dtype == torch.float32 else 1


def _copied(
    values: Tensor,
    start: int,
    strides: tuple[int, int, int, int],
    source: tuple[int, int, int],
    size: Sequence[int],
    dtype: torch.dtype,
    planes: int = 1,
    corner: Pair = (0, 0),
    spacing: Pair = (1, 1),
) -> Tensor:
    """Return values as [planes, members, rows, columns, padded channels].

    Args:
        values: in one piece.
        start: place of the first of them.
        strides: between members, channels, rows and columns.
        source: numbers of channels, rows and columns.
        size: of the result: members, rows and columns.
        dtype: of the result.
        planes: 2 for the high and low halves of float32.
        corner: where the first row and column are in the result.
        spacing: distance of rows and of columns there.
    """
    channels, *lengths = source
    members, *sides = size
    across = padded_channels(channels)
    pixels, block = members * sides[0] * sides[1], min(across, COPIED_CHANNELS)
    found = values.new_empty(planes, *size, across, dtype=dtype)
    block_p = COPIED_VALUES // block
    grid = triton.cdiv(pixels, block_p), triton.cdiv(across, block)
    numbers = start, *strides, *lengths, channels, pixels, *sides, *corner, *spacing
    launch(_copy, grid, values, found, *numbers, across, planes, block_p, block)
    return found


def copied_images(images: Tensor, count: int, size: Pair, corner: Pair, spacing: Pair, dtype: torch.dtype) -> Tensor:
    """Return [b * N, *size, channels] of images [b, N * C, H, W]: zeros around them, and between rows and columns."""
    channels, (height, width) = images.shape[1] // count, images.shape[2:]
    strides = channels * height * width, height * width, width, 1
    size_of_all = len(images) * count, *size
    return _copied(images, 0, strides, (channels, height, width), size_of_all, dtype, 1, corner, spacing)[0]


def copied_weights(weights: Tensor, count: int, back: bool, dtype: torch.dtype) -> Tensor:
    """Return [planes, N, O, taps, channels] of weights [N * O, C, kh, kw].

    Args:
        weights: in one piece.
        count: N.
        back: whether to turn the kernels and exchange O and C, as the gradient by the images needs them.
        dtype: of the result.
    """
    outputs, channels, taps = len(weights) // count, weights.shape[1], weights[0, 0].numel()
    a_model, a_tap = outputs * channels * taps, 1
    by_output, by_channel, start = channels * taps, taps, 0
    if back:
        outputs, channels, by_output, by_channel = channels, outputs, by_channel, by_output
        start, a_tap = taps - 1, -1
    in_product = INNER // min(INNER, padded_channels(channels))
    size = count, outputs, triton.cdiv(taps, in_product) * in_product
    strides = a_model, by_channel, by_output, a_tap
    return _copied(weights, start, strides, (channels, outputs, taps), size, dtype, _planes(dtype))


def convolved(
    images: Tensor,
    weights: Tensor,
    biases: Tensor | None,
    kernel: Pair,
    stride: Pair,
    dilation: Pair,
    dtype: torch.dtype,
) -> Tensor:
    """Return outputs [b, N * O, OH, OW] of images [b * N, H, W, C] and weights [planes, N, O, taps, C], both copied.

    Args:
        images: of all models.
        weights: of all models.
        biases: [N * O], or none.
        kernel: its rows and columns.
        stride: of the kernel.
        dilation: of the kernel.
        dtype: of the outputs.
    """
    planes, count, outputs, _, channels = weights.shape
    sides = images.shape[1:3]
    reach = [(length - 1) * by for length, by in zip(kernel, dilation, strict=True)]
    size = [(length - far - 1) // by + 1 for length, far, by in zip(sides, reach, stride, strict=True)]
    found = images.new_empty(len(images) // count, count * outputs, *size, dtype=dtype)
    pixels = found.numel() // (count * outputs)
    block_o, block_p = _block(outputs), PIXELS if pixels > PIXELS // 2 else PIXELS // 2
    block_c = min(INNER, channels)
    grid = triton.cdiv(pixels, block_p), triton.cdiv(outputs, block_o), count
    tensors = images, weights, weights if biases is None else biases, found
    lengths = count, pixels, size[0] * size[1], *sides, outputs, size[1], *stride, *dilation
    taps = kernel[0] * kernel[1]
    constants = channels, taps, kernel[1], biases is not None, planes, block_p, block_o, block_c, INNER // block_c
    options = {"num_warps": block_p // ROWS_A_WARP, "num_stages": STAGES}
    launch(_convolve, grid, *tensors, *lengths, *constants, **options)
    return found


def weight_gradients(
    images: Tensor, gradients: Tensor, count: int, channels: int, kernel: Pair, stride: Pair, dilation: Pair
) -> Tensor:
    """Return the gradients [N * O, C, kh, kw] by the weights, float32.

    Args:
        images: [b * N, H, W, channels], copied.
        gradients: of the outputs, [b, N * O, OH, OW] in one piece, of the type of the images.
        count: N.
        channels: C.
        kernel: its rows and columns.
        stride: of the kernel.
        dilation: of the kernel.
    """
    (batch, outputs), taps, across = gradients.shape[:2], kernel[0] * kernel[1], images.shape[3]
    outputs, (height, width), planes = outputs // count, gradients.shape[2:], _planes(images.dtype)
    if planes == 2:
        flat = 1, 1, gradients.numel()
        gradients = _copied(gradients, 0, (0, 0, 0, 1), flat, flat, gradients.dtype, planes)
    block_o = _block(outputs)
    blocks = triton.cdiv(taps * across, W_ROWS), triton.cdiv(outputs, block_o)
    images_a_part = triton.cdiv(batch, triton.cdiv(ENOUGH_BLOCKS, blocks[0] * blocks[1] * count))
    parts = triton.cdiv(batch, images_a_part)
    found = images.new_empty(parts, count * outputs, channels, *kernel, dtype=torch.float32)
    lengths = count, parts, batch, images_a_part, *images.shape[1:3], outputs, channels, *stride, *dilation
    constants = across, taps, kernel[1], height * width, width, planes, W_ROWS, block_o, W_PIXELS
    grid, options = (*blocks, count * parts), {"num_warps": W_ROWS // ROWS_A_WARP, "num_stages": STAGES}
    launch(_weight_gradient, grid, images, gradients, found, *lengths, *constants, **options)
    return found[0] if parts == 1 else found.sum(0)


def _block(outputs: int) -> int:
    return min(MOST_OUTPUTS, max(16, triton.next_power_of_2(outputs)))
