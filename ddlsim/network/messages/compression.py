"""Compression of parameters in messages, by name: encoding by the sender, and decoding by the receiver.

Every row of parameters in a message is compressed (pushes, answers to pulls; models, cores, heads). Trained values are
encoded; buffers (running statistics and counters) are sent in 4 bytes a value, since they are few and some of them are
counts. The number of bytes depends on shapes alone, so it is known when a message is sent.

To add one, write a frozen dataclass with the methods of `Codec`, and add a line to this table.

Quantization (float16; int8 with one scale per tensor) encodes the parameters themselves and keeps nothing between
messages. Sparsification (top-k with error feedback, random-k) encodes differences to a copy that the receivers hold.

Parameters with most values missing cannot be merged, so a message contains a change of a copy. A sender and all its
receivers keep the same copy of the sender's parameters. A message lists the k values that change, and their new values;
the receiver merges its copy. Values that were not sent remain in the difference between parameters and copy, compete
again in the next message, and so are sent sooner or later. This is error feedback in the form of Richtarik, Sokolov,
Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and Practically Faster Error Feedback" (NeurIPS 2021), which
Koloskova, Stich, Jaggi, "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication"
(ICML 2019, CHOCO-Gossip) used before for models of nodes. Differences:

- A sent value replaces the copy's value, instead of being added to it as a difference: the same, without rounding.
- Copies start from the first parameters sent, whole, instead of from zero.
- CHOCO-Gossip takes a consensus step along the differences of copies; here the algorithm merges as usual, with received
  copies instead of received parameters, and the node's parameters uncompressed.
- Receivers may have missed messages, on graphs that change or while they were offline: see
  network/messages/encoder.py.
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
    from torch import Tensor

Encoded = tuple["Tensor", ...]

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
    """Contract of every entry of COMPRESSIONS except `none`.

    Its methods treat n rows of D trained values at once, independently of each other. Arguments:
        values: the sender's values, float32 [n, D].
        copies: the receivers' copies, float32 [n, D]; None unless `keeps_copies`.
        sizes: values per tensor of the model, in order; their sum is D.
        seeds: one random integer per row, of 63 bits, known to both sides.
    """

    keeps_copies: ClassVar[bool]
    """Whether it encodes the difference to the receivers' copy, instead of the values themselves."""

    def num_bytes(self, sizes: Sequence[int]) -> int:
        """Return the bytes of one encoded row."""

    def encode(self, values: "Tensor", copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> Encoded:
        """Return the tensors to send, with n rows and together `num_bytes` per row (without seeds)."""

    def decode(self, encoded: Encoded, copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> "Tensor":
        """Return the receivers' values, float32 [n, D]; may write into `copies`."""


LARGEST_FLOAT16 = 65504.0
LARGEST_INT8 = 127


@dataclass(frozen=True, kw_only=True)
class NoCompression:
    """Parameters are sent uncompressed: float32, 4 bytes a value."""


@dataclass(frozen=True, kw_only=True)
class Float16:
    """IEEE half precision, rounded to nearest: 2 bytes a value; values above 65504 become 65504."""

    keeps_copies: ClassVar[bool] = False

    def num_bytes(self, sizes: Sequence[int]) -> int:
        return 2 * sum(sizes)

    def encode(self, values: "Tensor", copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> Encoded:
        return (values.clamp(-LARGEST_FLOAT16, LARGEST_FLOAT16).half(),)

    def decode(self, encoded: Encoded, copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> "Tensor":
        return encoded[0].float()


@dataclass(frozen=True, kw_only=True)
class Int8:
    """Integers from -127 to 127 times one scale per tensor: 1 byte a value, 4 a scale.

    The scale is the tensor's largest absolute value / 127, rounding is to the nearest. A tensor with nan or infinity is
    decoded as nan.
    """

    keeps_copies: ClassVar[bool] = False

    def num_bytes(self, sizes: Sequence[int]) -> int:
        return sum(sizes) + FLOAT32_BYTES * len(sizes)

    def encode(self, values: "Tensor", copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> Encoded:
        import torch

        tensors = values.split(list(sizes), dim=1)
        scales = torch.stack([tensor.abs().amax(dim=1) for tensor in tensors], dim=1) / LARGEST_INT8
        # A scale of 0 means that all values are 0; with an infinite scale the integers do not matter.
        steps = (values / _per_value(scales, sizes)).nan_to_num(0.0, 0.0, 0.0).round()
        return steps.clamp(-LARGEST_INT8, LARGEST_INT8).to(torch.int8), scales

    def decode(self, encoded: Encoded, copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> "Tensor":
        integers, scales = encoded
        scales = scales.where(scales.isfinite(), float("nan"))
        return integers.float() * _per_value(scales, sizes)


def _per_value(scales: "Tensor", sizes: Sequence[int]) -> "Tensor":
    import torch

    return scales.repeat_interleave(torch.tensor(sizes, device=scales.device), dim=1, output_size=sum(sizes))


INDEX_BYTES = 4
SEED_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class TopK:
    """The values that differ most from the receivers' copies: 4 bytes a value and 4 its index; with error feedback.

    Args:
        fraction: share of a message's trained values that is sent, at least one value.
    """

    keeps_copies: ClassVar[bool] = True

    fraction: Annotated[float, Gt(0), Le(1)] = 0.1

    def num_bytes(self, sizes: Sequence[int]) -> int:
        return (FLOAT32_BYTES + INDEX_BYTES) * num_sent(self.fraction, sum(sizes))

    def encode(self, values: "Tensor", copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> Encoded:
        import torch

        assert copies is not None
        indices = (values - copies).abs().topk(num_sent(self.fraction, values.shape[1]), dim=1, sorted=False).indices
        return values.gather(1, indices), indices.to(torch.int32)

    def decode(self, encoded: Encoded, copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> "Tensor":
        assert copies is not None
        sent, indices = encoded
        return copies.scatter_(1, indices.long(), sent)


@dataclass(frozen=True, kw_only=True)
class RandomK:
    """Values at random places that both sides draw from a seed: 4 bytes a value and 8 the seed; with error feedback.

    Args:
        fraction: share of a message's trained values that is sent, at least one value.
    """

    keeps_copies: ClassVar[bool] = True

    fraction: Annotated[float, Gt(0), Le(1)] = 0.1

    def num_bytes(self, sizes: Sequence[int]) -> int:
        return FLOAT32_BYTES * num_sent(self.fraction, sum(sizes)) + SEED_BYTES

    def encode(self, values: "Tensor", copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> Encoded:
        return (values.gather(1, self._places(values, seeds)),)

    def decode(self, encoded: Encoded, copies: "Tensor | None", sizes: Sequence[int], seeds: Sequence[int]) -> "Tensor":
        assert copies is not None
        return copies.scatter_(1, self._places(copies, seeds), encoded[0])

    def _places(self, rows: "Tensor", seeds: Sequence[int]) -> "Tensor":
        """Return different indices per row, int64 [n, k]; drawn by numpy, so that they are the same on every device."""
        import torch

        width = rows.shape[1]
        count = num_sent(self.fraction, width)
        drawn = [stream(seed, "random-k").choice(width, count, replace=False, shuffle=False) for seed in seeds]
        return torch.from_numpy(np.array(drawn, dtype=np.int64).reshape(len(seeds), count)).to(rows.device)


def num_sent(fraction: float, width: int) -> int:
    """Return the number of values sent of `width`: their share, rounded, at least one."""
    return min(width, max(1, round(fraction * width)))
