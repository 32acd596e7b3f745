"""How well a peer's model suits a node, by name.

Sources: Listo Zec et al., "Decentralized adaptive clustering of deep nets is beneficial for client collaboration",
FL-IJCAI 2022 (inverse loss); Hagander, Listo Zec et al., "On the effects of similarity metrics in decentralized deep
learning under distributional shift", section 3 (the four of them, equation 5); Li et al., "Towards effective clustered
federated learning: a peer-to-peer framework with adaptive neighbor matching" (PANM: alpha). The larger, the more alike.

The texts write the inverse of the sum of losses; the published codes take the mean over mini-batches of the batch
means, and so does this. Only trained parameters count, never buffers. A model that has diverged (a loss or a
product that is no number) is as unlike as a model can be, so that no rule ever prefers it.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ddlsim.errors import ScenarioError
from ddlsim.node.deferred import Deferred

if TYPE_CHECKING:
    import numpy as np

    from ddlsim.learning.bank import Params
    from ddlsim.node.node import Node, Verb
    from ddlsim.node.ports import Compute

SMALLEST_LOSS = 1e-12

SimilarityName = Literal["inverse_loss", "cosine_weights", "cosine_gradients", "inverse_l2"]


@dataclass(frozen=True)
class ComparedModel:
    """What is known of a model.

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
        kept: Any = None,
    ) -> Deferred:
        """The same, for monitoring: takes no simulated time.

        Args:
            node: the node that has the samples of a loss.
            own, peers, start: as of `measure`.
            compute: see node/ports.py.
            rng: draws mini-batches.
            kept: what the learner keeps of the node's trainings.
        """
        models = [(peer.model,) for peer in peers]
        if self.name == "inverse_loss":
            batches = compute.batches_in("train", node) if self.batches is None else self.batches
            losses = compute.losses(node, models, batches, rng, common=True, kept=kept)
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
