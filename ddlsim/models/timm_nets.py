"""timm's image networks by name (Wightman, "PyTorch Image Models", 2019): pip install 'ddlsim[vision]'.

The head is the network's last linear layer, the core all the rest (whole.py).
"""

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddlsim.errors import DataMissing, ScenarioError
from ddlsim.models.base import ModelSettings
from ddlsim.models.pretrained import NONE, load_pretrained
from ddlsim.models.shapes import ImageShape, require

if TYPE_CHECKING:
    from types import ModuleType

    from torch import nn

Argument = bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Timm(ModelSettings):
    """A network of timm by its name, such as resnet18d or vit_tiny_patch16_224; its head is the last linear layer.

    Args:
        architecture: a name of timm.list_models().
        arguments: keys of timm.create_model and of the network, e.g. {img_size: 32, patch_size: 4}.
        pretrained: none, or the path of a state dict; all but the last layer begins with these weights.
    """

    architecture: str
    arguments: dict[str, Argument] = field(default_factory=dict, hash=False)
    pretrained: str = NONE

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless timm has the network and samples are images."""
        require(len(image_shape) == 3, "timm", image_shape, "images [C, H, W]")
        known = _timm().list_models()
        if self.architecture not in known:
            near = difflib.get_close_matches(self.architecture, known, n=3)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ScenarioError(f"model.architecture: timm has no network {self.architecture!r}.{meant}")

    def build(self, image_shape: ImageShape, num_classes: int) -> "nn.Module":
        """A fresh network with timm's initialization, or the weights of a file.

        Raises:
            ScenarioError: timm refuses the arguments.
            DataMissing, DataDamaged: the file is not there, or it is no state dict of this network.
        """
        self.check(image_shape)
        try:
            net = _timm().create_model(
                self.architecture, num_classes=num_classes, in_chans=image_shape[0], **self.arguments
            )
        except (TypeError, ValueError, RuntimeError, AssertionError) as error:
            raise ScenarioError(f"model.arguments: timm.create_model({self.architecture!r}): {error}") from error
        last = str(net.default_cfg.get("classifier", ""))
        load_pretrained(net, self.pretrained, "", last)
        return net


def _timm() -> "ModuleType":
    try:
        import timm
    except ImportError as error:
        raise DataMissing(f"model: timm is not installed ({error}): pip install 'ddlsim[vision]'.") from error
    return timm
