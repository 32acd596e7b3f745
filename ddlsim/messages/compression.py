"""Compression of parameters in messages, by name: how they are encoded, and what the receiver decodes.

Every row of parameters in a message goes through (pushes, answers to pulls; models, cores, heads). Trained values are
encoded; buffers (running statistics and counters) travel as they are, 4 bytes a value, since they are few and some of
them are counts. How many bytes an encoding takes depends on shapes alone, so it is known when a message is sent.

Quantization (quantized.py) encodes the parameters themselves, each time anew. Sparsification (sparse.py) is of
differences to a copy that the receivers hold; see there and messages/encoder.py.

To add one: a frozen dataclass that offers what `Codec` says, and a line in this table.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from ddlsim.registry import Registry

if TYPE_CHECKING:
    import torch

COMPRESSIONS = Registry(
    "compression",
    "ddlsim.messages",
    {
        "none": ".quantized:NoCompression",
        "float16": ".quantized:Float16",
        "int8": ".quantized:Int8",
        "top_k": ".sparse:TopK",
        "random_k": ".sparse:RandomK",
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
