"""Traffic of data-parallel training, DiLoCo and Streaming DiLoCo, tensor by tensor, for tables without learning."""

from dataclasses import dataclass, field
from typing import Annotated

from annotated_types import Ge, MinLen

from ddlsim.algorithms.base import Algorithm
from ddlsim.node.candidates import EvaluationCandidates


@dataclass
class State:
    """A node's model, and its running all-reduces: (step at whose end they must be complete, handles)."""

    model: tuple
    running: list[tuple[int, list]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Traffic(Algorithm):
    """Training steps of replicas, and ring all-reduces of their tensors.

    A round has H steps, training.local_steps in all. Fragment p of P, tensors p, p + P, ..., is reduced at step
    floor(p H / P), one tensor after another, after the step. With `overlaps_backward` a step has 3 local steps per
    tensor: one of the forward pass, and two of the backward pass, which visits the tensors in reverse order, and after
    which the all-reduce of a tensor starts.

    Args:
        tensors: groups of tensors as (number, parameters of each), in the order of the forward pass.
        bits: bits per parameter on the wire.
        tensors_per_fragment: tensors of a fragment; null: all.
        overlaps_backward: whether the all-reduce of a tensor starts after its backward pass.
        overlap_steps: further steps during which it may run.
    """

    tensors: Annotated[tuple[tuple[int, int], ...], MinLen(1)]
    bits: Annotated[int, Ge(1)] = 32
    tensors_per_fragment: Annotated[int, Ge(1)] | None = None
    overlaps_backward: bool = False
    overlap_steps: Annotated[int, Ge(0)] = 0

    @property
    def uses_topology(self):
        return False

    def start(self, node):
        (model,) = node.init_models(whole=True)
        return State(model)

    def round(self, node, state, round_num):
        sizes = [size * self.bits // 8 for count, size in self.tensors for _ in range(count)]
        fragments = 1 if self.tensors_per_fragment is None else len(sizes) // self.tensors_per_fragment
        in_step = 3 * len(sizes) if self.overlaps_backward else 1
        interval = node.local_steps // in_step
        for step in range(interval):
            due = {p for p in range(fragments) if p * interval // fragments == step}
            reduced = [index for index in range(len(sizes)) if index % fragments in due]
            if self.overlaps_backward:
                yield from self.overlapping_step(node, state, round_num, round_num * interval + step, sizes, reduced)
                continue
            yield node.train(state.model, 1)
            for index in reduced:
                yield node.all_reduce(state.model, range(node.num_nodes), round_num, wire_bytes=sizes[index])

    def overlapping_step(self, node, state, round_num, step, sizes, reduced):
        """Take a step, and start the all-reduces of these tensors; wait for those that must end with it."""
        done, handles = 0, []
        for index in reversed(reduced):
            until = len(sizes) + 2 * (len(sizes) - index)
            yield node.train(state.model, until - done)
            done = until
            call = node.all_reduce(state.model, range(node.num_nodes), round_num, wire_bytes=sizes[index])
            handles.append(node.begin(call))
        if done < 3 * len(sizes):
            yield node.train(state.model, 3 * len(sizes) - done)
        state.running.append((step + self.overlap_steps, handles))
        while state.running and state.running[0][0] <= step:
            for handle in state.running.pop(0)[1]:
                yield node.wait(handle)

    def serving(self, node, state):
        return EvaluationCandidates([state.model])
