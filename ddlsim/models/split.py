"""A model in two parts, and the basic residual block of He et al., "Deep residual learning for image recognition", CVPR
2016.
"""

import torch
from torch import nn
from torch.nn import functional as F


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
    """Return a head on latent features: ReLU, then a linear layer."""
    return nn.Sequential(nn.ReLU(), nn.Linear(latent, num_classes))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch normalization around a shortcut.

    Args:
        channels: of the input.
        out: channels of the output.
        stride: of the first convolution; with a stride or other channels the shortcut is a 1x1 convolution.
    """

    def __init__(self, channels: int, out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, channels, H, W] to [n, out, H/stride, W/stride]."""
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))
