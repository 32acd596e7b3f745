"""ResNet8: three residual blocks with batch normalization; core: stem and first block, head: the rest.

Source: He et al., "Deep residual learning for image recognition", CVPR 2016; in the form that the FACADE paper's code
runs on Flickr-Mammals (Biswas et al., SaTML 2025), whose heads hold blocks 2 and 3 and the linear layer, 94% of the
parameters. 312,649 parameters and 1,353 buffer values for 3 channels and 41 classes (core 19,488, head 293,161).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddlsim.models.base import ModelSettings
from ddlsim.models.shapes import ImageShape, require, smallest_side

if TYPE_CHECKING:
    from ddlsim.models.split import SplitModel


@dataclass(frozen=True, kw_only=True)
class ResNet8(ModelSettings):
    """Three residual blocks, the FACADE paper's Flickr-Mammals model; any images from 4 x 4."""

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        require(smallest_side(image_shape) >= 4, "resnet8", image_shape, "at least 4 x 4 pixels, any channels")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization.

        Raises:
            ScenarioError: if the images do not fit.
        """
        from torch import nn

        from ddlsim.models.residual import ResidualBlock
        from ddlsim.models.split import SplitModel

        self.check(image_shape)
        stem = nn.Conv2d(image_shape[0], 32, 3, padding=1, bias=False)
        core = nn.Sequential(stem, nn.BatchNorm2d(32), nn.ReLU(), ResidualBlock(32, 32, 1))
        head = nn.Sequential(
            ResidualBlock(32, 64, 2),
            ResidualBlock(64, 128, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(128, num_classes),
        )
        return SplitModel(core, head)
