"""SparseLoCo: nodes send the largest values of their accumulated changes, in 2 bits, and keep the rest.

Source: Sarfi, Therien, Lidin, Belilovsky, "Communication efficient LLM pre-training with SparseLoCo", arXiv 2508.15706,
Algorithm 1. After H local steps (training.local_steps) from the common model phi to theta_i,

    e_i := b e_i + theta_i - phi,   s_i := Q(TopK(e_i)),   e_i := e_i - s_i,   phi := phi + a mean_i s_i.

TopK takes the values of largest magnitude of each chunk of 4,096 values, and the s_i are gathered by all nodes; a value
costs 2 bits and its index 12, a chunk 8 bytes for its scale. Q, of 2 bits as in the paper, is ddlsim's choice: the
sign, and one of two magnitudes, the middles of the lower and upper half of the range of kept magnitudes. Chunks
cut the flattened model, not each tensor. Buffers (BatchNorm statistics) stay with the node. Offline nodes are described
in replicas.py; a node that returns with its state has its old e_i.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from ddlsim.algorithms.low_communication.replicas import Replicas
from ddlsim.algorithms.rounds import ModelState, merge_known
from ddlsim.node.node import Node, Params, Steps

if TYPE_CHECKING:
    import torch

CHUNK, INDEX_BITS = 4096, 12


@dataclass
class State(ModelState):
    """A node's memory: phi, and the error e (None: 0)."""

    error: Params | None = None


@dataclass(frozen=True, kw_only=True)
class SparseLoCo(Replicas):
    """SparseLoCo: DiLoCo with sparse 2-bit changes and error feedback.

    Args:
        density: share of the values of a chunk that are sent.
        error_decay: b, weight of the previous error.
        outer_rate: a, learning rate of the outer step.
        bits: 2: rounded values; 32: values as they are.
        gather: collective that all nodes gather the changes with.
    """

    state_type: ClassVar[type[ModelState]] = State
    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "vectors"

    density: Annotated[float, Gt(0), Le(1)] = 0.02
    error_decay: Annotated[float, Ge(0), Le(1)] = 0.95
    outer_rate: Annotated[float, Gt(0)] = 1.0
    bits: Literal[2, 32] = 2
    gather: Literal["ring", "direct"] = "ring"

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        self.offer(node, state, round_num)
        start = node.trained_values(state.model)
        (trained,) = yield node.train((state.model,))
        terms = [state.error, node.trained_values(trained), start]
        error = merge_known(node, terms, [self.error_decay, 1.0, -1.0])
        sparse = node.apply(self.compressed, error)
        state.error = node.merge([error, sparse], [1.0, -1.0])
        group, wire_bytes = range(node.num_nodes), self.wire_bytes(start.size)
        found = yield node.all_gather(
            sparse, group, round_num, self.gather, on_leave=self.on_leave, wire_bytes=wire_bytes
        )
        weights = [self.outer_rate / len(found)] * len(found)
        state.model = node.with_trained_values(trained, node.merge([start, *found.values()], [1.0, *weights]))

    def wire_bytes(self, size: int) -> int:
        """Return the bytes of the sparse change of a model."""
        chunk = min(CHUNK, size)
        chunks = -(-size // chunk)
        return -(-chunks * self.sent(chunk) * (self.bits + INDEX_BITS) // 8) + 8 * chunks * (self.bits == 2)

    def sent(self, chunk: int) -> int:
        """Return the number of values of a chunk that are sent."""
        return max(1, round(self.density * chunk))

    def compressed(self, values: "torch.Tensor") -> "torch.Tensor":
        """Return the values that are sent, as received, and zeros elsewhere."""
        from torch.nn.functional import pad

        size, chunk = values.numel(), min(CHUNK, values.numel())
        rows = pad(values, (0, -size % chunk)).reshape(-1, chunk)
        largest = rows.abs().topk(self.sent(chunk), dim=1)
        kept = rows.gather(1, largest.indices)
        if self.bits == 2:
            low, high = largest.values[:, -1:], largest.values[:, :1]
            upper = largest.values > (low + high) / 2
            kept = kept.sign() * (low + (high - low) * (0.25 + 0.5 * upper))
        return rows.new_zeros(rows.shape).scatter(1, largest.indices, kept).reshape(-1)[:size]
