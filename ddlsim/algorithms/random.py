"""Random gossip: pull the models of a few uniformly drawn nodes, merge, train.

The baseline "Random" of Listo Zec et al., FL-IJCAI 2022, and of Hagander's thesis: DAC without any preference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddlsim.algorithms.gossip_pull import GossipPull, MonitoredSimilarity, State
from ddlsim.algorithms.similarity.measures import Similarity, draw
from ddlsim.foundation.errors import ScenarioError

if TYPE_CHECKING:
    from ddlsim.node.node import Node


@dataclass(frozen=True, kw_only=True)
class RandomGossip(GossipPull):
    """Random gossip: merge with uniformly drawn nodes each round.

    Args:
        monitored_similarity: how records.true_similarities compares models; the nodes themselves compare none.
    """

    monitored_similarity: MonitoredSimilarity = "inverse_loss"

    def __post_init__(self) -> None:
        if self.merge == "fedsim":
            raise ScenarioError("merge: fedsim weighs by similarity, which random gossip lacks; use fedavg or uniform.")

    def similarity_measure(self, node: "Node | None") -> Similarity:
        return Similarity(self.monitored_similarity)

    def choose(self, node: "Node", state: State, round_num: int) -> Sequence[int]:
        return draw(node.rng("sampled peers"), node.others(), self.sampled_peers)
