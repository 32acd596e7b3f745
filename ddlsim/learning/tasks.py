"""What is learned, by name: the loss that training lowers and evaluations report."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

Loss = Callable[..., torch.Tensor]
"""(outputs, labels, reduction) -> loss; reduction "mean" (default), "sum" or "none" [b]."""


def squared_error(outputs: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """Squared difference of outputs [b, 1] and labels float32 [b]."""
    return F.mse_loss(outputs.squeeze(-1), labels, reduction=reduction)


LOSSES: dict[str, Loss] = {"classification": F.cross_entropy, "regression": squared_error}
"""Task -> loss. Classification: outputs are logits [b, classes], labels int64 [b]."""
