"""The baselines Random, Oracle and Local of Listo Zec et al., FL-IJCAI 2022, and of Hagander's thesis.

Random is DAC without any preference. Oracle, the upper baseline, knows the hidden clusters and stays within its own.
With `deluded` nodes it is the cluster-death experiment of the thesis (section 4.3): from a given round on, that many
nodes of one cluster draw only from outside of it while their cluster continues to pull from them. Local trains every
node alone; a node that is offline does not train.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from ddlsim.algorithms.gossip_pull import GossipPull, State
from ddlsim.algorithms.rounds import ModelState, SharedModel
from ddlsim.algorithms.similarity import Similarity, draw
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import CountOrZero
from ddlsim.node.node import Node, Steps

MonitoredSimilarity = Literal["inverse_loss", "cosine_weights", "inverse_l2"]


@dataclass(frozen=True, kw_only=True)
class RandomGossip(GossipPull):
    """Random gossip: merge with uniformly drawn nodes each round.

    Args:
        monitored_similarity: how records.true_similarities compares models; the nodes themselves compare none.
    """

    monitored_similarity: MonitoredSimilarity = "inverse_loss"

    def __post_init__(self) -> None:
        if self.merge == "fedsim":
            raise ScenarioError("merge: fedsim needs similarities that random and oracle lack. Set fedavg or uniform.")

    def similarity_measure(self, node: Node | None) -> Similarity:
        return Similarity(self.monitored_similarity)

    def choose(self, node: Node, state: State, round_num: int) -> Sequence[int]:
        return draw(node.rng("sampled peers"), node.others(), self.sampled_peers)


@dataclass(frozen=True, kw_only=True)
class Oracle(RandomGossip):
    """Random gossip within the true clusters.

    Args:
        deluded: number of nodes that draw their peers outside of their cluster; selected once for the run.
        deluded_cluster: cluster of the deluded nodes.
        delusion_start: first round of their delusion, counted from 0.
    """

    may_change: ClassVar[frozenset[str]] = GossipPull.may_change | {"deluded", "deluded_cluster", "delusion_start"}

    deluded: CountOrZero = 0
    deluded_cluster: CountOrZero = 0
    delusion_start: CountOrZero = 50

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if not self.deluded:
            for key in ("deluded_cluster", "delusion_start"):
                yield key, "deluded is 0"
        elif self.delusion_start >= rounds:
            yield "deluded", f"delusion_start is {self.delusion_start}, and the run has {rounds} rounds"

    def check(self, clusters: Sequence[int]) -> None:
        super().check(clusters)
        if not self.deluded:
            return
        cluster, count = self.deluded_cluster, len(clusters)
        if cluster >= count:
            raise ScenarioError(f"algorithm.deluded_cluster: expected a cluster from 0 to {count - 1}, got {cluster}")
        size = clusters[cluster]
        if self.deluded > size:
            raise ScenarioError(f"algorithm.deluded: expected at most {size}, all of the cluster, got {self.deluded}")

    def choose(self, node: Node, state: State, round_num: int) -> Sequence[int]:
        peers = node.cluster_members(node.true_cluster)
        if round_num >= self.delusion_start and self.is_deluded(node):
            peers = tuple(peer for peer in node.others() if peer not in peers)
        return draw(node.rng("sampled peers"), peers, self.sampled_peers)

    def is_deluded(self, node: Node) -> bool:
        """Whether this node is one of the deluded, from `delusion_start` on; not cached, since the keys may change."""
        if not self.deluded or node.true_cluster != self.deluded_cluster:
            return False
        cluster = sorted((*node.cluster_members(node.true_cluster), node.id))
        return node.id in draw(stream(node.seed, "deluded nodes"), cluster, self.deluded)


@dataclass(frozen=True, kw_only=True)
class Local(SharedModel):
    """No communication: every node trains alone.

    Args:
        monitored_similarity: how records.true_similarities compares models; the nodes themselves compare none.
    """

    exchanges: ClassVar[Literal["models", "vectors", "nothing"]] = "nothing"
    averages: ClassVar[bool] = False
    uses_topology: ClassVar[bool] = False

    monitored_similarity: MonitoredSimilarity = "inverse_loss"

    def round(self, node: Node, state: ModelState, round_num: int) -> Steps:
        (state.model,) = yield node.train((state.model,))

    def similarity_measure(self, node: Node | None) -> Similarity:
        return Similarity(self.monitored_similarity)
