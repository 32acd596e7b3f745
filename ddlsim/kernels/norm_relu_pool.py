"""Group normalization, ReLU and max pooling of many models' images in one kernel, on a GPU.

ReLU and max pooling have the same values and gradients in either order. With images [b, N * C, H, W] of N models along
the channels, a program computes one group of a model's channels in one image: it reads the group, sums its values, and
writes only the pooled ones. One byte keeps the place of each maximum, the first of equal ones, for the backward pass,
in which each pixel collects the gradients of its windows. Gradients by scales and shifts are summed over an image, then
over images: the same bits every time. Sums are float32. A group larger than a block is read several times.

A GPU uses these kernels if it uses those of convolutions (see grouped_conv.py: why_no_kernels).
"""

from typing import Any

import torch
from torch import Tensor

from ddlsim.kernels.grouped_conv import FEWEST_MODELS, MOST_VALUES, why_no_kernels

MOST_SIDE = 4
"""Largest side of a window, since the code is repeated for its pixels."""
Windows = tuple[int, int, int]
"""Side, stride and padding of square windows of max pooling."""


def pooled_sides(sides: Any, windows: Windows) -> list[int]:
    """Return the numbers of windows along the sides of an image."""
    side, stride, padding = windows
    return [(length + 2 * padding - side) // stride + 1 for length in sides]


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
    from ddlsim.kernels.pooled_norms import NormReluPool  # needs Triton, which PyTorch for the CPU does not have

    tensors, numbers = (images, scales, shifts), pooled_sides(images.shape[2:], windows)
    return NormReluPool.apply(*(each.contiguous() for each in tensors), groups, eps, windows, numbers)


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
