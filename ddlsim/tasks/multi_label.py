"""Multi-label prediction: each sample has any number of L labels, also none or all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from ddlsim.tasks.base import Reduction, Task
from ddlsim.tasks.metric import AUROC, F1_MACRO, F1_MICRO
from ddlsim.tasks.scores import auroc, f1

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class MultiLabel(Task):
    """Any number of L labels per sample: binary cross-entropy of each, judged by F1 or the area under the ROC curve.

    A label is predicted where its output is above 0 (probability 1/2). Of one label per sample, [n, 1], it is binary
    classification with an AUROC.

    Args:
        metric: what nodes are judged by: f1_macro (mean over labels), f1_micro (of all labels' counts together), or
            auroc (mean over labels); all are recorded.
    """

    keeps_samples: ClassVar = True
    labels_in_words: ClassVar = "0 or 1 for each of L labels, [n, L]"
    measured: ClassVar = (F1_MACRO, F1_MICRO, AUROC)

    metric: Literal["f1_macro", "f1_micro", "auroc"] = "f1_macro"

    def num_outputs(self, num_classes: int, label_shape: tuple[int, ...]) -> int:
        """L."""
        return label_shape[0] if label_shape else num_classes

    def output_shape(self, num_outputs: int, label_shape: tuple[int, ...]) -> tuple[int, ...]:
        """[L]."""
        return (num_outputs,)

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        """See Task."""
        if labels.ndim == 2 and np.isin(labels, (0, 1)).all():
            return ""
        found = f", {labels.min()}..{labels.max()}" if labels.size else ""
        return f"must be {self.labels_in_words}, got {labels.dtype} {list(labels.shape)}{found}"

    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """Binary cross-entropy of logits [n, L] and labels [n, L], the mean over L."""
        from torch.nn import functional as F

        each = F.binary_cross_entropy_with_logits(outputs, labels.to(outputs.dtype), reduction="none").mean(dim=1)
        if reduction == "none":
            return each
        return each.sum() if reduction == "sum" else each.mean()

    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """Scores and labels of every sample, float32 [N, n, 2, L]."""
        import torch

        return torch.stack([outputs, labels.to(outputs.dtype)], dim=2)

    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        """See Task."""
        scores, labels = statistics[:, 0], statistics[:, 1] > 0
        predicted = scores > 0
        return {
            "f1_macro": f1(predicted, labels, "macro"),
            "f1_micro": f1(predicted, labels, "micro"),
            "auroc": auroc(scores, labels),
        }
