"""DeMo: in every step nodes exchange the largest frequencies of their own momenta, and follow the sign of their mean.

Source: Peng, Quesnelle, Kingma, "DeMo: Decoupled momentum optimization", arXiv 2411.19870v1, Algorithm 1, and its code
(github.com/bloc97/DeMo), with the gradient g_i of the node's own batch:

    m_i := b m_i + g_i,   q_i := TopK(DCT(m_i)),   m_i := m_i - IDCT(q_i),   x := x - r sign(IDCT(mean_i q_i)).

Momenta stay with the nodes, and frequencies that are not sent remain in them. Matrices are cut into chunks of s x s
values, vectors into chunks of s; the largest divisor of a dimension up to s replaces s. Other tensors are matrices with
their first dimension. The DCT is orthonormal, of type II, along both dimensions of a chunk. TopK keeps the k largest
magnitudes of each chunk; all nodes gather these values, of 4 bytes, and their indices. The mean of a frequency is over
the nodes that have sent it.

A round has training.local_steps steps. Nodes take plain SGD steps, from which g_i = (x - x_i) / training.learning_rate
follows; a schedule changes r. A model that is only a size counts as a matrix of s columns if s divides it. Buffers
(BatchNorm statistics) stay with the node. Offline nodes are described in replicas.py; a node that returns with its
state has its old m_i.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import pi, prod
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, Lt

from ddlsim.algorithms.low_communication.diloco import State
from ddlsim.algorithms.low_communication.replicas import Replicas
from ddlsim.algorithms.rounds import ModelState, merge_known
from ddlsim.node.node import Node, Params, Steps

if TYPE_CHECKING:
    import torch

Chunks = tuple[tuple[int, int, int, int], ...]
"""Of each tensor: rows of chunks, rows of a chunk, columns of chunks, columns of a chunk."""


@dataclass(frozen=True, kw_only=True)
class DeMo(Replicas):
    """DeMo: sign descent along the mean of the largest frequencies of the nodes' momenta.

    Args:
        rate: r, learning rate of the sign step.
        decay: b, weight of the previous momentum in the next one.
        chunk: s, rows and columns of a chunk.
        top: k, frequencies per chunk that are sent.
        index_bytes: bytes of an index; 8, as in the paper's code.
    """

    state_type: ClassVar[type[ModelState]] = State
    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "vectors"
    needs_plain_sgd: ClassVar[bool] = True

    rate: Annotated[float, Gt(0)] = 0.001
    decay: Annotated[float, Ge(0), Lt(1)] = 0.999
    chunk: Annotated[int, Ge(1), Le(256)] = 64
    top: Annotated[int, Ge(1)] = 32
    index_bytes: Literal[2, 4, 8] = 8

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        self.offer(node, state, round_num)
        chunks = self.chunks(node.trained_values(state.model).size, state.model)
        group, wire_bytes = range(node.num_nodes), self.wire_bytes(chunks)
        for rate in node.learning_rates():
            (trained,) = yield node.train((state.model,), 1, of=node.local_steps)
            values = node.trained_values(state.model)
            terms = [state.momentum, values, node.trained_values(trained)]
            momentum = merge_known(node, terms, [self.decay, 1 / rate, -1 / rate])
            sent = node.apply(partial(largest, chunks=chunks, top=self.top), momentum)
            state.momentum = node.merge([momentum, node.apply(partial(inverse, chunks=chunks), sent)], [1.0, -1.0])
            found = yield node.all_gather(sent, group, round_num, on_leave=self.on_leave, wire_bytes=wire_bytes)
            sign = node.apply(partial(direction, chunks=chunks), *found.values())
            step = self.rate * rate / node.learning_rate
            state.model = node.with_trained_values(trained, node.merge([values, sign], [1.0, -step]))

    def wire_bytes(self, chunks: Chunks) -> int:
        """Return the bytes that a node sends to each other node in a step."""
        return sum(rows * columns * min(self.top, h * w) for rows, h, columns, w in chunks) * (4 + self.index_bytes)

    def chunks(self, size: int, model: Params) -> Chunks:
        """Return the chunks of each trained tensor of a model."""
        shapes = [each.shape for each in model.part.entries if each.trainable]
        found = []
        for shape in shapes or [(size // self.chunk, self.chunk) if size % self.chunk == 0 else (size,)]:
            rows = shape[0] if len(shape) > 1 else 1
            columns = prod(shape) // rows
            h, w = (max(n for n in range(1, self.chunk + 1) if each % n == 0) for each in (rows, columns))
            found.append((rows // h, h, columns // w, w))
        return tuple(found)


def largest(values: "torch.Tensor", chunks: Chunks, top: int) -> "torch.Tensor":
    """Return the frequencies of largest magnitude of each chunk, and zeros elsewhere, chunk by chunk."""

    def kept(part: "torch.Tensor", rows: int, h: int, columns: int, w: int) -> "torch.Tensor":
        chunked = part.reshape(rows, h, columns, w).transpose(1, 2)
        found = dct(h, part.dtype, part.device) @ chunked @ dct(w, part.dtype, part.device).T
        flat = found.reshape(rows * columns, h * w)
        places = flat.abs().topk(min(top, h * w), dim=1).indices
        return flat.new_zeros(flat.shape).scatter(1, places, flat.gather(1, places))

    return by_tensor(kept, values, chunks)


def inverse(frequencies: "torch.Tensor", chunks: Chunks) -> "torch.Tensor":
    """Return the values with these frequencies."""

    def back(part: "torch.Tensor", rows: int, h: int, columns: int, w: int) -> "torch.Tensor":
        chunked = part.reshape(rows, columns, h, w)
        return (dct(h, part.dtype, part.device).T @ chunked @ dct(w, part.dtype, part.device)).transpose(1, 2)

    return by_tensor(back, frequencies, chunks)


def by_tensor(function: "Callable[..., torch.Tensor]", values: "torch.Tensor", chunks: Chunks) -> "torch.Tensor":
    """Return a function of the values of each tensor and its chunks."""
    import torch

    parts = values.split([prod(each) for each in chunks])
    return torch.cat([function(part, *each).reshape(-1) for part, each in zip(parts, chunks, strict=True)])


def direction(*sent: "torch.Tensor", chunks: Chunks) -> "torch.Tensor":
    """Return the sign of the mean, in which each frequency counts the nodes that have sent it."""
    import torch

    of_all = torch.stack(sent)
    return inverse(of_all.sum(0) / (of_all != 0).sum(0).clamp(min=1), chunks).sign()


@cache
def dct(size: int, dtype: "torch.dtype", device: "torch.device") -> "torch.Tensor":
    """Return the orthonormal matrix of the discrete cosine transform of type II, a row per frequency."""
    import torch

    places = torch.arange(size, dtype=dtype, device=device)
    matrix = (places[:, None] * (places + 0.5) * (pi / size)).cos() * (2 / size) ** 0.5
    return torch.cat([matrix[:1] / 2**0.5, matrix[1:]])
