"""A model in two parts."""

import torch
from torch import nn


class SplitModel(nn.Module):
    """core, then head.

    Args:
        core: images [n, C, H, W] to features.
        head: features to logits [n, classes].
    """

    def __init__(self, core: nn.Module, head: nn.Module):
        super().__init__()
        self.core = core
        self.head = head

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits [n, classes] of images [n, C, H, W]."""
        return self.head(self.core(images))


def latent_head(latent: int, num_classes: int) -> nn.Module:
    """What makes logits of latent features: ReLU, then a linear layer."""
    return nn.Sequential(nn.ReLU(), nn.Linear(latent, num_classes))
