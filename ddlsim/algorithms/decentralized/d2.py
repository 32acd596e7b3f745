"""D2: decentralized SGD with a variance that is independent of the difference between the nodes' data.

Source: Tang, Lian, Yan, Zhang, Liu, "D2: Decentralized Training over Decentralized Data", ICML 2018, Algorithm 1:

    x_i(t+1/2) := 2 x_i(t) - x_i(t-1) - a g_i(t) + a g_i(t-1);   x_i(t+1) := sum_j w_ij x_j(t+1/2)

and x_i(1/2) = x_i(0) - a g_i(0) in the first round. W is symmetric, with Metropolis-Hastings or the topology's weights,
and the same in all rounds. Its eigenvalues must be above -1/3; a ring of an even number of nodes has one of exactly
-1/3, so an oscillation between neighbors never fades (`exact_diffusion` has no such condition).

With several local steps, x - a g is the result of training, and nodes converge to a point at which the mean of their
changes is 0, not to the minimum. Buffers (BatchNorm statistics) are mixed, not corrected.

The weights of neighbors that are offline, or whose message is lost or late, are added to the node's own weight. But
losses, churn and changes of the learning rate disturb the difference between rounds, and errors may grow.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ddlsim.algorithms.base import GraphKind, Graphs
from ddlsim.algorithms.rounds import ModelState, SharedModel, with_sum
from ddlsim.node.node import Node, Params, Steps


@dataclass
class State(ModelState):
    """A node's memory: its model, and its trained model of the round before, x - a g (None: no round before)."""

    trained: Params | None = None


@dataclass(frozen=True, kw_only=True)
class D2(SharedModel):
    """D2: train from the difference of two rounds, and mix with the neighbors' models."""

    state_type: ClassVar[type[ModelState]] = State
    expects_graph: ClassVar[GraphKind] = "static"
    graphs: ClassVar[Graphs] = "symmetric"
    needs_only_sums: ClassVar[bool] = True

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        start, before = state.model, state.trained
        (trained,) = yield node.train((start,))
        half = trained if before is None else with_sum(node, trained, [start, trained, before], [1.0, 1.0, -1.0])
        state.model, state.trained = half, trained  # a node that leaves from here on has a round without an exchange
        node.send(node.peers(round_num), round_num, model=half)
        inbox = yield node.receive(round_num)
        state.model = self.combine(node, half, {m.src: m.payload["model"] for m in inbox}, round_num)

    def combine(self, node: Node, own: Params, received: Mapping[int, Params], round_num: int) -> Params:
        """Return the row of W x for this node."""
        return node.mix(own, received, round_num)
