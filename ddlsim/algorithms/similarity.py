"""Similarity of a peer's model to a node's own, by name, and the selection of peers by it.

A larger value means more alike.

Sources: Listo Zec et al., "Decentralized adaptive clustering of deep nets is beneficial for client collaboration",
FL-IJCAI 2022 (inverse loss); Hagander, Listo Zec et al., "On the effects of similarity metrics in decentralized deep
learning under distributional shift", section 3 (all four, equation 5); Li et al., "Towards effective clustered
federated learning: a peer-to-peer framework with adaptive neighbor matching" (PANM: alpha).

The texts write the inverse of the sum of losses; the published codes, and this module, use the mean over mini-batches
of the batch means. Only trained parameters count, never buffers. A model that has diverged (its loss or product is NaN)
has the lowest possible similarity, so no rule prefers it.

Peers are drawn by probabilities from the similarities that a node knows.

Sources: Listo Zec et al., FL-IJCAI 2022, and their code (softmax, DAC-var's sigmoid); the code of Hagander's thesis
(the floor, min-max scaling).

A node knows the similarities that it has measured and estimates from other nodes (Listo Zec et al., section 3): a
peer k also sends its own similarities, and a node uses k's similarity to j as an estimate of its own, unless it has
ever measured j itself. If several peers have a similarity to j, one of them counts:

- `max`: the peer that is most similar to the node, as in the texts of both papers (the first one's formula near that
  sentence has an arg min) and in the first code since August 2023;
- `last`: the peer that was drawn last, however similar it is, as in the earlier versions of the first code from 2022 on
(it sorted the peers by the order of the draw), and so most likely in the first paper's numbers;
- `min`: the least similar peer, as in the code behind "On the effects of similarity metrics in decentralized deep
learning under distributional shift" (a reversed comparison), and so in its published numbers.

The first code passes estimates on, so that they travel more than two hops (`chained`); the second one passes on only
measured values. A table travels as a float32 and one bit ("measured") per node.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.node.node import Node, Params, Verb
from ddlsim.node.parameters import Deferred
from ddlsim.node.ports import Compute

SMALLEST_LOSS = 1e-12

SimilarityName = Literal["inverse_loss", "cosine_weights", "cosine_gradients", "inverse_l2"]


@dataclass(frozen=True)
class ComparedModel:
    """Information on a model.

    Args:
        model: its parameters.
        last: parameters at the start of its last local training; only for cosine_gradients with alpha above 0.
        start: common start of all models; only for cosine_gradients with alpha below 1.
    """

    model: Params
    last: Params | None = None
    start: Params | None = None


@dataclass(frozen=True)
class Similarity:
    """A measure with its options.

    Args:
        name: see SimilarityName.
        alpha: for cosine_gradients: weight of the last local update; the rest is the update since the common start.
        batches: for inverse_loss: local mini-batches per model; None: all of the node's training samples.
        offset: for inverse_loss: 1 / (loss + offset).
    """

    name: SimilarityName
    alpha: float = 0.0
    batches: int | None = None
    offset: float = 1e-6

    @property
    def needs_last(self) -> bool:
        """Whether a message contains the parameters at the start of the last training, as many values again."""
        return self.name == "cosine_gradients" and self.alpha > 0

    @property
    def needs_common_start(self) -> bool:
        """Whether all nodes must start from one model."""
        return self.name == "cosine_gradients" and self.alpha < 1

    def of_loss(self, loss: float) -> float:
        """Return the inverse of a loss, at most 1 / SMALLEST_LOSS; 0 for NaN."""
        return 0.0 if math.isnan(loss) else 1 / max(loss + self.offset, SMALLEST_LOSS)

    def check(self) -> None:
        """Raise ScenarioError if alpha has no effect."""
        if self.alpha and self.name != "cosine_gradients":
            raise ScenarioError(f"alpha is for similarity cosine_gradients; {self.name} expects 0, got {self.alpha:g}.")

    def measure(
        self, node: Node, own: ComparedModel, peers: Mapping[int, ComparedModel]
    ) -> Generator[Verb, Any, Deferred]:
        """Compare peers' models with the node's own; losses take the time of its device.

        Args:
            node: the node that measures.
            own: its own model.
            peers: models by node id.

        Returns:
            Deferred mapping from node id to similarity.
        """
        models = [(peer.model,) for peer in peers.values()]
        if self.name == "inverse_loss":
            values = yield node.losses(models, self.batches, common=True, later=True)
        else:
            values = node.compare(self.name, (own.model,), models, **self._references(own, peers))
        return values.then(lambda found: self._similarities(peers, found))

    def look(
        self,
        node: int,
        own: ComparedModel,
        peers: Mapping[int, ComparedModel],
        compute: Compute,
        rng: np.random.Generator,
        local_state: Any = None,
    ) -> Deferred:
        """Compare models for monitoring, at no simulated time.

        Args:
            node: the node whose samples are used for losses.
            own, peers: as in `measure`.
            compute: the learner.
            rng: draws mini-batches.
            local_state: the learner's state of the node's trainings.
        """
        models = [(peer.model,) for peer in peers.values()]
        if self.name == "inverse_loss":
            batches = compute.batches_in("train", node) if self.batches is None else self.batches
            job = compute.losses(node, models, batches, rng, common=True, local_state=local_state)
        else:
            job = compute.compare(self.name, (own.model,), models, **self._references(own, peers))
        return Deferred(lambda: self._similarities(peers, compute.value(job)))

    def _similarities(self, peers: Mapping[int, ComparedModel], found: list[float]) -> dict[int, float]:
        """Return the similarity by node id, from losses, cosines or inverse distances; the lowest one for NaN."""
        if self.name == "inverse_loss":
            return dict(zip(peers, map(self.of_loss, found), strict=True))
        lowest = 0.0 if self.name == "inverse_l2" else -1.0
        return {peer: lowest if math.isnan(value) else value for peer, value in zip(peers, found, strict=True)}

    def _references(self, own: ComparedModel, peers: Mapping[int, ComparedModel]) -> dict[str, Any]:
        """Return the parameters to subtract from the models, see learning/job_types.py: SimilaritySpec."""
        if self.name != "cosine_gradients":
            return {}
        references: dict[str, Any] = {"alpha": self.alpha}
        if self.needs_common_start:
            references["start"] = (own.start,)
        if self.needs_last:
            references |= {"own_last": (own.last,), "peers_last": [(peer.last,) for peer in peers.values()]}
        return references


UnknownPeers = Literal["zero_similarity", "floor"]
Scaling = Literal["none", "min_max"]


def probabilities(
    scores: np.ndarray, tau: float, unknown: UnknownPeers = "floor", scaling: Scaling = "none", floor: float = 1e-6
) -> np.ndarray:
    """Return the probability of each peer, softmax(tau * score).

    Args:
        scores: similarity of each peer, NaN if unknown.
        tau: inverse temperature, >= 0.
        unknown: `zero_similarity`: an unknown peer has similarity 0; `floor`: only peers of positive similarity take
            part in the softmax, and `floor` is added to the probability of every peer.
        scaling: `min_max` maps the similarities that take part to 0..1 first; equal similarities remain equal.
        floor: see `unknown`.

    Returns:
        float64, sums to 1; uniform if nothing is known.
    """
    taking_part = np.ones(len(scores), bool) if unknown == "zero_similarity" else np.nan_to_num(scores) > 0
    weights = np.zeros(len(scores))
    if taking_part.any():
        chosen = np.nan_to_num(scores[taking_part].astype(np.float64))
        if scaling == "min_max":
            spread = chosen.max() - chosen.min()
            chosen = (chosen - chosen.min()) / (spread if spread > 0 else 1)
        logits = tau * chosen
        weights[taking_part] = np.exp(logits - logits.max())
        weights /= weights.sum()
    if unknown == "floor":
        weights += floor
    return weights / weights.sum()


def sigmoid_tau(round_num: int, tau_max: float, growth: float) -> float:
    """Return DAC-var's tau: 1 in round 0, up to tau_max + 1 as in the authors' code (in their text, tau_max)."""
    return 2 * tau_max / (1 + np.exp(-growth * round_num)) - tau_max + 1


def draw(rng: np.random.Generator, peers: Sequence[int], count: int, weights: np.ndarray | None = None) -> list[int]:
    """Draw different peers by probability, in ascending order; if too few have one above 0, draw the rest uniformly.

    Args:
        rng: the node's stream.
        peers: the nodes to draw from.
        count: number of peers to draw, at most all.
        weights: their probabilities, summing to 1; None: uniform.
    """
    return sorted(draw_in_turn(rng, peers, count, weights))


def draw_in_turn(
    rng: np.random.Generator, peers: Sequence[int], count: int, weights: np.ndarray | None = None
) -> list[int]:
    """Draw as `draw`, in the order of the draw; if all peers with a probability above 0 are drawn, they come first."""
    count = min(count, len(peers))
    candidates = np.array(peers, dtype=np.int64)
    if weights is None or not count:
        return rng.choice(candidates, count, replace=False).tolist() if count else []
    likely = np.flatnonzero(weights > 0)
    if len(likely) >= count:
        return rng.choice(candidates, count, replace=False, p=weights).tolist()
    unlikely = np.setdiff1d(np.arange(len(candidates)), likely)
    filled = np.concatenate([likely, rng.choice(unlikely, count - len(likely), replace=False)])
    return candidates[filled].tolist()


TwoHop = Literal["max", "min", "last", "none"]


@dataclass(frozen=True)
class Knowledge:
    """A node's similarities to all nodes.

    Args:
        scores: float32 [K], NaN if unknown.
        measured: bool [K], whether the node has ever measured it itself.
    """

    scores: np.ndarray
    measured: np.ndarray

    @classmethod
    def nothing(cls, num_nodes: int) -> "Knowledge":
        """Return the initial table, without similarities."""
        return cls(np.full(num_nodes, np.nan, np.float32), np.zeros(num_nodes, bool))

    def learn(
        self, own: int, measured: Mapping[int, float], tables: "Mapping[int, Knowledge]", rule: TwoHop, chained: bool
    ) -> "Knowledge":
        """Return the table after an exchange.

        Args:
            own: the node.
            measured: peer -> similarity, of this round; for `last` in the order in which the peers were drawn.
            tables: peer -> the table of that peer, for peers in `measured`.
            rule: estimate that counts if several peers have a similarity to a node; `none`: no estimates.
            chained: whether estimates are passed on.
        """
        scores, direct = self.scores.copy(), self.measured.copy()
        peers = sorted(measured)
        scores[peers] = [measured[peer] for peer in peers]
        direct[peers] = True
        if rule == "none":
            return Knowledge(scores, direct)
        # Later estimates overwrite earlier ones, so the estimate that counts comes last; among equals the lower id.
        sources = [peer for peer in measured if peer in tables]
        if rule != "last":
            sources.sort(key=lambda peer: (measured[peer] if rule == "max" else -measured[peer], -peer))
        for peer in sources:
            table = tables[peer]
            known = (np.nan_to_num(table.scores) > 0) if chained else table.measured
            estimated = known & ~direct
            estimated[own] = False
            scores[estimated] = table.scores[estimated]
        return Knowledge(scores, direct)


def table_bytes(num_nodes: int) -> int:
    """Return the bytes of a table in a message."""
    return 4 * num_nodes + -(-num_nodes // 8)
