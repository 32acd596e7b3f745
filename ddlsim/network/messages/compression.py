"""Compression of parameters in messages, by name: how they are encoded, and what the receiver decodes.

Every row of parameters in a message goes through (pushes, answers to pulls; models, cores, heads). Trained values are
encoded; buffers (running statistics and counters) travel as they are, 4 bytes a value, since they are few and some of
them are counts. How many bytes an encoding takes depends on shapes alone, so it is known when a message is sent.

Quantization (quantized.py) encodes the parameters themselves, each time anew. Sparsification (sparse.py) is of
differences to a copy that the receivers hold; see there and network/messages/encoder.py.

To add one: a frozen dataclass that offers what `Codec` says, and a line in this table.

Fewer bits per value: float16, and int8 with one scale per tensor. Nothing is remembered between messages.

Few values per message: top-k with error feedback, and random-k.

Parameters with most values missing cannot be merged, so what is sent is a change of a copy. A sender and all its
receivers keep the same copy of the sender's parameters; a message says which k of its values change, and to what; what
the receiver merges is its copy. Whatever was not sent stays in the difference between parameters and copy, competes
again next time, and so is sent sooner or later: that is the error feedback, in the form of Richtarik, Sokolov,
Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback" (NeurIPS 2021), as
Koloskova, Stich, Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication"
(ICML 2019, CHOCO-Gossip) did it before for models of nodes. Where we differ:

- A value that is sent replaces the copy's, rather than being added to it as a difference: the same, without rounding.
- Copies start from the first parameters sent, whole, rather than from zero.
- CHOCO-Gossip moves by a consensus step along the differences of copies; here merging stays the algorithm's, with the
  received copies in the place of the received parameters and one's own parameters in full.
- Receivers may have missed messages, on graphs that change or when nodes were away: see network/messages/encoder.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Protocol

import numpy as np
from annotated_types import Gt, Le

from ddlsim.foundation.registry import Registry
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import FLOAT32_BYTES

if TYPE_CHECKING:
    import torch


COMPRESSIONS = Registry(
    "compression",
    "ddlsim.network.messages",
    {
        "none": ".compression:NoCompression",
        "float16": ".compression:Float16",
        "int8": ".compression:Int8",
        "top_k": ".compression:TopK",
        "random_k": ".compression:RandomK",
    },
)


class Codec(Protocol):
    """What every entry of COMPRESSIONS but `none` offers.

    n rows of D trained values are done at once, each for itself. Arguments of its methods:
        values: what the sender has, float32 [n, D].
        copies: what the receivers hold of the sender, float32 [n, D]; None unless `keeps_copies`.
        sizes: values per tensor of the model, in order; their sum is D.
        seeds: one random integer per row, of 63 bits, known to both sides.
    """

    keeps_copies: ClassVar[bool]
    """Whether it encodes what is new since the receivers' copy, rather than the values themselves."""

    def num_bytes(self, sizes: Sequence[int]) -> int:
        """Bytes of one encoded row."""

    def encode(
        self, values: "torch.Tensor", copies: "torch.Tensor | None", sizes: Sequence[int], seeds: Sequence[int]
    ) -> "tuple[torch.Tensor, ...]":
        """What goes on the wire, as tensors with n rows and together `num_bytes` per row (seeds not among them)."""

    def decode(
        self,
        encoded: "tuple[torch.Tensor, ...]",
        copies: "torch.Tensor | None",
        sizes: Sequence[int],
        seeds: Sequence[int],
    ) -> "torch.Tensor":
        """What the receivers have then, float32 [n, D]; may write into `copies`."""


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


INDEX_BYTES = 4
SEED_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class TopK:
    """The values that differ most from what the receivers hold: 4 bytes a value and 4 its index; the rest is fed back.

    Args:
        fraction: share of a message's trained values that is sent, at least one.
    """

    keeps_copies: ClassVar[bool] = True

    fraction: Annotated[float, Gt(0), Le(1)] = 0.1

    def num_bytes(self, sizes: Sequence[int]) -> int:
        return (FLOAT32_BYTES + INDEX_BYTES) * num_sent(self.fraction, sum(sizes))

    def encode(
        self, values: "torch.Tensor", copies: "torch.Tensor | None", sizes: Sequence[int], seeds: Sequence[int]
    ) -> "tuple[torch.Tensor, ...]":
        import torch

        assert copies is not None

        indices = (values - copies).abs().topk(num_sent(self.fraction, values.shape[1]), dim=1, sorted=False).indices
        return values.gather(1, indices), indices.to(torch.int32)

    def decode(
        self,
        encoded: "tuple[torch.Tensor, ...]",
        copies: "torch.Tensor | None",
        sizes: Sequence[int],
        seeds: Sequence[int],
    ) -> "torch.Tensor":
        assert copies is not None
        sent, indices = encoded
        return copies.scatter_(1, indices.long(), sent)


@dataclass(frozen=True, kw_only=True)
class RandomK:
    """Values at random places that both sides draw from a seed: 4 bytes a value and 8 the seed; the rest waits.

    Args:
        fraction: share of a message's trained values that is sent, at least one.
    """

    keeps_copies: ClassVar[bool] = True

    fraction: Annotated[float, Gt(0), Le(1)] = 0.1

    def num_bytes(self, sizes: Sequence[int]) -> int:
        return FLOAT32_BYTES * num_sent(self.fraction, sum(sizes)) + SEED_BYTES

    def encode(
        self, values: "torch.Tensor", copies: "torch.Tensor | None", sizes: Sequence[int], seeds: Sequence[int]
    ) -> "tuple[torch.Tensor, ...]":
        return (values.gather(1, self._places(values, seeds)),)

    def decode(
        self,
        encoded: "tuple[torch.Tensor, ...]",
        copies: "torch.Tensor | None",
        sizes: Sequence[int],
        seeds: Sequence[int],
    ) -> "torch.Tensor":
        assert copies is not None
        return copies.scatter_(1, self._places(copies, seeds), encoded[0])

    def _places(self, rows: "torch.Tensor", seeds: Sequence[int]) -> "torch.Tensor":
        """Different indices per row, int64 [n, k]; drawn by numpy, so that they are the same on every device."""
        import torch

        width = rows.shape[1]
        count = num_sent(self.fraction, width)
        drawn = [stream(seed, "random-k").choice(width, count, replace=False, shuffle=False) for seed in seeds]
        return torch.from_numpy(np.array(drawn, dtype=np.int64).reshape(len(seeds), count)).to(rows.device)


def num_sent(fraction: float, width: int) -> int:
    """How many of `width` values are sent: their share, rounded, at least one."""
    return min(width, max(1, round(fraction * width)))
