"""Streaming DiLoCo: outer steps of one fragment of the model after another, sent while nodes train, in 4 bits.

Source: Douillard et al., "Streaming DiLoCo with overlapping communication: towards a distributed free lunch", arXiv
2501.18512, Algorithm 2. The model has P fragments of layers. After every H / P local steps (H: training.local_steps)
the next fragment p is sent, so each one once in a round:

    D := mean_i Q(theta_i[p] - phi[p]),   m[p] := b m[p] + D,   phi[p] := phi[p] + a (D + b m[p]),

and tau local steps later theta_i[p] := alpha theta_i[p] + (1 - alpha) phi[p]. Q rounds to E3M0, a sign and three bits
of exponent: 0 or the largest magnitude of the fragment divided by 2^0, ..., 2^6; ties in the logarithm are rounded to
even; the scale is ddlsim's choice. Sums are not rounded.

Differences: tau is at most H / P, so that one fragment is on its way at a time; the local model theta continues from
round to round, and phi is evaluated; nodes wait for the last fragment of the run. Offline nodes are described in
replicas.py; a node that joins starts with the fetched phi as theta.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Le

from ddlsim.algorithms.low_communication import diloco
from ddlsim.algorithms.low_communication.diloco import OuterNesterov
from ddlsim.algorithms.rounds import ModelState
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.fragments import Fragment
from ddlsim.node.collective_verbs import Handle
from ddlsim.node.node import Node, Params, Steps

if TYPE_CHECKING:
    import torch


@dataclass
class State(ModelState):
    """A node's memory.

    Args:
        model: phi.
        momenta: m of each fragment by its name.
        local: theta; None: phi.
        sent: the fragment on its way, and its all-reduce.
    """

    momenta: Mapping[str, Params] | None = None
    local: Params | None = None
    sent: tuple[Fragment, Handle] | None = field(default=None)


@dataclass(frozen=True, kw_only=True)
class StreamingDiLoCo(OuterNesterov):
    """Streaming DiLoCo: fragments of the model are averaged in turn while nodes train.

    Args:
        fragments: P.
        order: strided: layers are dealt to the fragments one after the other; sequential: in consecutive blocks.
        overlap_steps: tau, local steps during which a fragment is on its way.
        mixing: alpha, weight of the local fragment when the outer step arrives.
        bits: 4: E3M0 outer gradients; 32: uncompressed.
    """

    state_type: ClassVar[type[ModelState]] = State
    shared: ClassVar[tuple[str, ...]] = ("model", "momenta")

    fragments: Annotated[int, Ge(1)] = 2
    order: Literal["strided", "sequential"] = "strided"
    overlap_steps: Annotated[int, Ge(0)] = 1
    mixing: Annotated[float, Ge(0), Le(1)] = 0.5
    bits: Literal[4, 32] = 4

    def join(self, node: Node, state: State, round_num: int) -> Steps:
        yield from super().join(node, state, round_num)
        state.local = state.sent = None

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        steps, tau = node.local_steps, self.overlap_steps
        fragments = node.fragments(state.model, self.fragments, self.order)
        if steps // len(fragments) < max(tau, 1):
            text = f"expected at least {len(fragments)} x {max(tau, 1)} (fragments x overlap_steps), got {steps}"
            raise DdlsimError(f"training.local_steps: {text}. Use more steps, fewer fragments or less overlap.")
        if state.sent is None:
            self.offer(node, state, round_num)
        for number, fragment in enumerate(fragments):
            gap = steps * (number + 1) // len(fragments) - steps * number // len(fragments)
            local = state.model if state.local is None else state.local
            early = tau if state.sent is not None else 0
            if early:
                (local,) = yield node.train((local,), early, of=steps)
            state.local = local
            if state.sent is not None:
                yield from self._receive(node, state)
                if number == 0:
                    self.offer(node, state, round_num)
            if gap > early:
                (state.local,) = yield node.train((state.local,), gap - early, of=steps)
            self._send(node, state, fragment, round_num)
            if not tau or (round_num, number) == (node.rounds - 1, len(fragments) - 1):
                yield from self._receive(node, state)

    def _send(self, node: Node, state: State, fragment: Fragment, round_num: int) -> None:
        """Start the all-reduce of a fragment's change."""
        assert state.local is not None
        parts = [node.take(each, fragment) for each in (state.local, state.model)]
        change, wire_bytes = node.merge(parts, [1.0, -1.0]), None
        if self.bits == 4:
            change, wire_bytes = node.apply(e3m0, change), (fragment.size + 1) // 2 + 4
        state.sent = fragment, node.begin(self.mean(node, change, round_num, wire_bytes))

    def _receive(self, node: Node, state: State) -> Steps:
        """Take the outer step of the fragment on its way, and mix it into the local model."""
        assert state.sent is not None and state.local is not None
        (fragment, handle), state.sent = state.sent, None
        mean = yield node.wait(handle)
        if mean is None:
            return
        momenta = state.momenta or {}
        part = diloco.State(node.take(state.model, fragment), momenta.get(fragment.name))
        self.outer_step(node, part, mean)
        assert part.momentum is not None
        state.momenta = {**momenta, fragment.name: part.momentum}
        state.model = node.put(state.model, fragment, part.model)
        local = node.merge([node.take(state.local, fragment), part.model], [self.mixing, 1 - self.mixing])
        state.local = node.put(state.local, fragment, local)


def e3m0(values: "torch.Tensor") -> "torch.Tensor":
    """Return values rounded to E3M0: a sign and a power of 2 relative to the largest magnitude, or 0."""
    size = values.abs()
    largest = size.max()
    exponents = (size / largest).log2().round()
    powers = largest * exponents.exp2() * values.sign()
    return powers.where(exponents >= -6, values.new_zeros(())).nan_to_num(0.0)
