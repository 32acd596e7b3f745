"""Fully connected models; the head is the last linear layer.

Source of the mlp's default: Listo Zec et al., "Decentralized adaptive clustering of deep nets", 2022, and follow-ups
(784-512-20 with dropout 0.2: 412,180 parameters).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from annotated_types import Ge, Lt

from ddlsim.models.base import ModelSettings
from ddlsim.models.shapes import ImageShape
from ddlsim.units import UnitCount

if TYPE_CHECKING:
    from ddlsim.models.split import SplitModel


@dataclass(frozen=True, kw_only=True)
class MLP(ModelSettings):
    """Fully connected layers with ReLU on the flattened image, any shape.

    Args:
        hidden: units of each hidden layer.
        dropout: share of hidden units dropped while training, 0 to below 1.
    """

    hidden: tuple[UnitCount, ...] = (512,)
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0

    @property
    def has_core(self) -> bool:
        """Whether anything comes before the head."""
        return bool(self.hidden)

    def check(self, image_shape: ImageShape) -> None:
        """Every image fits."""

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization."""
        import math

        from torch import nn

        from ddlsim.models.split import SplitModel

        units = math.prod(image_shape)
        layers: list[nn.Module] = [nn.Flatten()]
        for out in self.hidden:
            layers += [nn.Linear(units, out), nn.ReLU()]
            if self.dropout:
                layers.append(nn.Dropout(self.dropout))
            units = out
        return SplitModel(nn.Sequential(*layers), nn.Linear(units, num_classes))


@dataclass(frozen=True, kw_only=True)
class Linear(ModelSettings):
    """One linear layer on the flattened image (multinomial logistic regression); the core is empty."""

    has_core: ClassVar[bool] = False

    def check(self, image_shape: ImageShape) -> None:
        """Every image fits."""

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torch's default initialization."""
        return MLP(hidden=()).build(image_shape, num_classes)
