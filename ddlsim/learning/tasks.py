"""What is learned, by name: the loss that training lowers and evaluations report."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

Loss = Callable[..., torch.Tensor]
"""(outputs, labels, reduction) -> loss; reduction "mean" (default), "sum" or "none" [b]."""


def squared_error(outputs: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Squared difference of outputs [b, 1] and labels float32 [b]."""
    return F.mse_loss(outputs.squeeze(-1), labels, reduction=reduction)


def cross_entropy(outputs: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Cross-entropy of logits [b, classes] and labels int64 [b], or of [b, T, classes] and [b, T] (the mean over T)."""
    if labels.dim() == 1:
        return F.cross_entropy(outputs, labels, reduction=reduction)
    each = F.cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="none")
    losses = each.view(len(labels), -1).mean(dim=1)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.mean()


LOSSES: dict[str, Loss] = {"classification": cross_entropy, "regression": squared_error}
"""Task -> loss; with reduction "none" one value per sample."""
