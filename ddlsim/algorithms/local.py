"""Local: every node trains alone, the baseline without communication. A node that is offline does not train."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from ddlsim.algorithms.base import Algorithm
from ddlsim.algorithms.gossip_pull import MonitoredSimilarity
from ddlsim.algorithms.similarity.measures import ComparedModel, Similarity
from ddlsim.node.candidates import EvaluationCandidates

if TYPE_CHECKING:
    import numpy as np

    from ddlsim.learning.bank import Params
    from ddlsim.node.checks import Deferred
    from ddlsim.node.node import Node, Steps
    from ddlsim.node.ports import Compute


@dataclass
class State:
    """A node's memory: its model."""

    model: "Params"


@dataclass(frozen=True, kw_only=True)
class Local(Algorithm):
    """No communication.

    Args:
        monitored_similarity: how records.true_similarities compares models; the nodes themselves compare none.
    """

    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "nothing"
    averages: ClassVar[bool] = False

    monitored_similarity: MonitoredSimilarity = "inverse_loss"

    @property
    def uses_topology(self) -> bool:
        return False

    def start(self, node: "Node") -> State:
        ((model,),) = node.init_models(whole=True)
        return State(model)

    def round(self, node: "Node", state: State, round_num: int) -> "Steps":
        (state.model,) = yield node.train((state.model,))

    def serving(self, node: "Node", state: State) -> EvaluationCandidates:
        return EvaluationCandidates([(state.model,)])

    # -- for monitoring, see gossip_pull.py --------------------------------------------------------------------------

    def similarity_measure(self, node: "Node | None") -> Similarity:
        return Similarity(self.monitored_similarity)

    def seen(self, state: State) -> State:
        return replace(state)

    def similarities_of(
        self, node: "Node", own: State, others: Mapping[int, State], compute: "Compute", rng: "np.random.Generator"
    ) -> "Deferred":
        peers = sorted(others)
        seen = [ComparedModel(others[peer].model) for peer in peers]
        found = self.similarity_measure(node).look(node.id, ComparedModel(own.model), seen, None, compute, rng)
        return found.then(lambda values: dict(zip(peers, values, strict=True)))
