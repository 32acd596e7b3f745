"""GN-LeNet: a LeNet with group normalization; core: the convolutions, head: the linear layer.

Source: Hsieh et al., "The non-IID data quagmire of decentralized machine learning", ICML 2020; in the form that the
FACADE paper's code runs (Biswas et al., SaTML 2025): 3 x (5x5 convolution, 2 groups, ReLU, 2x2 max pooling). 89,834
parameters for 3x32x32 images and 10 classes (core 79,584, head 10,250); 120,554 for 3x64x64. The "about 120k" and
"250k" of the paper count 41 classes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddlsim.models.base import ModelSettings
from ddlsim.models.shapes import ImageShape, require, smallest_side

if TYPE_CHECKING:
    from ddlsim.models.split import SplitModel

CHANNELS = (32, 32, 64)
GROUPS = 2
SHRINK = 8


@dataclass(frozen=True, kw_only=True)
class GNLeNet(ModelSettings):
    """LeNet with group normalization, the FACADE paper's CIFAR-10 model; any images from 8 x 8."""

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        require(smallest_side(image_shape) >= SHRINK, "gn_lenet", image_shape, "at least 8 x 8 pixels, any channels")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization.

        Raises:
            ScenarioError: if the images do not fit.
        """
        self.check(image_shape)
        return _build(image_shape, num_classes)


@dataclass(frozen=True, kw_only=True)
class LeNet64(ModelSettings):
    """GN-LeNet on 64 x 64 images, the FACADE paper's Imagenette model."""

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        require(image_shape == (3, 64, 64), "lenet64", image_shape, "3 x 64 x 64")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization.

        Raises:
            ScenarioError: if the images do not fit.
        """
        self.check(image_shape)
        return _build(image_shape, num_classes)


def _build(image_shape: ImageShape, num_classes: int) -> "SplitModel":
    from torch import nn

    from ddlsim.kernels.group_norm_pool import GroupNormReLUPool
    from ddlsim.models.split import SplitModel

    channels, height, width = image_shape
    layers: list[nn.Module] = []
    for out in CHANNELS:
        layers += [nn.Conv2d(channels, out, 5, padding=2), GroupNormReLUPool(GROUPS, out)]
        channels = out
    features = channels * (height // SHRINK) * (width // SHRINK)
    return SplitModel(nn.Sequential(*layers, nn.Flatten()), nn.Linear(features, num_classes))
