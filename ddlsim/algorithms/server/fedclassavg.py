"""FedClassAvg: heads averaged by a server, contrast among two views of images, and a pull towards the mean head.

Source: Jang, Ha, Jung, Yoon, "FedClassAvg: Local representation learning for personalized federated learning on
heterogeneous neural networks", ICPP 2022, as MAPL's code runs it (Mukherjee, 2023): supervised contrastive loss on the
features of both views, cross-entropy on the first, and proximal / 2 times the mean squared distance of the head's
tensors from their values at the round's start. fedsim.py defines the round.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Gt

from ddlsim.algorithms.server.fedsim import FedSim
from ddlsim.learning.training_inputs import LocalStep, Objective

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class FedClassAvg(FedSim):
    """Heads averaged by a server, representations learned by contrast.

    Args:
        variant: of the contrastive loss, see learning/losses.py.
        temperature: of the contrastive loss; published with MAPL: 100.
        contrastive: weight of the contrastive loss.
        proximal: weight of the distance from the head at the round's start.
    """

    may_change: ClassVar[frozenset[str]] = frozenset({"temperature", "contrastive", "proximal"})
    needs_classes: ClassVar[bool] = True
    own_loss: ClassVar[bool] = True
    variant: Literal["code", "thesis"] = "code"
    temperature: Annotated[float, Gt(0)] = 100.0
    contrastive: Annotated[float, Ge(0)] = 1.0
    proximal: Annotated[float, Ge(0)] = 0.1

    @property
    def as_published(self) -> tuple[str, ...]:
        return ("variant code",) if self.variant == "code" else ()

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        yield from super().unused_keys(rounds)
        if not self.contrastive:
            for key in ("temperature", "variant"):
                yield key, "contrastive is 0"

    def objective(self) -> Objective:
        return Objective(self.local_loss, views=2, keeps_start=True)

    def local_loss(self, step: LocalStep) -> "torch.Tensor":
        """Contrastive loss on features, cross-entropy of the first view, and distance of the head from its start."""
        from ddlsim.learning import losses

        features = step.module.core(step.images)
        first = slice(step.batch_size)
        loss = step.task_loss(step.module.head(features[first]), step.labels[first])
        loss = loss + self.contrastive * losses.supervised_contrastive(
            features.flatten(1), step.labels, self.temperature, self.variant
        )
        names, now = zip(*step.module.head.named_parameters(prefix="head"), strict=True)
        return loss + self.proximal / 2 * losses.proximity(now, [step.start[name] for name in names])
