"""torchvision's ResNet-18 with its stem as it is; core: everything up to the pooled features, head: the linear layer.

Source: He et al., "Deep residual learning for image recognition", CVPR 2016. 11,227,812 parameters and 9,620 buffer
values at 100 classes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddlsim.models.shapes import ImageShape, require

if TYPE_CHECKING:
    from ddlsim.models.split import SplitModel


@dataclass(frozen=True, kw_only=True)
class ResNet18:
    """torchvision's ResNet-18, not pretrained; 3-channel images from 32 x 32 (they are not resized)."""

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        fits = image_shape[0] == 3 and min(image_shape[1:]) >= 32
        require(fits, "resnet18", image_shape, "3 channels and at least 32 x 32 pixels")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torchvision's initialisation.

        Raises:
            ScenarioError: if the images do not fit.
        """
        self.check(image_shape)
        from torch import nn
        from torchvision.models import resnet18

        from ddlsim.models.split import SplitModel

        whole = resnet18(weights=None, num_classes=num_classes)
        head = whole.fc
        whole.fc = nn.Identity()
        return SplitModel(whole, head)
