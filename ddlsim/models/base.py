"""What every model that a scenario can name has in common."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from ddlsim.models.shapes import ImageShape

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Base of the entries of MODELS; a model of your own that derives from it has the key `buffers` as well.

    Parameters that `build` has frozen (`requires_grad_(False)`) are one constant for all nodes: they are neither
    trained, merged, compared, sent nor counted.

    Args:
        buffers: floating-point buffers (BatchNorm statistics). shared: merged and sent like trained parameters; local:
            each node keeps its own. Integer buffers always stay with their node.
    """

    buffers: Literal["shared", "local"] = "shared"

    has_core: ClassVar[bool] = True
    """Whether anything comes before the head."""

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless samples of this shape fit; by default all do."""

    def build(self, image_shape: ImageShape, num_classes: int) -> "nn.Module":
        """A fresh module with submodules `core` and `head`; its random values come from torch's generator.

        Args:
            image_shape: of one sample, (C, H, W) for images.
            num_classes: number of outputs.
        """
        raise NotImplementedError
