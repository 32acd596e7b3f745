"""AD-PSGD: train, and average with one random neighbor at a time, without any barrier.

Source: Lian, Zhang, Zhang, Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent", ICML 2018, Algorithm
1. As in the paper a node's model is averaged while its gradient is computed, which is then added to it. Differences
from the paper:

- The paper averages i and j atomically: both become (x_i + x_j) / 2 at one instant, x_i + x_j is unchanged. Here
  messages take time: i offers its model; when it arrives j takes its half, (x_i - x_j) / 2, and answers with its
  previous x_j; when the answer arrives i takes the opposite half. Both are added to the current models, so the sum of
  all models changes by gradients alone, whatever the order and delay of messages. Nodes that finish or have finished do
  not answer, and take no half.
- A half is lost with its answer: by network.on_drop drop, after protocol.deadline_s, or if i leaves. It counts among
  the lost, aborted and unused bytes of the run. With network.compression, privacy or an aggregation rule the halves
  differ, and the sum is preserved only as far as these preserve it.
- A node takes local_steps steps in a row, then averages. Buffers (BatchNorm statistics) come from its last training
  or averaging.
- A node that joins a running simulation, or has lost its state, starts from the model of a neighbor, and does not
  average before. In the paper all nodes are online from the start to the end.
- No deadlock can arise: an offer is answered while the peer trains, so the graph need not be bipartite.

No node waits for the round of another, in either mode; an exchange waits for one answer, and fails at once if the peer
is offline.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ddlsim.algorithms.base import GraphKind
from ddlsim.algorithms.rounds import ModelState, SharedModel, with_sum
from ddlsim.node.node import Message, Model, Node, Params, Steps


@dataclass
class State(ModelState):
    """A node's memory: its model, and whether it averages with others."""

    averages: bool = False


@dataclass(frozen=True, kw_only=True)
class ADPSGD(SharedModel):
    """Asynchronous decentralized parallel SGD: average with one random neighbor, without rounds that wait."""

    state_type: ClassVar[type[ModelState]] = State
    expects_graph: ClassVar[GraphKind] = "static"
    waits: ClassVar[bool] = False

    def join(self, node: Node, state: State, round_num: int) -> Steps:
        """Start from the model of one neighbor, if it answers, because averaging needs similar models."""
        for answer in (yield node.exchange(node.random_peer(round_num), round_num)):
            state.model = answer.payload.get("model", state.model)

    def round(self, node: Node, state: State, round_num: int) -> Steps:
        state.averages = True
        start = state.model
        (trained,) = yield node.train((start,))
        self._add(node, state, start, trained)
        offered = state.model
        for answer in (yield node.exchange(node.random_peer(round_num), round_num, model=offered)):
            if "model" in answer.payload:
                self._add(node, state, offered, node.average(offered, {answer.src: answer.payload["model"]}))
        state.averages = round_num + 1 < node.rounds

    def answer(self, node: Node, state: State, offer: Message) -> Mapping[str, Any]:
        """Return the model before the average; merge the neighbor's model that comes with the offer."""
        if not state.averages:
            return {}
        model = state.model
        if "model" in offer.payload:
            state.model = node.average(model, {offer.src: offer.payload["model"]})
        return {"model": model}

    def stopped(self, node: Node, state: State, best: Model | None, round_num: int) -> None:
        """Stop averaging with other nodes."""
        state.averages = False

    def _add(self, node: Node, state: State, base: Params, changed: Params) -> None:
        """Add `changed - base` to the model, which other nodes may have averaged since it was `base`."""
        if state.model is base:
            state.model = changed
        else:
            state.model = with_sum(node, changed, [state.model, changed, base], [1.0, 1.0, -1.0])
