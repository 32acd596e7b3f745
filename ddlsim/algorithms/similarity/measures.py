"""Similarity of a peer's model to a node's own, by name. A larger value means more alike.

Sources: Listo Zec et al., "Decentralized adaptive clustering of deep nets is beneficial for client collaboration",
FL-IJCAI 2022 (inverse loss); Hagander, Listo Zec et al., "On the effects of similarity metrics in decentralized deep
learning under distributional shift", section 3 (all four, equation 5); Li et al., "Towards effective clustered
federated learning: a peer-to-peer framework with adaptive neighbor matching" (PANM: alpha).

The texts write the inverse of the sum of losses; the published codes, and this module, use the mean over mini-batches
of the batch means. Only trained parameters count, never buffers. A model that has diverged (its loss or product is NaN)
has the lowest possible similarity, so no rule prefers it.
"""

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ddlsim.foundation.errors import ScenarioError
from ddlsim.node.parameters import Deferred

if TYPE_CHECKING:
    import numpy as np

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
        last: parameters at the start of its last local training; only for cosine_gradients with alpha above 0.
        start: common start of all models; only for cosine_gradients with alpha below 1.
    """

    model: "Params"
    last: "Params | None" = None
    start: "Params | None" = None


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
        self, node: "Node", own: ComparedModel, peers: Mapping[int, ComparedModel]
    ) -> "Generator[Verb, Any, Deferred]":
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
        compute: "Compute",
        rng: "np.random.Generator",
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

    def _similarities(self, peers: Mapping[int, ComparedModel], found: "list[float]") -> dict[int, float]:
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
