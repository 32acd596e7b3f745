"""The three-convolution network that MAPL's code calls AlexNet; core: up to the latent features.

Source: the published code of Mukherjee, "Model agnostic peer-to-peer learning", 2023. The pooling has stride 1 after
the first convolution and 2 after the second, as there. 1,813,632 parameters in the core for three channels and 512
latent features.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Lt

from ddlsim.models.base import ModelSettings
from ddlsim.models.shapes import ImageShape, require, smallest_side
from ddlsim.units import UnitCount

if TYPE_CHECKING:
    from ddlsim.models.split import SplitModel

CHANNELS = (64, 128, 256)
CELLS = 3


@dataclass(frozen=True, kw_only=True)
class AlexNetSmall(ModelSettings):
    """Three convolutions and two linear layers with dropout, for small images from 6 x 6.

    Args:
        latent: size of the features that the head gets.
        dropout: share of the pooled features dropped while training, 0 to below 1.
    """

    latent: UnitCount = 512
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.5

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        require(smallest_side(image_shape) >= 6, "alexnet_small", image_shape, "at least 6 x 6 pixels, any channels")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization.

        Raises:
            ScenarioError: if the images do not fit.
        """
        self.check(image_shape)
        from torch import nn

        from ddlsim.models.split import SplitModel, latent_head

        one, two, three = CHANNELS
        core = nn.Sequential(
            nn.Conv2d(image_shape[0], one, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, stride=1, padding=1),
            nn.Conv2d(one, two, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2, padding=1),
            nn.Conv2d(two, three, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(CELLS),
            nn.Flatten(),
            nn.Dropout(self.dropout),
            nn.Linear(three * CELLS**2, 512),
            nn.ReLU(),
            nn.Linear(512, self.latent),
        )
        return SplitModel(core, latent_head(self.latent, num_classes))
