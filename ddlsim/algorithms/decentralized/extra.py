"""EXTRA: an exact first-order algorithm; the difference of two rounds of decentralized gradient descent.

Source: Shi, Ling, Wu, Yin, "EXTRA: An Exact First-Order Algorithm for Decentralized Consensus Optimization", SIAM
Journal on Optimization, 2015, with V = (I + W) / 2:

    x(1) := W x(0) - a g(0);   x(t+2) := (I + W) x(t+1) - V x(t) - a (g(t+1) - g(t)).

A node sends its model before it trains, so messages travel while it computes. W is symmetric, with Metropolis-Hastings
or the topology's weights, and the same in all rounds. With several local steps, -a g is the change of the model in
training. Buffers (BatchNorm statistics) come from the trained model. The weights of neighbors that are offline, or
whose message is lost or late, are added to the node's own weight; as in D2, this disturbs the next rounds (d2.py).
"""

from dataclasses import dataclass
from typing import ClassVar

from ddlsim.algorithms.base import GraphKind, Graphs
from ddlsim.algorithms.rounds import ModelState, SharedModel, with_sum
from ddlsim.node.node import Node, Params, Steps


@dataclass
class State(ModelState):
    """A node's memory: its model x, and V x + a g of the round before, less x (None: no round before)."""

    before: Params | None = None


@dataclass(frozen=True, kw_only=True)
class EXTRA(SharedModel):
    """EXTRA: mix models while training, and correct by the difference of two rounds."""

    state_type: ClassVar[type[ModelState]] = State
    expects_graph: ClassVar[GraphKind] = "static"
    graphs: ClassVar[Graphs] = "symmetric"
    needs_only_sums: ClassVar[bool] = True

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        start, before = state.model, state.before
        node.send(node.peers(round_num), round_num, model=start)
        (trained,) = yield node.train((start,))
        inbox = yield node.receive(round_num)
        mixed = node.mix(start, {m.src: m.payload["model"] for m in inbox}, round_num)
        state.model = with_sum(node, trained, [mixed, trained, start if before is None else before], [1.0, 1.0, -1.0])
        state.before = node.merge([mixed, start, trained], [0.5, -0.5, 1.0])
