"""Classification: each sample has one class, or one at every position of a sequence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ddlsim.tasks.base import Reduction, Task
from ddlsim.tasks.labels import not_classes
from ddlsim.tasks.metric import ACCURACY, F1_MACRO, Metric
from ddlsim.tasks.scores import f1_of_confusion

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Classification(Task):
    """One of several classes per sample: cross-entropy, judged by accuracy.

    Args:
        metric: what nodes are judged by: accuracy; or f1_macro, with accuracy recorded beside it.
    """

    has_classes: ClassVar = True
    labels_in_words: ClassVar = "whole numbers from 0, [n] or [n, T]"
    measured: ClassVar = (ACCURACY, F1_MACRO)

    metric: Literal["accuracy", "f1_macro"] = "accuracy"

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Accuracy, beside what nodes are judged by; F1 only where they are; and what a subclass measures."""
        further = (each for each in self.measured if each not in Classification.measured)
        return tuple(dict.fromkeys((self.judged_by, ACCURACY, *further)))

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        """See Task."""
        return not_classes(labels, num_classes)

    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """Cross-entropy of logits [n, C] and labels int64 [n], or of [n, T, C] and [n, T] (the mean over T)."""
        from torch.nn import functional as F

        if labels.dim() == 1:
            return F.cross_entropy(outputs, labels, reduction=reduction)
        each = F.cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="none")
        losses = each.view(len(labels), -1).mean(dim=1)
        if reduction == "none":
            return losses
        return losses.sum() if reduction == "sum" else losses.mean()

    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """Confusion matrices int64 [N, C, C]; row: true class."""
        import torch

        count, classes = len(outputs), outputs.shape[-1]
        model = torch.arange(count, device=labels.device).view(-1, *[1] * (labels.dim() - 1))
        cells = (model * classes + labels) * classes + outputs.argmax(dim=-1)
        return _counts(cells.flatten(), count * classes * classes).view(count, classes, classes)

    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        """See Task."""
        return {"accuracy": float(np.trace(statistics) / statistics.sum()), "f1_macro": f1_of_confusion(statistics)}


def _counts(values: "torch.Tensor", size: int) -> "torch.Tensor":
    """How often each of 0 .. size-1 is among values int64 [n], int64 [size]."""
    import torch

    if values.device.type == "cpu":
        return torch.bincount(values, minlength=size)
    return torch.zeros(size, dtype=torch.int64, device=values.device).index_add_(  # bincount has the host wait
        0, values, torch.ones_like(values)
    )
