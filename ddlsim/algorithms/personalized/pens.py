"""PENS: find peers with similar data by their loss, then gossip only with them.

Source: Onoszko, Karlsson, Mogren, Listo Zec, "Decentralized federated learning of deep neural networks on non-iid
data", 2021, as Listo Zec et al., FL-IJCAI 2022, ran it in their code. Stage 1: each round a node pulls `sampled_peers`
uniformly drawn models, keeps the `top_m` that fit its own training data best, and merges those; it counts how often
each peer was among them. Stage 2, from round `stage1_rounds` on: it gossips uniformly with the peers that were kept
more often than chance, top_m / nodes * stage1_rounds; with no node if there are none. `top_m` is not stated in the
later paper; 2 is the value in the first paper's code. Any similarity can rank the peers; the papers' is the inverse
loss.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ddlsim.algorithms.gossip_pull import Received, Schedule, SimilarityPull, State, Weighing
from ddlsim.algorithms.similarity import draw
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import Count
from ddlsim.node.node import Node


@dataclass
class Memory:
    """Count of each peer's rounds among the best, and the last counted round."""

    best_rounds: Counter[int]
    counted: int = -1


@dataclass(frozen=True, kw_only=True)
class PENS(SimilarityPull):
    """Performance-based neighbor selection.

    Args:
        top_m: models merged per round of stage 1, of those pulled.
        stage1_rounds: rounds that search for neighbors.
    """

    may_change: ClassVar[frozenset[str]] = SimilarityPull.may_change | {"top_m", "stage1_rounds"}

    top_m: Count = 2
    stage1_rounds: Count = 20
    schedule: Schedule = "immediate"

    def __post_init__(self) -> None:
        if self.top_m > self.sampled_peers:
            raise ScenarioError(f"top_m: expected at most sampled_peers, {self.sampled_peers}, got {self.top_m}.")
        super().__post_init__()

    def remember(self, node: Node, state: State) -> Memory:
        return Memory(Counter())

    def choose(self, node: Node, state: State, round_num: int) -> Sequence[int]:
        candidates: Sequence[int] = node.others()
        if round_num >= self.stage1_rounds:
            candidates = self.neighbors(node, state)
        return draw(node.rng("sampled peers"), candidates, self.sampled_peers)

    def neighbors(self, node: Node, state: State) -> list[int]:
        """Return the peers that were among the best more often than by chance."""
        expected = self.top_m / node.num_nodes * self.stage1_rounds
        return sorted(peer for peer, times in state.memory.best_rounds.items() if times > expected)

    def weigh(self, node: Node, state: State, received: Received, round_num: int) -> Weighing:
        if round_num >= self.stage1_rounds and self.merge != "fedsim":
            return self.merge_weights(node, received)
        scores: dict[int, float] = {}
        if received:
            measured = yield from self.measure(node, state, received, round_num)
            scores = measured()
        if round_num < self.stage1_rounds:
            best = sorted(scores, key=lambda peer: (-scores[peer], peer))[: self.top_m]
            if round_num > state.memory.counted:  # once, also if the node leaves in this round and repeats it
                state.memory.best_rounds.update(best)
                state.memory.counted = round_num
            scores = {peer: scores[peer] for peer in best}
        return self.merge_weights(node, {peer: received[peer] for peer in scores}, scores)
