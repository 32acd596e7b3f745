"""Regression: each sample has one number."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ddlsim.tasks.base import Reduction, Task
from ddlsim.tasks.metric import MSE

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Regression(Task):
    """One number per sample: squared error, judged by its mean."""

    records_loss: ClassVar = False
    label_dtype: ClassVar = "float32"
    labels_in_words: ClassVar = "finite float32 numbers, [n]"
    measured: ClassVar = (MSE,)

    def num_outputs(self, num_classes: int, label_shape: tuple[int, ...]) -> int:
        """One."""
        return 1

    def wrong_labels(self, labels: np.ndarray, num_classes: int) -> str:
        """See Task."""
        if labels.ndim == 1 and labels.dtype == np.float32 and np.isfinite(labels).all():
            return ""
        return f"must be {self.labels_in_words}, got {labels.dtype} {list(labels.shape)}"

    def loss(self, outputs: "torch.Tensor", labels: "torch.Tensor", reduction: Reduction = "mean") -> "torch.Tensor":
        """Squared difference of outputs [n, 1] and labels float32 [n]."""
        from torch.nn import functional as F

        return F.mse_loss(outputs.squeeze(-1), labels, reduction=reduction)

    def statistics(self, outputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
        """Nothing, [N, 0]: the loss says it all."""
        return outputs.new_zeros(len(outputs), 0)

    def measures(self, statistics: np.ndarray, loss: float) -> Mapping[str, float]:
        """See Task."""
        return {"mse": loss}
