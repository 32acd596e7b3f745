"""SGP: stochastic gradient push; a node sends shares of its mass to out-neighbors, and divides its own share by a
weight.

Source: Assran, Loizou, Ballas, Rabbat, "Stochastic gradient push for distributed deep learning", ICML 2019, Algorithm 1
(push-sum: Kempe, Dobra, Gehrke, "Gossip-based computation of aggregate information", FOCS 2003). With z = x / w:

    x_i := x_i - a g_i(z_i);   x_i := sum_j p_ij x_j;   w_i := sum_j p_ij w_j;   w_i = 1 at the start.

The columns of p sum to 1, the rows need not: a node splits x and w between itself and its out-neighbors, in equal parts
or by the weights of the topology's edges, and need not know how many the others have. The sum of x changes by gradients
alone; the sum of w is constant. The graph of the paper's experiments is the topology one_peer_exponential: a node sends
to one other in each round, 1, 2, 4, ... places further in the order of ids. Differences from the paper:

- A node keeps and sends (z, w) in place of (x, w), so that a model is trained, sent and served. The sums are the same:
  x = w z, and the new z is the mean of the received z, weighted by the received shares of w.
- More than one local step: x changes by the change of z in training. Buffers (BatchNorm statistics) come from the
  trained model.
- Nodes wait for the shares of a round, as in the paper without overlap (tau = 0); in `mode: async` for none.

A share sent to an offline node, lost, or too late is lost mass; without a replacement w would fall towards 0, and
steps, which z makes 1 / w times as large, would grow without bound. So for every share that a node expects and does not
receive, it adds its own share once more. If all nodes have the same number of neighbors w stays 1;
otherwise on undirected graphs it stays near its value without losses, since p_ji w_i is alike on all edges in
equilibrium. If more shares arrive than expected (slow nodes in `mode: async`), a node scales x and w down together,
which leaves z unchanged. Without losses neither rule acts, and the run follows the paper; with losses the mean of x
changes a little, as the models' mean does in any averaging.

A node that returns keeps x and w; a node that has lost its state, or joins late, starts with w = 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ddlsim.algorithms.base import Graphs
from ddlsim.algorithms.rounds import ModelState, SharedModel, with_sum
from ddlsim.node.node import Message, Node, Params, Steps


@dataclass
class State(ModelState):
    """A node's memory: its model z = x / w, and w."""

    weight: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SGP(SharedModel):
    """Stochastic gradient push on a directed graph."""

    state_type: ClassVar[type[ModelState]] = State
    graphs: ClassVar[Graphs] = "pushes"
    needs_only_sums: ClassVar[bool] = True

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        (trained,) = yield node.train((state.model,))
        state.model = self._step(node, state, trained)
        shares = node.divide(state.weight, round_num)
        own = shares.pop(node.id)
        for share in sorted(set(shares.values())):
            receivers = [peer for peer in shares if shares[peer] == share]
            node.send(receivers, round_num, model=state.model, weight=share)
        inbox = yield node.receive(round_num)
        self._mix(node, state, own, len(node.senders(round_num)), inbox)

    def _step(self, node: Node, state: State, trained: Params) -> Params:
        """Return z after x has changed by the change of z in training."""
        if state.weight == 1:
            return trained
        scale = 1 / state.weight
        return with_sum(node, trained, [state.model, trained], [1 - scale, scale])

    def _mix(self, node: Node, state: State, own: float, senders: int, inbox: Sequence[Message]) -> None:
        """Sum the received shares and the node's own; the module's docstring describes missing and surplus shares."""
        models = {node.id: state.model} | {m.src: m.payload["model"] for m in inbox}
        weights = {node.id: own * (1 + max(0, senders - len(inbox)))} | {m.src: m.payload["weight"] for m in inbox}
        total = sum(weights.values())
        state.model = node.aggregate(models, {n: weight / total for n, weight in weights.items()})
        state.weight = total * min(1.0, (1 + senders) / (1 + len(inbox)))
