"""D-PSGD: train, exchange models with the neighbors of a graph, merge with Metropolis-Hastings weights.

Source: Lian, Zhang, Zhang, Hsieh, Zhang, Liu, "Can Decentralized Algorithms Outperform Centralized Algorithms?",
NeurIPS 2017, Algorithm 1, in the order of the FACADE paper's appendix B (local steps first). The weights are symmetric
and doubly stochastic on any graph: 1 / (1 + the larger of the two degrees), the rest for oneself. Weights of neighbors
that are away, or whose message is lost or too late, fall to oneself. Use it with a static topology, as in the paper.
The final all-reduce is not Lian et al.'s but FACADE's, see el.py.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddlsim.algorithms.base import Algorithm
from ddlsim.evaluation.candidates import EvaluationCandidates

if TYPE_CHECKING:
    from ddlsim.learning.bank import Params
    from ddlsim.node.node import Node, Steps


@dataclass
class State:
    """A node's memory: its model."""

    model: "Params"


@dataclass(frozen=True, kw_only=True)
class DPSGD(Algorithm):
    """Decentralized parallel SGD with Metropolis-Hastings weights.

    Args:
        shared_init: whether all nodes start from the same model, as in the paper.
        final_all_reduce: whether all nodes exchange models with all others after the last round.
    """

    shared_init: bool = True
    final_all_reduce: bool = True

    @property
    def sums_only(self) -> bool:
        """See Algorithm."""
        return True

    def start(self, node: "Node") -> State:
        ((model,),) = node.init_models(whole=True, own=not self.shared_init)
        return State(model)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        (state.model,) = yield node.train((state.model,))
        node.send(node.peers(round_num), round_num, model=state.model)
        inbox = yield node.receive(round_num)
        state.model = node.mix(state.model, {m.src: m.payload["model"] for m in inbox}, round_num)

    @property
    def has_final_exchange(self) -> bool:
        """See Algorithm."""
        return self.final_all_reduce

    def finish(self, node: "Node", state: State, round_num: int) -> "Steps":
        node.send(node.others(), round_num, model=state.model)
        inbox = yield node.receive(round_num, node.others())
        state.model = node.average(state.model, {m.src: m.payload["model"] for m in inbox})

    def serving(self, node: "Node", state: State) -> EvaluationCandidates:
        return EvaluationCandidates([(state.model,)])
