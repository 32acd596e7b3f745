"""D-PSGD: train, exchange models with the neighbors of a graph, merge with Metropolis-Hastings weights.

Source: Lian, Zhang, Zhang, Hsieh, Zhang, Liu, "Can Decentralized Algorithms Outperform Centralized Algorithms?",
NeurIPS 2017, Algorithm 1, in the order of the FACADE paper's appendix B (local steps first). The weights are symmetric
and doubly stochastic on any undirected graph: 1 / (1 + the larger of the two degrees), the rest for the node itself.
Weights of neighbors that are offline, or whose message is lost or too late, are added to the node's weight. The paper's
graph is the same in all rounds (topology.dynamic: false); on a regular graph the weights are EL's plain mean. Directed
graphs and sequences of graphs serve if their mixing matrices are doubly stochastic (Koloskova et al., "A Unified Theory
of Decentralized SGD with Changing Topology and Local Updates", ICML 2020), such as one_peer_exponential and base_k.
"""

from dataclasses import dataclass
from typing import ClassVar

from ddlsim.algorithms.base import GraphKind, Graphs
from ddlsim.algorithms.rounds import ModelState, SharedModel, WithFinalAllReduce
from ddlsim.node.node import Node, Steps


@dataclass(frozen=True, kw_only=True)
class NeighborMixing(SharedModel):
    """Train, exchange models with the graph's neighbors, and mix by Metropolis-Hastings weights."""

    expects_graph: ClassVar[GraphKind] = "static"
    graphs: ClassVar[Graphs] = "balanced"
    needs_only_sums: ClassVar[bool] = True

    def round(self, node: Node, state: ModelState, round_num: int) -> Steps:
        (state.model,) = yield node.train((state.model,))
        node.send(node.peers(round_num), round_num, model=state.model)
        inbox = yield node.receive(round_num)
        state.model = node.mix(state.model, {m.src: m.payload["model"] for m in inbox}, round_num)


@dataclass(frozen=True, kw_only=True)
class DPSGD(WithFinalAllReduce, NeighborMixing):
    """Decentralized parallel SGD with Metropolis-Hastings weights."""
