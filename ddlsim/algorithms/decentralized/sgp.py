"""SGP: stochastic gradient push; a node sends shares of its mass to out-neighbors, and divides its own share by a
weight.

Source: Assran, Loizou, Ballas, Rabbat, "Stochastic gradient push for distributed deep learning", ICML 2019, Algorithm 1
(push-sum: Kempe, Dobra, Gehrke, "Gossip-based computation of aggregate information", FOCS 2003). With z = x / w:

    x_i := x_i - a g_i(z_i);   x_i := sum_j p_ij x_j;   w_i := sum_j p_ij w_j;   w_i = 1 at the start.

The columns of p sum to 1, the rows need not: a node splits x and w in equal parts between itself and its out-neighbors,
and need not know how many the others have. The sum of x changes by gradients alone; the sum of w is constant. With the
`exponential` graph of the paper's experiments a node sends to one other in each round, which is 1, 2, 4, ... places
further in the order of ids. Differences from the paper:

- A node keeps and sends (z, w) in place of (x, w), so that a model is trained, sent and served. The sums are the same:
  x = w z, and the new z is the mean of the received z, weighted by the received shares of w.
- More than one local step: x changes by the change of z in training. Buffers (BatchNorm statistics) are those of the
  trained model.
- Nodes wait for the shares of a round, as in the paper without overlap (tau = 0); in `mode: async` for none.

A share sent to an offline node, lost, or too late is lost mass; without a replacement w would fall towards 0, and
steps, which z makes 1 / w times as large, would grow without bound. So for every share that it sent without receiving
one, a node adds its own share once more, in place of the missing one. If all nodes have the same number
of neighbors w stays 1; otherwise it stays near its value without losses, since p_ji w_i is alike on all edges in
equilibrium. If more shares arrive than it sent (slow nodes in `mode: async`), it scales x and w down together, which
leaves z unchanged. Without losses neither rule acts, and the run follows the paper; with losses the mean of x changes a
little, as the models' mean does in any averaging. The rule assumes equal numbers of in-neighbors and out-neighbors,
which all topologies here have; any other graph would be scaled although nothing was lost.

A node that returns keeps x and w; a node that has lost its state, or joins late, starts with w = 1.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ddlsim.algorithms.rounds import ModelState, SharedModel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddlsim.learning.bank import Params
    from ddlsim.network.messages.message import Message
    from ddlsim.node.node import Node, Steps


@dataclass
class State(ModelState):
    """A node's memory: its model z = x / w, and w."""

    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SGP(SharedModel):
    """Stochastic gradient push on a directed graph.

    Args:
        graph: out-neighbors in each round: `topology` (all peers in the topology's graph of the round) or
            `exponential` (one node, 2^k places further in the order of ids, k from 0 and round after round; the
            topology is not used).
    """

    state_type: ClassVar[type[ModelState]] = State
    graph: Literal["topology", "exponential"] = "topology"

    @property
    def uses_topology(self) -> bool:
        return self.graph == "topology"

    @property
    def needs_only_sums(self) -> bool:
        return self.graph == "topology"

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        (trained,) = yield node.train((state.model,))
        state.model = self._step(node, state, trained)
        receivers, senders = self._neighbors(node, round_num)
        share = state.weight / (1 + len(receivers))
        node.send(receivers, round_num, model=state.model, weight=share)
        inbox = yield node.receive(round_num, senders)
        self._mix(node, state, share, len(receivers), inbox)

    def _step(self, node: "Node", state: State, trained: "Params") -> "Params":
        """Return z after x has changed by the change of z in training."""
        if state.weight == 1:
            return trained
        scale = 1 / state.weight
        changed = node.merge([state.model, trained], [1 - scale, scale])
        return node.with_trained_values(trained, node.trained_values(changed))

    def _neighbors(self, node: "Node", round_num: int) -> "tuple[Sequence[int], Sequence[int]]":
        """Return the out-neighbors and in-neighbors of a round."""
        if self.graph == "topology":
            return node.peers(round_num), node.peers(round_num)
        if node.num_nodes == 1:
            return (), ()
        hops = 2 ** (round_num % (node.num_nodes - 1).bit_length())
        return ((node.id + hops) % node.num_nodes,), ((node.id - hops) % node.num_nodes,)

    def _mix(self, node: "Node", state: State, share: float, sent: int, inbox: "Sequence[Message]") -> None:
        """Sum the received shares and the node's own; the module's docstring describes missing and surplus shares."""
        models = {node.id: state.model} | {m.src: m.payload["model"] for m in inbox}
        weights = {node.id: share * (1 + max(0, sent - len(inbox)))} | {m.src: m.payload["weight"] for m in inbox}
        total = sum(weights.values())
        state.model = node.aggregate(models, {n: weight / total for n, weight in weights.items()})
        state.weight = total * min(1.0, (1 + sent) / (1 + len(inbox)))
