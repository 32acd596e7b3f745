"""How well a peer's model suits a node, by name.

Sources: Listo Zec et al., "Decentralized adaptive clustering of deep nets is beneficial for client collaboration",
FL-IJCAI 2022 (inverse loss); Hagander, Listo Zec et al., "On the effects of similarity metrics in decentralized deep
learning under distributional shift", section 3 (the four of them, equation 5); Li et al., "Towards effective clustered
federated learning: a peer-to-peer framework with adaptive neighbor matching" (PANM: alpha). The larger, the more alike.

The texts write the inverse of the sum of losses; the published codes take the mean over mini-batches of the batch
means, and so does this. Only trained parameters count, never buffers. A model that has diverged (a loss or a
product that is no number) is as unlike as a model can be, so that no rule ever prefers it.

Two groups of similarities told apart, neighbors and others, by a mixture of two normal distributions.

Source: Li et al., "Towards effective clustered federated learning: a peer-to-peer framework with adaptive neighbor
matching", and Hagander's thesis, appendix B, algorithm 3 (NAEM: hard expectation maximization). The thesis writes the
likelihood as Phi((s - mean) / deviation) without the factor 1 / deviation; its code takes the normal density, which is
what expectation maximization asks for, and so does this.

From similarities to probabilities, and from those to peers.

Sources: Listo Zec et al., FL-IJCAI 2022, and their code (softmax, DAC-var's sigmoid); the code of Hagander's thesis
(the floor, min-max scaling).

A node's similarities to all others: those it has measured itself, and estimates through third parties.

Source: Listo Zec et al., FL-IJCAI 2022, section 3: a peer k that was asked also sends its own similarities, and a node
takes k's similarity to j as an estimate of its own, unless it has ever measured j itself. If several peers have
a similarity to j:

- `max`: the estimate of the peer that is most similar to the node counts, as in the texts of both papers (the first
  one's formula beside that sentence has an arg min) and in the first code since August 2023;
- `last`: that of the peer that was drawn last counts, however similar it is. This is what the first code did before
  (it sorted the peers by their place among those drawn), from its first version of 2022 on, so most likely what made
  the first paper's numbers;
- `min`: that of the least similar peer counts. This is what the code behind "On the effects of similarity metrics in
  decentralized deep learning under distributional shift" does (a reversed comparison), and so its published numbers.

The first code passes estimates on, so that they travel more than two hops (`chained`); the second one passes on only
what was measured. A table travels as a float32 and one bit ("measured") per node.
"""

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.node.checks import Deferred

if TYPE_CHECKING:
    from ddlsim.learning.bank import Params
    from ddlsim.node.node import Node, Verb
    from ddlsim.node.ports import Compute


SMALLEST_LOSS = 1e-12

SimilarityName = Literal["inverse_loss", "cosine_weights", "cosine_gradients", "inverse_l2"]


@dataclass(frozen=True)
class ComparedModel:
    """Information on a model.

    Args:
        model: its parameters.
        last: what its last local training began with; only cosine_gradients with alpha above 0 needs it.
    """

    model: "Params"
    last: "Params | None" = None


@dataclass(frozen=True)
class Similarity:
    """One measure with its options.

    Args:
        name: see SimilarityName.
        alpha: of cosine_gradients: weight of the last local update; the rest is the update since the common start.
        batches: of inverse_loss: local mini-batches per model; None: all of the node's training samples.
        offset: of inverse_loss: 1 / (loss + offset).
    """

    name: SimilarityName
    alpha: float = 0.0
    batches: int | None = None
    offset: float = 1e-6

    @property
    def needs_last(self) -> bool:
        """Whether a model travels with what its last local training began with, as many values again."""
        return self.name == "cosine_gradients" and self.alpha > 0

    @property
    def needs_common_start(self) -> bool:
        """Whether all nodes must start from one model."""
        return self.name == "cosine_gradients" and self.alpha < 1

    def of_loss(self, loss: float) -> float:
        """The inverse of a loss; a loss of 0 is as good as the smallest number, not infinitely good. One that is no
        number is as bad as an infinite one.
        """
        return 0.0 if math.isnan(loss) else 1 / max(loss + self.offset, SMALLEST_LOSS)

    def check(self) -> None:
        """Raise ScenarioError for an alpha that nothing uses."""
        if self.alpha and self.name != "cosine_gradients":
            raise ScenarioError(f"alpha is for similarity cosine_gradients; {self.name} expects 0, got {self.alpha:g}.")

    def measure(
        self, node: "Node", own: ComparedModel, peers: Sequence[ComparedModel], start: "Params | None"
    ) -> "Generator[Verb, Any, Deferred]":
        """How alike each peer's model is to the node's own; a loss takes its device's time.

        Args:
            node: the node that measures.
            own: its own model.
            peers: the others'.
            start: the common start, for cosine_gradients.

        Returns:
            Deferred list of floats, one per peer.
        """
        models = [(peer.model,) for peer in peers]
        if self.name == "inverse_loss":
            losses = yield node.losses(models, self.batches, common=True, later=True)
            return losses.then(lambda found: [self.of_loss(loss) for loss in found])
        return node.compare(self.name, (own.model,), models, **self._references(own, peers, start)).then(self._numbers)

    def look(
        self,
        node: int,
        own: ComparedModel,
        peers: Sequence[ComparedModel],
        start: "Params | None",
        compute: "Compute",
        rng: "np.random.Generator",
        local_state: Any = None,
    ) -> Deferred:
        """The same, for monitoring: takes no simulated time.

        Args:
            node: the node that has the samples of a loss.
            own, peers, start: as of `measure`.
            compute: see node/ports.py.
            rng: draws mini-batches.
            local_state: what the learner keeps of the node's trainings.
        """
        models = [(peer.model,) for peer in peers]
        if self.name == "inverse_loss":
            batches = compute.batches_in("train", node) if self.batches is None else self.batches
            losses = compute.losses(node, models, batches, rng, common=True, local_state=local_state)
            return Deferred(lambda: [self.of_loss(loss) for loss in compute.value(losses)])
        job = compute.compare(self.name, (own.model,), models, **self._references(own, peers, start))
        return Deferred(lambda: self._numbers(compute.value(job)))

    def _numbers(self, similarities: Sequence[float]) -> list[float]:
        """Cosines or inverse distances; what is no number becomes the least that there is."""
        least = 0.0 if self.name == "inverse_l2" else -1.0
        return [least if math.isnan(found) else found for found in similarities]

    def _references(self, own: ComparedModel, peers: Sequence[ComparedModel], start: "Params | None") -> dict[str, Any]:
        """What is subtracted from the models, see learning/job_types.py: SimilaritySpec."""
        if self.name != "cosine_gradients":
            return {}
        references: dict[str, Any] = {"alpha": self.alpha}
        if self.needs_common_start:
            references["start"] = (start,)
        if self.needs_last:
            references |= {"own_last": (own.last,), "peers_last": [(peer.last,) for peer in peers]}
        return references


MOST_STEPS = 100


def neighbors_by_mixture(
    scores: Mapping[int, float], neighbors: set[int], smallest_deviation: float = 1e-9
) -> set[int]:
    """Reassigns candidates between "neighbor" and "other" until nothing changes.

    Args:
        scores: candidate -> similarity.
        neighbors: the candidates that count as neighbors at first.
        smallest_deviation: of a group, so that one whose similarities are all the same attracts just its like. With 0
            all are then counted among the others, as by the comparison with 0 / 0 in the published code.

    Returns:
        The neighbors in the end. If none is left they are those of the beginning; if the others do, all are.
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
    """Share times normal density of a group at every value; NaN where its deviation is 0."""
    mean, deviation = values[members].mean(), max(values[members].std(), smallest_deviation)
    share = members.mean()
    return share * np.exp(-0.5 * ((values - mean) / deviation) ** 2) / deviation


UnknownPeers = Literal["zero_similarity", "floor"]
Scaling = Literal["none", "min_max"]


def probabilities(
    scores: np.ndarray, tau: float, unknown: UnknownPeers = "floor", scaling: Scaling = "none", floor: float = 1e-6
) -> np.ndarray:
    """How likely each peer is drawn: softmax(tau * score).

    Args:
        scores: per peer its similarity, NaN where it is not known.
        tau: inverse temperature, >= 0.
        unknown: `zero_similarity`: a peer not known counts as one of similarity 0; `floor`: only peers of positive
            similarity take part in the softmax, and every peer gets `floor` on top, unknown and disliked ones too.
        scaling: `min_max` spreads the similarities that take part over 0..1 first; where all are equal they stay so.
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
    """DAC-var's schedule: 1 in round 0, rising to tau_max + 1 as in the authors' code; in their text, to tau_max."""
    return 2 * tau_max / (1 + np.exp(-growth * round_num)) - tau_max + 1


def draw(rng: np.random.Generator, peers: Sequence[int], count: int, weights: np.ndarray | None = None) -> list[int]:
    """Different peers by probability, ascending; if too few have any, the rest uniformly.

    Args:
        rng: the node's stream.
        peers: the nodes to draw from.
        count: how many; all of them if there are not so many.
        weights: their probabilities, summing to 1; None: uniform.
    """
    return sorted(draw_in_turn(rng, peers, count, weights))


def draw_in_turn(
    rng: np.random.Generator, peers: Sequence[int], count: int, weights: np.ndarray | None = None
) -> list[int]:
    """The same peers in the order in which they were drawn; where all of any probability are, those come first."""
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
    """One node's similarities to all nodes.

    Args:
        scores: float32 [K], NaN where nothing is known.
        measured: bool [K], whether the node has ever measured it itself.
    """

    scores: np.ndarray
    measured: np.ndarray

    @classmethod
    def nothing(cls, num_nodes: int) -> "Knowledge":
        """A node's first table: no similarities."""
        return cls(np.full(num_nodes, np.nan, np.float32), np.zeros(num_nodes, bool))

    def learn(
        self, own: int, measured: Mapping[int, float], tables: "Mapping[int, Knowledge]", rule: TwoHop, chained: bool
    ) -> "Knowledge":
        """The table after an exchange.

        Args:
            own: the node.
            measured: peer -> similarity, of this round; for `last` in the order in which the peers were drawn.
            tables: peer -> the table of that peer, for peers in `measured`.
            rule: which estimate counts if several peers have a similarity to a node; `none`: no estimates.
            chained: whether estimates are passed on.
        """
        scores, direct = self.scores.copy(), self.measured.copy()
        peers = sorted(measured)
        scores[peers] = [measured[peer] for peer in peers]
        direct[peers] = True
        if rule == "none":
            return Knowledge(scores, direct)
        # From the estimate that counts least to the one that counts most, since later ones overwrite. Of equals the
        # lower id counts.
        believed = [peer for peer in measured if peer in tables]
        if rule != "last":
            believed.sort(key=lambda peer: (measured[peer] if rule == "max" else -measured[peer], -peer))
        for peer in believed:
            table = tables[peer]
            known = (np.nan_to_num(table.scores) > 0) if chained else table.measured
            open_to_hearsay = known & ~direct
            open_to_hearsay[own] = False
            scores[open_to_hearsay] = table.scores[open_to_hearsay]
        return Knowledge(scores, direct)


def table_bytes(num_nodes: int) -> int:
    """Bytes that a table takes on the wire."""
    return 4 * num_nodes + -(-num_nodes // 8)
