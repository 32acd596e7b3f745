"""Label smoothing: targets that are spread over all classes by a share (Szegedy et al., CVPR 2016)."""

import torch
from torch.nn import functional as F

from ddlsim.learning.tested import Loss


def training_loss(loss: Loss, label_smoothing: float) -> Loss:
    """What training lowers: the task's loss, with smoothed labels if wanted.

    Cross-entropy with such targets is (1 - share) times the plain one and share times the mean of -log p over classes.

    Args:
        loss: of a classification; any, if labels are not smoothed.
        label_smoothing: the share, 0 up to below 1.
    """
    if not label_smoothing:
        return loss

    def smoothed(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        evenly = -F.log_softmax(outputs, dim=-1).mean()
        return (1 - label_smoothing) * loss(outputs, labels) + label_smoothing * evenly

    return smoothed
