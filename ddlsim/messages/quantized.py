"""Fewer bits per value: float16, and int8 with one scale per tensor. Nothing is remembered between messages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ddlsim.units import FLOAT32_BYTES

if TYPE_CHECKING:
    import torch

LARGEST_FLOAT16 = 65504.0
LARGEST_INT8 = 127


@dataclass(frozen=True, kw_only=True)
class NoCompression:
    """Parameters travel as they are: float32, 4 bytes a value."""


@dataclass(frozen=True, kw_only=True)
class Float16:
    """IEEE half precision, rounded to nearest: 2 bytes a value; what is larger than 65504 becomes 65504."""

    keeps_copies: ClassVar[bool] = False

    def num_bytes(self, sizes: Sequence[int]) -> int:
        return 2 * sum(sizes)

    def encode(
        self, values: "torch.Tensor", copies: "torch.Tensor | None", sizes: Sequence[int], seeds: Sequence[int]
    ) -> "tuple[torch.Tensor, ...]":
        return (values.clamp(-LARGEST_FLOAT16, LARGEST_FLOAT16).half(),)

    def decode(
        self,
        encoded: "tuple[torch.Tensor, ...]",
        copies: "torch.Tensor | None",
        sizes: Sequence[int],
        seeds: Sequence[int],
    ) -> "torch.Tensor":
        return encoded[0].float()


@dataclass(frozen=True, kw_only=True)
class Int8:
    """Integers from -127 to 127 times one scale per tensor: 1 byte a value, 4 a scale.

    The scale is the tensor's largest absolute value / 127, rounding is to the nearest. A
    tensor that holds nan or infinity is decoded as nan.
    """

    keeps_copies: ClassVar[bool] = False

    def num_bytes(self, sizes: Sequence[int]) -> int:
        return sum(sizes) + FLOAT32_BYTES * len(sizes)

    def encode(
        self, values: "torch.Tensor", copies: "torch.Tensor | None", sizes: Sequence[int], seeds: Sequence[int]
    ) -> "tuple[torch.Tensor, ...]":
        import torch

        tensors = values.split(list(sizes), dim=1)
        scales = torch.stack([tensor.abs().amax(dim=1) for tensor in tensors], dim=1) / LARGEST_INT8
        # Where the scale is 0 all values are; where it is not finite the integers do not matter.
        steps = (values / _per_value(scales, sizes)).nan_to_num(0.0, 0.0, 0.0).round()
        return steps.clamp(-LARGEST_INT8, LARGEST_INT8).to(torch.int8), scales

    def decode(
        self,
        encoded: "tuple[torch.Tensor, ...]",
        copies: "torch.Tensor | None",
        sizes: Sequence[int],
        seeds: Sequence[int],
    ) -> "torch.Tensor":
        integers, scales = encoded
        scales = scales.where(scales.isfinite(), float("nan"))
        return integers.float() * _per_value(scales, sizes)


def _per_value(scales: "torch.Tensor", sizes: Sequence[int]) -> "torch.Tensor":
    import torch

    return scales.repeat_interleave(torch.tensor(sizes, device=scales.device), dim=1, output_size=sum(sizes))
