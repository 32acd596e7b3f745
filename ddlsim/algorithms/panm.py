"""PANM: keep the most similar peers ever met; later, select neighbors by a mixture model.

Sources: Li, Lu, Liu, et al., "Towards effective clustered federated learning: a peer-to-peer framework with adaptive
neighbor matching", IEEE Transactions on Big Data, 2022; Hagander's thesis, appendix B, algorithms 2 and 3, and its
code. Stage 1 (NSMC): each round a node measures `sampled_peers` new peers, keeps the `sampled_peers` most similar of
these and its current neighbors, and merges all of them. Stage 2, from round `stage1_rounds` on: every `naem_every`
rounds it sorts new candidates and its neighbors by a mixture of two normals (algorithms/similarity/measures.py); each
round it merges with `sampled_peers` random neighbors. `variant`:

- `thesis`: all similarities are measured again each time, and NAEM sorts all neighbors;
- `code`: old members keep their first measured similarity; NAEM sorts at most `sampled_peers` random neighbors, the
  rest remain;
- `published_bug`: as `code`, but only the inverse loss is ever remembered. By any other similarity a node has no
  neighbors in stage 1 and exchanges with no node; with cosine_gradients its first NAEM makes neighbors of
  `sampled_peers` random peers for good, with cosine_weights and inverse_l2 it never has any. The thesis's numbers for
  PANM with cosine similarity come from this variant.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le

from ddlsim.aggregation import base as merges
from ddlsim.algorithms.gossip_pull import GossipPull, LossBatches, State, batches_scored
from ddlsim.algorithms.similarity.measures import Similarity, SimilarityName, draw, neighbors_by_mixture
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import Count

if TYPE_CHECKING:
    from ddlsim.node.node import Node, Steps, Verb


@dataclass
class Memory:
    """A node's neighbors with their last measured similarity."""

    neighbors: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PANM(GossipPull):
    """Personalized adaptive neighbor matching.

    Args:
        stage1_rounds: rounds of stage 1.
        naem_every: rounds between two sortings in stage 2.
        similarity: measure that ranks and sorts peers.
        alpha: with cosine_gradients, weight of the last local update; the rest is the update since the start.
        loss_batches: mini-batches that a model is scored on: `all` or `local_steps`.
        variant: `thesis`, `code` or `published_bug`, see the module's docstring.
    """

    may_change: ClassVar[frozenset[str]] = GossipPull.may_change | {"stage1_rounds", "naem_every", "loss_batches"}

    stage1_rounds: Count = 50
    naem_every: Count = 2
    similarity: SimilarityName = "inverse_loss"
    alpha: Annotated[float, Ge(0), Le(1)] = 0.0
    loss_batches: LossBatches = "all"
    variant: Literal["thesis", "code", "published_bug"] = "thesis"

    def __post_init__(self) -> None:
        if self.merge == "fedsim" and self.variant != "thesis":
            raise ScenarioError("merge: fedsim weighs by measured similarities, which only thesis has.")
        self.similarity_measure(None).check()

    def idle(self, rounds: int) -> Iterator[tuple[str, str]]:
        if self.similarity != "inverse_loss":
            yield "loss_batches", f"similarity is {self.similarity}, which looks at no samples"

    @property
    def as_published(self) -> tuple[str, ...]:
        return () if self.variant == "thesis" else (f"variant {self.variant}",)

    def similarity_measure(self, node: "Node | None") -> Similarity:
        return Similarity(self.similarity, self.alpha, batches_scored(node, self.loss_batches))

    def remember(self, node: "Node", state: State) -> Memory:
        return Memory()

    @property
    def _deaf(self) -> bool:
        return self.variant == "published_bug" and self.similarity != "inverse_loss"

    def _exchange(self, node: "Node", state: State, round_num: int) -> "Steps":
        """Exchange with peers: stage 1 asks candidates and neighbors at once; stage 2 sorts them first."""
        memory: Memory = state.memory
        received: dict[int, dict] = {}
        if round_num < self.stage1_rounds:
            received = yield from self._match(node, state, round_num)
            merged = list(memory.neighbors)
        else:
            if (round_num - self.stage1_rounds) % self.naem_every == 0:
                received = yield from self._augment(node, state, round_num)
            # The names of streams keep their spelling, which decides what they draw.
            merged = draw(node.rng("merged neighbours"), sorted(memory.neighbors), self.sampled_peers)
            missing = [peer for peer in merged if peer not in received]
            received |= yield from self.pull(node, missing, round_num)
        self._merge(node, state, {peer: received[peer] for peer in merged if peer in received}, round_num)
        for peer in sorted(received):
            node.record("pulled_from", peer, round_num)

    def _match(self, node: "Node", state: State, round_num: int) -> "Generator[Verb, Any, dict[int, dict]]":
        """Run NSMC; return the received models."""
        memory = state.memory
        if self._deaf:
            return {}
        candidates = self._strangers(node, memory)
        received = yield from self.pull(node, sorted((*candidates, *memory.neighbors)), round_num)
        yield from self._measure(node, state, received, candidates, round_num)
        ranked = sorted(memory.neighbors, key=lambda peer: (-memory.neighbors[peer], peer))
        memory.neighbors = {peer: memory.neighbors[peer] for peer in ranked[: self.sampled_peers]}
        return received

    def _augment(self, node: "Node", state: State, round_num: int) -> "Generator[Verb, Any, dict[int, dict]]":
        """Run NAEM; return the received models."""
        memory = state.memory
        if self._deaf:
            if self.similarity == "cosine_gradients" and not memory.neighbors:
                memory.neighbors = dict.fromkeys(self._strangers(node, memory), 0.0)
            return {}
        candidates, old = self._strangers(node, memory), dict(memory.neighbors)
        sorted_ones = list(old)
        if self.variant != "thesis":
            sorted_ones = draw(node.rng("sorted neighbours"), sorted(old), self.sampled_peers)
        asked = candidates if self.variant != "thesis" else [*candidates, *old]
        received = yield from self.pull(node, sorted(asked), round_num)
        yield from self._measure(node, state, received, candidates, round_num)
        known = memory.neighbors
        scores = {peer: known[peer] for peer in (*candidates, *sorted_ones) if peer in known}
        chosen = neighbors_by_mixture(scores, set(sorted_ones), 1e-9 if self.variant == "thesis" else 0.0)
        unsorted_ones = set(old) - set(sorted_ones)
        memory.neighbors = {peer: known[peer] for peer in sorted(chosen | unsorted_ones)}
        return received

    def _strangers(self, node: "Node", memory: Memory) -> list[int]:
        others = [peer for peer in node.others() if peer not in memory.neighbors]
        return draw(node.rng("candidates"), others, self.sampled_peers)

    def _measure(
        self, node: "Node", state: State, received: Mapping[int, dict], candidates: Sequence[int], round_num: int
    ) -> "Steps":
        """Measure the similarities of the candidates, and in the variant `thesis` also of the neighbors."""
        again = set(received) if self.variant == "thesis" else set(candidates) & set(received)
        if again:
            chosen = {peer: received[peer] for peer in sorted(again)}
            later = yield from self.measure(node, state, chosen, round_num)
            state.memory.neighbors |= later()

    def _merge(self, node: "Node", state: State, received: Mapping[int, dict], round_num: int) -> None:
        scores = {peer: state.memory.neighbors[peer] for peer in received} if self.merge == "fedsim" else None
        self.merge_with(
            node, state, received, merges.weights(self.merge, node.id, self._samples(node, received), scores), round_num
        )
