"""DFedAvgM: several local steps with heavy-ball momentum, then the mean with the neighbors' models.

Source: Sun, Li, Wang, "Decentralized federated averaging", IEEE TPAMI 2022, Algorithm 1, without quantization
(network.compression does that). Momentum restarts in every round, as in the paper, so it is training.momentum with
training.optimizer sgd. The mixing matrix has Metropolis-Hastings weights on the topology's graph; weights of neighbors
that are offline, or whose message is lost or too late, are added to the node's weight.
"""

from dataclasses import dataclass
from typing import ClassVar

from ddlsim.algorithms.base import GraphKind
from ddlsim.algorithms.rounds import ModelState, SharedModel
from ddlsim.node.node import Node, Steps


@dataclass(frozen=True, kw_only=True)
class DFedAvgM(SharedModel):
    """Decentralized federated averaging; set training.momentum."""

    expects_graph: ClassVar[GraphKind] = "static"
    needs_only_sums: ClassVar[bool] = True

    def round(self, node: Node, state: ModelState, round_num: int) -> Steps:
        (state.model,) = yield node.train((state.model,))
        node.send(node.peers(round_num), round_num, model=state.model)
        inbox = yield node.receive(round_num)
        state.model = node.mix(state.model, {m.src: m.payload["model"] for m in inbox}, round_num)
