"""torchvision's networks, stems as they are; core: everything up to the features, head: what makes logits of them.

Sources: He et al., "Deep residual learning for image recognition", CVPR 2016; Ma et al., "ShuffleNet V2", ECCV 2018;
Szegedy et al., "Going deeper with convolutions", CVPR 2015; Krizhevsky, "One weird trick for parallelizing
convolutional neural networks", 2014. With `latent` the net's own last layer becomes a linear layer to so many features
and the head is ReLU and a linear layer, as in MAPL's code (Mukherjee, "Model agnostic peer-to-peer learning", 2023):
whatever the network, heads of equal latent size are alike. Where we differ from that code: GoogLeNet has no auxiliary
classifiers, which are never trained there. Other than three channels change the first convolution alone.

Trainable parameters of the core with 512 latent features and three channels: resnet18 11,439,168, shufflenet_v2
1,778,404, googlenet 6,124,704; resnet18 as a whole with 100 classes 11,227,812, and 9,620 buffer values (20 counts).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddlsim.extras import needed
from ddlsim.models.base import ModelSettings
from ddlsim.models.pretrained import NONE, load_pretrained
from ddlsim.models.shapes import ImageShape, require, smallest_side
from ddlsim.units import UnitCount

if TYPE_CHECKING:
    from torch import nn

    from ddlsim.models.split import SplitModel

Latent = UnitCount | None
SMALLEST = 28


@dataclass(frozen=True, kw_only=True)
class ResNet18(ModelSettings):
    """torchvision's ResNet-18; images from 28 x 28 (they are not resized).

    Args:
        latent: size of the features that the head gets; null: the net's own 512.
        pretrained: none; torchvision: trained on ImageNet, downloaded; or the path of a state dict. All but the last
            layer begins with these weights, and images must have three channels.
    """

    latent: Latent = None
    pretrained: str = NONE

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        _check("resnet18", image_shape)
        fits = self.pretrained == NONE or image_shape[0] == 3
        require(fits, "resnet18 with pretrained weights", image_shape, f"3 channels, at least {SMALLEST} x {SMALLEST}")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torchvision's initialization or the pretrained weights.

        Raises:
            ScenarioError: if the images do not fit.
            DataMissing, DataDamaged: if the weights are not there or are of another network.
        """
        self.check(image_shape)
        resnet18 = needed("torchvision.models", "vision", "model: resnet18").resnet18

        def make(outputs: int) -> "nn.Module":
            net = resnet18(weights=None, num_classes=outputs)
            load_pretrained(net, self.pretrained, "ResNet18_Weights", "fc")
            return net

        return _split(make, "fc", image_shape, self.latent, num_classes, first="conv1")


@dataclass(frozen=True, kw_only=True)
class ShuffleNetV2(ModelSettings):
    """torchvision's ShuffleNet V2 x1.0, not pretrained; images from 28 x 28 (they are not resized).

    Args:
        latent: size of the features that the head gets; null: the net's own 1,024.
    """

    latent: Latent = None

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        _check("shufflenet_v2", image_shape)

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torchvision's initialization.

        Raises:
            ScenarioError: if the images do not fit.
        """
        self.check(image_shape)
        shufflenet_v2_x1_0 = needed("torchvision.models", "vision", "model: shufflenet_v2").shufflenet_v2_x1_0

        return _split(
            lambda outputs: shufflenet_v2_x1_0(weights=None, num_classes=outputs),
            "fc",
            image_shape,
            self.latent,
            num_classes,
            first="conv1.0",
        )


@dataclass(frozen=True, kw_only=True)
class GoogLeNet(ModelSettings):
    """torchvision's GoogLeNet without auxiliary classifiers, not pretrained; images from 28 x 28 (not resized).

    Args:
        latent: size of the features that the head gets; null: the net's own 1,024.
    """

    latent: Latent = None

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        _check("googlenet", image_shape)

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torchvision's initialization.

        Raises:
            ScenarioError: if the images do not fit.
        """
        self.check(image_shape)
        googlenet = needed("torchvision.models", "vision", "model: googlenet").googlenet

        def make(outputs: int) -> "nn.Module":
            return googlenet(weights=None, num_classes=outputs, aux_logits=False, init_weights=True)

        return _split(make, "fc", image_shape, self.latent, num_classes, first="conv1.conv")


@dataclass(frozen=True, kw_only=True)
class AlexNet(ModelSettings):
    """torchvision's AlexNet, not pretrained; images from 63 x 63 (see alexnet_small for smaller ones).

    Args:
        latent: size of the features that the head gets; null: the net's own 4,096.
    """

    latent: Latent = None

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        require(smallest_side(image_shape) >= 63, "alexnet", image_shape, "at least 63 x 63 pixels, any channels")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """A fresh model, torchvision's initialization.

        Raises:
            ScenarioError: if the images do not fit.
        """
        self.check(image_shape)
        alexnet = needed("torchvision.models", "vision", "model: alexnet").alexnet

        return _split(
            lambda outputs: alexnet(weights=None, num_classes=outputs),
            "classifier.6",
            image_shape,
            self.latent,
            num_classes,
            first="features.0",
        )


def _check(name: str, image_shape: ImageShape) -> None:
    wanted = f"at least {SMALLEST} x {SMALLEST} pixels, any channels"
    require(smallest_side(image_shape) >= SMALLEST, name, image_shape, wanted)


def _split(
    make: "Callable[[int], nn.Module]",
    last: str,
    image_shape: ImageShape,
    latent: int | None,
    num_classes: int,
    first: str,
) -> "SplitModel":
    """Cuts a network before its last linear layer, or makes that the core's own and puts a head after it."""
    from torch import nn

    from ddlsim.models.split import SplitModel, latent_head

    whole = make(latent or num_classes)
    if image_shape[0] != 3:
        old: Any = whole.get_submodule(first)  # a Conv2d, whose pairs torch types as tuples of any length
        new = nn.Conv2d(
            image_shape[0], old.out_channels, old.kernel_size, old.stride, old.padding, bias=old.bias is not None
        )
        whole.set_submodule(first, new)
    if latent:
        return SplitModel(whole, latent_head(latent, num_classes))
    head = whole.get_submodule(last)
    whole.set_submodule(last, nn.Identity())
    return SplitModel(whole, head)
