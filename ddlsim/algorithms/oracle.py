"""Oracle: random gossip that knows the hidden clusters and stays within its own; some may be deluded.

The upper baseline of Listo Zec et al., FL-IJCAI 2022. With `deluded` nodes it is the cluster-death experiment of
Hagander's thesis (section 4.3): from a given round on, that many nodes of one cluster draw only from outside of it
while their cluster continues to pull from them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ddlsim.algorithms.gossip_pull import GossipPull, MonitoredSimilarity, State
from ddlsim.algorithms.similarity.measures import Similarity, draw
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import CountOrZero

if TYPE_CHECKING:
    from ddlsim.node.node import Node


@dataclass(frozen=True, kw_only=True)
class Oracle(GossipPull):
    """Random gossip within the true clusters.

    Args:
        deluded: number of nodes that draw their peers outside of their cluster; selected once for the run.
        deluded_cluster: cluster of the deluded nodes.
        delusion_start: first round of their delusion, counted from 0.
        monitored_similarity: how records.true_similarities compares models; the nodes themselves compare none.
    """

    may_change: ClassVar[frozenset[str]] = GossipPull.may_change | {"deluded", "deluded_cluster", "delusion_start"}

    deluded: CountOrZero = 0
    deluded_cluster: CountOrZero = 0
    delusion_start: CountOrZero = 50
    monitored_similarity: MonitoredSimilarity = "inverse_loss"

    def __post_init__(self) -> None:
        if self.merge == "fedsim":
            raise ScenarioError("merge: fedsim weighs by similarity, which the oracle lacks; use fedavg or uniform.")

    def idle(self, rounds: int) -> Iterator[tuple[str, str]]:
        if not self.deluded:
            for key in ("deluded_cluster", "delusion_start"):
                yield key, "deluded is 0"
        elif self.delusion_start >= rounds:
            yield "deluded", f"delusion_start is {self.delusion_start}, and the run has {rounds} rounds"

    def check(self, clusters: Sequence[int]) -> None:
        super().check(clusters)
        if not self.deluded:
            return
        if self.deluded_cluster >= len(clusters):
            raise ScenarioError(
                f"algorithm.deluded_cluster: clusters are 0 to {len(clusters) - 1} in this scenario, got "
                f"{self.deluded_cluster}"
            )
        if self.deluded > clusters[self.deluded_cluster]:
            raise ScenarioError(
                f"algorithm.deluded: cluster {self.deluded_cluster} has {clusters[self.deluded_cluster]} nodes, got "
                f"{self.deluded}"
            )

    def similarity_measure(self, node: "Node | None") -> Similarity:
        return Similarity(self.monitored_similarity)

    def choose(self, node: "Node", state: State, round_num: int) -> Sequence[int]:
        peers = node.cluster_members(node.true_cluster)
        if round_num >= self.delusion_start and self.is_deluded(node):
            peers = tuple(peer for peer in node.others() if peer not in peers)
        return draw(node.rng("sampled peers"), peers, self.sampled_peers)

    def is_deluded(self, node: "Node") -> bool:
        """Whether this node is one of the deluded, from `delusion_start` on; not cached, since the keys may change."""
        if not self.deluded or node.true_cluster != self.deluded_cluster:
            return False
        cluster = sorted((*node.cluster_members(node.true_cluster), node.id))
        return node.id in draw(stream(node.seed, "deluded nodes"), cluster, self.deluded)
