"""Two small convolutional networks without normalization; the head is the last linear layer.

Source: Listo Zec et al., "Decentralized adaptive clustering of deep nets", 2022, and its follow-ups, as their codes run
them. Where we differ: these end in logits (their log-softmax is part of the loss here), which trains alike.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Lt

from ddlsim.models.base import ModelSettings
from ddlsim.models.shapes import ImageShape, require

if TYPE_CHECKING:
    from ddlsim.models.split import SplitModel


@dataclass(frozen=True, kw_only=True)
class CifarCNN(ModelSettings):
    """LeNet-like network of the DAC paper for 3 x 32 x 32 images: 62,006 parameters at 10 classes.

    Args:
        dropout: share of the first linear layer's outputs dropped while training, 0 to below 1. The published network
            defines one of 0.5 and does not call it (see the notes of dac_cifar10_rotations).
    """

    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        require(image_shape == (3, 32, 32), "cifar_cnn", image_shape, "3 x 32 x 32")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization.

        Raises:
            ScenarioError: if the images do not fit.
        """
        from torch import nn

        from ddlsim.models.split import SplitModel

        self.check(image_shape)
        core = nn.Sequential(
            nn.Conv2d(3, 6, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            *([nn.Dropout(self.dropout)] if self.dropout else []),
            nn.Linear(120, 84),
            nn.ReLU(),
        )
        return SplitModel(core, nn.Linear(84, num_classes))


@dataclass(frozen=True, kw_only=True)
class FashionCNN(ModelSettings):
    """Two-convolution network of the DAC paper for 1 x 28 x 28 images: 56,714 parameters at 10 classes."""

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        require(image_shape == (1, 28, 28), "fashion_cnn", image_shape, "1 x 28 x 28")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization.

        Raises:
            ScenarioError: if the images do not fit.
        """
        from torch import nn

        from ddlsim.models.split import SplitModel

        self.check(image_shape)
        core = nn.Sequential(
            nn.Conv2d(1, 16, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(800, 64),
            nn.ReLU(),
        )
        return SplitModel(core, nn.Linear(64, num_classes))
