"""Terms of local losses, and results of evaluations.

Terms on features, prototypes and parameters are means over a batch, float32, differentiable.

Sources: supervised contrastive: Khosla et al., "Supervised contrastive learning", NeurIPS 2020; the others, and the two
variants, Mukherjee, "Model agnostic peer-to-peer learning", 2023, `thesis` (equations 3 to 5; sums over a batch are
means here, so that rates do not depend on the batch size) and `code`, as in the published code.

An evaluation accumulates the counts of a task batch after batch, and computes the metrics from them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ddlsim.kernels.matrices import downloaded
from ddlsim.tasks import Task

Variant = Literal["thesis", "code"]


def supervised_contrastive(features: Tensor, labels: Tensor, temperature: float, variant: Variant = "thesis") -> Tensor:
    """Pulls features of one label together and pushes others apart (equation 3).

    Args:
        features: [n, D], of any length; cosines are taken.
        labels: int64 [n].
        temperature: above 0; cosines are divided by it.
        variant: thesis: the mean over positives of logarithms; code: the logarithm of the sum over positives.

    Returns:
        Scalar; samples without another one of their label count 0 in the mean over all n.
    """
    directions = F.normalize(features, dim=1)
    logits = directions @ directions.T / temperature
    itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    positives = (labels[:, None] == labels[None, :]) & ~itself
    has_positives = positives.any(dim=1)
    counted = has_positives[:, None]  # other rows stay finite, because gradients of infinite ones are NaN
    everything = torch.logsumexp(logits.masked_fill(itself & counted, -torch.inf), dim=1)
    if variant == "code":
        alike = torch.logsumexp(logits.masked_fill(~positives & counted, -torch.inf), dim=1)
    else:
        alike = (logits * positives).sum(dim=1) / positives.sum(dim=1).clamp(min=1)
    return (everything - alike).masked_fill(~has_positives, 0.0).sum() / len(labels)


def prototype_contrast(
    features: Tensor, labels: Tensor, prototypes: Tensor, temperature: float, variant: Variant = "thesis"
) -> Tensor:
    """Pulls features to the prototype of their label and pushes them from the others (equation 4).

    Args:
        features: [n, D], of any length.
        labels: int64 [n], rows of `prototypes`.
        prototypes: [C, D].
        temperature: thesis: cosines are divided by it; code: it cancels, and prototypes keep their length.
        variant: see temperature.
    """
    directions = F.normalize(features, dim=1)
    if variant == "code":
        return F.cross_entropy(directions @ prototypes.T, labels)
    return F.cross_entropy(directions @ F.normalize(prototypes, dim=1).T / temperature, labels)


def prototype_uniformity(prototypes: Tensor, temperature: float, variant: Variant = "thesis") -> Tensor:
    """Return the loss that separates prototypes of different labels (equation 5).

    Args:
        prototypes: [C, D].
        temperature: of the code's exponentials; the thesis has none.
        variant: thesis: the sum of cosines over ordered pairs; code: per prototype the sum over the others of
            exp(inner product / temperature), then the mean.
    """
    apart = ~torch.eye(len(prototypes), dtype=torch.bool, device=prototypes.device)
    if variant == "code":
        return ((prototypes @ prototypes.T / temperature).exp() * apart).sum(dim=1).mean()
    directions = F.normalize(prototypes, dim=1)
    return ((directions @ directions.T) * apart).sum()


def proximity(now: Iterable[Tensor], before: Iterable[Tensor]) -> Tensor:
    """Return the sum over tensors of the mean squared distance from their values at the start."""
    return torch.stack([F.mse_loss(a, b) for a, b in zip(now, before, strict=True)]).sum()


def distance_to_targets(features: Tensor, labels: Tensor, targets: Mapping[int, Tensor]) -> Tensor:
    """Mean squared distance of features [n, D] from the target [D] of their label; labels without one count 0."""
    if not targets:
        return 0 * features.sum()  # with a gradient, of zero
    features = features.float()  # bfloat16 under training.precision bf16
    known = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
    aims = features.detach()
    for label, target in targets.items():
        own = labels == label
        known = known | own
        aims = torch.where(own[:, None], target, aims)
    return F.mse_loss(features * known[:, None], aims * known[:, None])


Loss = Callable[..., Tensor]
"""(outputs, labels, reduction) -> loss, see tasks/base.py: Task.loss."""


class EvalResult(NamedTuple):
    """One model on an evaluation set.

    Args:
        values: of the task's metrics, in their order.
        loss: mean over samples.
        confusion: counts int64 [C, C], row: true class; None of a task without classes.
    """

    values: tuple[float, ...]
    loss: float
    confusion: np.ndarray | None = None


class MetricSum:
    """The statistics of N models.

    Args:
        task: defines the counts.
        count: N.
        device: device of the counts.
    """

    def __init__(self, task: Task, count: int, device: torch.device):
        self._task = task
        self._batches: list[Tensor] = []
        self._losses = torch.zeros(count, dtype=torch.float64, device=device)
        self._samples = 0

    def add(self, outputs: Tensor, labels: Tensor, losses: Tensor) -> None:
        """Count one batch.

        Args:
            outputs: [N, n, ...].
            labels: [N, n, ...].
            losses: summed over the batch, [N].
        """
        found = self._task.statistics(outputs, labels)
        if self._batches and not self._task.keeps_samples:
            self._batches[0] = self._batches[0] + found
        else:
            self._batches.append(found)
        self._losses += losses
        self._samples += labels.shape[1]

    def results(self) -> list[EvalResult]:
        """Return the metrics of each model, computed from the counts."""
        return self.results_later()()

    def results_later(self) -> Callable[[], list[EvalResult]]:
        """Start copying the counts to the host; return a function that waits for them and returns the result of
        `results`.
        """
        statistics = downloaded(torch.cat(self._batches, dim=1) if self._task.keeps_samples else self._batches[0])
        losses, samples = downloaded(self._losses), self._samples

        def get() -> list[EvalResult]:
            found = []
            for own, total in zip(statistics(), losses().tolist(), strict=True):
                loss = total / samples
                found.append(EvalResult(self._task.values(own, loss), loss, self._task.confusion(own)))
            return found

        return get
