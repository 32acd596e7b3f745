"""PANM: keep the most similar peers ever met; later, select neighbors by a mixture model.

Sources: Li, Lu, Liu, et al., "Towards effective clustered federated learning: a peer-to-peer framework with adaptive
neighbor matching", IEEE Transactions on Big Data, 2022; Hagander's thesis, appendix B, algorithms 2 and 3, and its
code. Stage 1 (NSMC): each round a node measures `sampled_peers` new peers, keeps the `sampled_peers` most similar of
these and its current neighbors, and merges all of them. Stage 2, from round `stage1_rounds` on: every `naem_every`
rounds it sorts new candidates and its neighbors by a mixture of two normal distributions (NAEM); each round it merges
with `sampled_peers` random neighbors. `variant`:

- `thesis`: all similarities are measured again each time, and NAEM sorts all neighbors;
- `code`: old members keep their first measured similarity; NAEM sorts at most `sampled_peers` random neighbors, the
  rest remain;
- `published_bug`: as `code`, but only the inverse loss is ever remembered. By any other similarity a node has no
  neighbors in stage 1 and exchanges with no node; with cosine_gradients its first NAEM makes neighbors of
  `sampled_peers` random peers for good, with cosine_weights and inverse_l2 it never has any. The thesis's numbers for
  PANM with cosine similarity come from this variant.

NAEM is hard expectation maximization. The thesis writes the likelihood as Phi((s - mean) / deviation) without the
factor 1 / deviation; its code, and this module, use the normal density, which expectation maximization needs.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from ddlsim.algorithms.gossip_pull import Received, SimilarityPull, State
from ddlsim.algorithms.similarity import draw
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import Count
from ddlsim.node.node import Node, Steps, Verb


@dataclass
class Memory:
    """A node's neighbors with their last measured similarity."""

    neighbors: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PANM(SimilarityPull):
    """Personalized adaptive neighbor matching.

    Args:
        stage1_rounds: rounds of stage 1.
        naem_every: rounds between two sortings in stage 2.
        variant: `thesis`, `code` or `published_bug`, see the module's docstring.
    """

    may_change: ClassVar[frozenset[str]] = SimilarityPull.may_change | {"stage1_rounds", "naem_every"}
    loss_offset: ClassVar[float] = 1e-6

    stage1_rounds: Count = 50
    naem_every: Count = 2
    variant: Literal["thesis", "code", "published_bug"] = "thesis"

    def __post_init__(self) -> None:
        if self.merge == "fedsim" and self.variant != "thesis":
            raise ScenarioError("merge: fedsim weighs by measured similarities, which only thesis has.")
        super().__post_init__()

    @property
    def as_published(self) -> tuple[str, ...]:
        return () if self.variant == "thesis" else (f"variant {self.variant}",)

    def remember(self, node: Node, state: State) -> Memory:
        return Memory()

    @property
    def _is_isolated(self) -> bool:
        return self.variant == "published_bug" and self.similarity != "inverse_loss"

    def _exchange(self, node: Node, state: State, round_num: int) -> Steps:
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

    def _match(self, node: Node, state: State, round_num: int) -> Generator[Verb, Any, dict[int, dict]]:
        """Run NSMC; return the received models."""
        memory = state.memory
        if self._is_isolated:
            return {}
        candidates = self._strangers(node, memory)
        received = yield from self.pull(node, sorted((*candidates, *memory.neighbors)), round_num)
        yield from self._measure(node, state, received, candidates, round_num)
        ranked = sorted(memory.neighbors, key=lambda peer: (-memory.neighbors[peer], peer))
        memory.neighbors = {peer: memory.neighbors[peer] for peer in ranked[: self.sampled_peers]}
        return received

    def _augment(self, node: Node, state: State, round_num: int) -> Generator[Verb, Any, dict[int, dict]]:
        """Run NAEM; return the received models."""
        memory = state.memory
        if self._is_isolated:
            if self.similarity == "cosine_gradients" and not memory.neighbors:
                memory.neighbors = dict.fromkeys(self._strangers(node, memory), 0.0)
            return {}
        candidates, neighbors_before = self._strangers(node, memory), dict(memory.neighbors)
        sorted_neighbors = list(neighbors_before)
        if self.variant != "thesis":
            sorted_neighbors = draw(node.rng("sorted neighbours"), sorted(neighbors_before), self.sampled_peers)
        requested = candidates if self.variant != "thesis" else [*candidates, *neighbors_before]
        received = yield from self.pull(node, sorted(requested), round_num)
        yield from self._measure(node, state, received, candidates, round_num)
        known = memory.neighbors
        scores = {peer: known[peer] for peer in (*candidates, *sorted_neighbors) if peer in known}
        chosen = neighbors_by_mixture(scores, set(sorted_neighbors), 1e-9 if self.variant == "thesis" else 0.0)
        unsorted_neighbors = set(neighbors_before) - set(sorted_neighbors)
        memory.neighbors = {peer: known[peer] for peer in sorted(chosen | unsorted_neighbors)}
        return received

    def _strangers(self, node: Node, memory: Memory) -> list[int]:
        others = [peer for peer in node.others() if peer not in memory.neighbors]
        return draw(node.rng("candidates"), others, self.sampled_peers)

    def _measure(
        self, node: Node, state: State, received: Received, candidates: Sequence[int], round_num: int
    ) -> Steps:
        """Measure the similarities of the candidates, and in the variant `thesis` also of the neighbors."""
        measured_peers = set(received) if self.variant == "thesis" else set(candidates) & set(received)
        if measured_peers:
            chosen = {peer: received[peer] for peer in sorted(measured_peers)}
            measured = yield from self.measure(node, state, chosen, round_num)
            state.memory.neighbors |= measured()

    def _merge(self, node: Node, state: State, received: Received, round_num: int) -> None:
        scores = {peer: state.memory.neighbors[peer] for peer in received} if self.merge == "fedsim" else None
        self.merge_with(node, state, received, self.merge_weights(node, received, scores), round_num)


MOST_STEPS = 100


def neighbors_by_mixture(
    scores: Mapping[int, float], neighbors: set[int], smallest_deviation: float = 1e-9
) -> set[int]:
    """Sort candidates into neighbors and others by a mixture of two normal distributions, until no label changes.

    Args:
        scores: candidate -> similarity.
        neighbors: candidates that count as neighbors at first.
        smallest_deviation: lower bound of a group's deviation, so that a group of equal similarities attracts only
            candidates of the same similarity. With 0 all of these join the others, as by the comparison with 0 / 0 in
            the published code.

    Returns:
        The neighbors at the end. If none is left, the initial neighbors; if no other is left, all.
    """
    peers = sorted(scores)
    values = np.array([scores[peer] for peer in peers], dtype=np.float64)
    labels = np.array([peer in neighbors for peer in peers])
    for _ in range(MOST_STEPS):
        if not labels.any() or labels.all():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            own, other = (_density(values, group, smallest_deviation) for group in (labels, ~labels))
            new = own > other
        if (new == labels).all():
            break
        labels = new
    if not labels.any():
        return set(neighbors)
    return {peer for peer, label in zip(peers, labels.tolist(), strict=True) if label}


def _density(values: np.ndarray, members: np.ndarray, smallest_deviation: float) -> np.ndarray:
    """Return the share of a group times its normal density at every value; NaN if its deviation is 0."""
    mean, deviation = values[members].mean(), max(values[members].std(), smallest_deviation)
    share = members.mean()
    return share * np.exp(-0.5 * ((values - mean) / deviation) ** 2) / deviation
