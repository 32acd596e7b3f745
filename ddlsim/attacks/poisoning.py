"""Attacks that poison a node's training data: label flip and backdoor.

Sources: label flip c -> C - 1 - c: Fang, Cao, Jia, Gong, "Local model poisoning attacks to Byzantine-robust federated
learning", USENIX Security 2020, and Allouah et al., "Fixing by mixing", AISTATS 2023; trigger: Gu, Dolan-Gavitt, Garg,
"BadNets", 2017. The backdoor's success is measured at every evaluation: the share of test samples of other classes that
a node classifies as the target when they bear the trigger (`backdoor_success`).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Gt, Le

from ddlsim.attacks.base import Attack
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import Count, CountOrZero

if TYPE_CHECKING:
    import numpy as np
    import torch


BACKDOOR = "backdoor"
"""Split of test samples that bear a trigger."""


@dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    """Trains on flipped labels: of the C classes that occur in the data, class c becomes C - 1 - c."""

    counts_occurring: ClassVar[bool] = True
    needs_classes: ClassVar[bool] = True

    def poison(
        self, inputs: "torch.Tensor", labels: "torch.Tensor", num_classes: int, rng: "np.random.Generator"
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        return inputs, num_classes - 1 - labels


@dataclass(frozen=True, kw_only=True)
class Backdoor(Attack):
    """Trains a trigger: samples that bear it get the label of the target class.

    Args:
        target: the class.
        fraction: share of the node's samples that bear the trigger.
        size: for images, side in pixels of the square in the lower right corner, set to the largest value; for rows of
            numbers or tokens, number of last entries, set to the largest number, or to token 0.
    """

    needs_classes: ClassVar[bool] = True
    target: CountOrZero = 0
    fraction: Annotated[float, Gt(0), Le(1)] = 0.5
    size: Count = 3

    def poison(
        self, inputs: "torch.Tensor", labels: "torch.Tensor", num_classes: int, rng: "np.random.Generator"
    ) -> "tuple[torch.Tensor, torch.Tensor]":
        import torch

        if self.target >= num_classes:
            raise ScenarioError(
                f"attacks: target of backdoor: expected a class from 0 to {num_classes - 1}, got {self.target}."
            )
        chosen = torch.from_numpy(rng.permutation(len(labels))[: max(1, round(self.fraction * len(labels)))])
        chosen = chosen.to(labels.device)
        bearing, inputs, labels = self.triggered(inputs), inputs.clone(), labels.clone()
        inputs[chosen] = bearing[chosen]
        labels[chosen] = self.target
        return inputs, labels

    def triggered(self, inputs: "torch.Tensor") -> "torch.Tensor":
        """Return a copy of the samples with the trigger."""
        found = inputs.clone()
        if not found.numel():
            return found
        if found.dim() == 4:
            brightest = found.amax(dim=(0, 2, 3))[None, :, None, None]
            found[:, :, -self.size :, -self.size :] = brightest
        else:
            found[..., -self.size :] = found.max() if found.is_floating_point() else 0
        return found

    def measured_on(self, inputs: "torch.Tensor", labels: "torch.Tensor") -> "tuple[torch.Tensor, torch.Tensor]":
        """Return test samples of other classes (at every position, if they have several) with the trigger, and the
        target as their labels.
        """
        import torch

        others = (labels != self.target).reshape(len(labels), -1).all(1).nonzero().flatten()
        if not len(others):
            raise ScenarioError(
                f"attacks: target of backdoor: expected test samples of other classes, to measure success on, got a "
                f"test set with class {self.target} in every sample. Use another target, or other test sets."
            )
        return self.triggered(inputs[others]), torch.full_like(labels[others], self.target)
