"""Few values per message: top-k with error feedback, and random-k.

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
- Receivers may have missed messages, on graphs that change or when nodes were away: see messages/encoder.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from annotated_types import Gt, Le

from ddlsim.rng import stream
from ddlsim.units import FLOAT32_BYTES

if TYPE_CHECKING:
    import torch

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
