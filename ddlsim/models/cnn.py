"""Small networks for images: two CNNs without normalization, GN-LeNet, MAPL's AlexNet, fully connected models, and
ResNet8.

The two small convolutional networks have no normalization; the head is the last linear layer. Source: Listo Zec et al.,
"Decentralized adaptive clustering of deep nets", 2022, and its follow-ups, as their codes run them. Difference: these
end in logits (their log-softmax is part of the loss here), which trains alike.

GN-LeNet is a LeNet with group normalization; core: the convolutions, head: the linear layer. Source: Hsieh et al., "The
non-IID data quagmire of decentralized machine learning", ICML 2020; in the form that the FACADE paper's code runs
(Biswas et al., SaTML 2025): 3 x (5x5 convolution, 2 groups, ReLU, 2x2 max pooling). 89,834 parameters for 3x32x32
images and 10 classes (core 79,584, head 10,250); 120,554 for 3x64x64. The "about 120k" and "250k" of the paper count 41
classes.

MAPL's code calls a network with three convolutions AlexNet; core: up to the latent features. Source: the published code
of Mukherjee, "Model agnostic peer-to-peer learning", 2023. The pooling has stride 1 after the first convolution and 2
after the second, as there. 1,813,632 parameters in the core for three channels and 512 latent features.

VGG-11 has no normalization and two hidden layers of 512 units; core: all but the last layer. Source: Simonyan,
Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR 2015; in the form that the code of
RelaySGD (Vogels et al., NeurIPS 2021) runs on CIFAR-10.

The head of fully connected models is the last linear layer. Source of the mlp's default: Listo Zec et al.,
"Decentralized adaptive clustering of deep nets", 2022, and follow-ups (784-512-20 with dropout 0.2: 412,180
parameters).

ResNet8 has three residual blocks with batch normalization; core: stem and first block, head: the rest. Source: He et
al., "Deep residual learning for image recognition", CVPR 2016; in the form that the FACADE paper's code runs on
Flickr-Mammals (Biswas et al., SaTML 2025), whose heads hold blocks 2 and 3 and the linear layer, 94% of the parameters.
312,649 parameters and 1,353 buffer values for 3 channels and 41 classes (core 19,488, head 293,161).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, cast

from annotated_types import Ge, Lt

from ddlsim.foundation.units import UnitCount
from ddlsim.models.base import ImageModel, ImageShape, ModelSettings

if TYPE_CHECKING:
    from torch import nn

    from ddlsim.models.split import SplitModel


@dataclass(frozen=True, kw_only=True)
class CifarCNN(ImageModel):
    """LeNet-like network of the DAC paper for 3 x 32 x 32 images: 62,006 parameters at 10 classes.

    Args:
        dropout: share of the first linear layer's outputs dropped while training, 0 to below 1. The published network
            defines one of 0.5 and does not call it (see the notes of dac_cifar10_rotations).
    """

    name = "cifar_cnn"
    images = (3, 32, 32)
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.0

    def parts(self, image_shape: ImageShape, num_classes: int) -> "tuple[nn.Module, nn.Module]":
        from torch import nn

        core = nn.Sequential(
            *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU()),
            *([nn.Dropout(self.dropout)] if self.dropout else []),
            *(nn.Linear(120, 84), nn.ReLU()),
        )
        return core, nn.Linear(84, num_classes)


@dataclass(frozen=True, kw_only=True)
class FashionCNN(ImageModel):
    """Two-convolution network of the DAC paper for 1 x 28 x 28 images: 56,714 parameters at 10 classes."""

    name = "fashion_cnn"
    images = (1, 28, 28)

    def parts(self, image_shape: ImageShape, num_classes: int) -> "tuple[nn.Module, nn.Module]":
        from torch import nn

        core = nn.Sequential(
            *(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(800, 64), nn.ReLU()),
        )
        return core, nn.Linear(64, num_classes)


LENET_CHANNELS = (32, 32, 64)
GROUPS = 2
SHRINK = 8


@dataclass(frozen=True, kw_only=True)
class GNLeNet(ImageModel):
    """LeNet with group normalization, the FACADE paper's CIFAR-10 model; any images from 8 x 8."""

    name = "gn_lenet"
    images: ClassVar[ImageShape | int] = SHRINK

    def parts(self, image_shape: ImageShape, num_classes: int) -> "tuple[nn.Module, nn.Module]":
        from torch import nn

        channels, height, width = image_shape
        layers: list[nn.Module] = []
        for out in LENET_CHANNELS:
            layers += [nn.Conv2d(channels, out, 5, padding=2), nn.GroupNorm(GROUPS, out)]
            layers += [nn.MaxPool2d(2), nn.ReLU()]  # in this order a quarter of the pixels; the numbers are the same
            channels = out
        features = channels * (height // SHRINK) * (width // SHRINK)
        return nn.Sequential(*layers, nn.Flatten()), nn.Linear(features, num_classes)


@dataclass(frozen=True, kw_only=True)
class LeNet64(GNLeNet):
    """GN-LeNet on 64 x 64 images, the FACADE paper's Imagenette model."""

    name = "lenet64"
    images = (3, 64, 64)


VGG11_BLOCKS = ((64,), (128,), (256, 256), (512, 512), (512, 512))
"""Channels of the convolutions before each pooling."""
ALEXNET_CHANNELS = (64, 128, 256)
CELLS = 3


@dataclass(frozen=True, kw_only=True)
class AlexNetSmall(ImageModel):
    """Three convolutions and two linear layers with dropout, for small images from 6 x 6.

    Args:
        latent: size of the features that the head gets.
        dropout: share of the pooled features dropped while training, 0 to below 1.
    """

    name = "alexnet_small"
    images = 6
    latent: UnitCount = 512
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.5

    def parts(self, image_shape: ImageShape, num_classes: int) -> "tuple[nn.Module, nn.Module]":
        from torch import nn

        from ddlsim.models.split import latent_head

        one, two, three = ALEXNET_CHANNELS
        core = nn.Sequential(
            *(nn.Conv2d(image_shape[0], one, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, stride=1, padding=1)),
            *(nn.Conv2d(one, two, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2, padding=1)),
            *(nn.Conv2d(two, three, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(CELLS)),
            *(nn.Flatten(), nn.Dropout(self.dropout)),
            *(nn.Linear(three * CELLS**2, 512), nn.ReLU(), nn.Linear(512, self.latent)),
        )
        return core, latent_head(self.latent, num_classes)


@dataclass(frozen=True, kw_only=True)
class VGG11(ImageModel):
    """VGG-11 without normalization, for images from 32 x 32: 9,750,922 parameters for 3 channels and 10 classes.

    Args:
        dropout: share of the inputs of each hidden linear layer dropped while training, 0 to below 1.
    """

    name = "vgg11"
    images = 32
    dropout: Annotated[float, Ge(0), Lt(1)] = 0.5

    def parts(self, image_shape: ImageShape, num_classes: int) -> "tuple[nn.Module, nn.Module]":
        from torch import nn

        layers: list[nn.Module] = []
        channels = image_shape[0]
        for block in VGG11_BLOCKS:
            for width in block:
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
            layers.append(nn.MaxPool2d(2))
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        for _ in range(2):
            layers += [nn.Dropout(self.dropout), nn.Linear(512, 512), nn.ReLU()]
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(cast("nn.Parameter", layer.bias))
        return nn.Sequential(*layers), nn.Linear(512, num_classes)


@dataclass(frozen=True, kw_only=True)
class ResNet8(ImageModel):
    """Three residual blocks, the FACADE paper's Flickr-Mammals model; any images from 4 x 4."""

    name = "resnet8"
    images = 4

    def parts(self, image_shape: ImageShape, num_classes: int) -> "tuple[nn.Module, nn.Module]":
        from torch import nn

        from ddlsim.models.split import ResidualBlock

        stem = nn.Conv2d(image_shape[0], 32, 3, padding=1, bias=False)
        core = nn.Sequential(stem, nn.BatchNorm2d(32), nn.ReLU(), ResidualBlock(32, 32, 1))
        blocks = ResidualBlock(32, 64, 2), ResidualBlock(64, 128, 2)
        return core, nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes))


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

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """Return a fresh model with the initialization of torch."""
        from torch import nn

        from ddlsim.models.split import SplitModel

        units = math.prod(image_shape)
        layers: list[nn.Module] = [nn.Flatten()]
        for out in self.hidden:
            layers += [nn.Linear(units, out), nn.ReLU(), *([nn.Dropout(self.dropout)] if self.dropout else [])]
            units = out
        return SplitModel(nn.Sequential(*layers), nn.Linear(units, num_classes))


@dataclass(frozen=True, kw_only=True)
class Linear(ModelSettings):
    """One linear layer on the flattened image (multinomial logistic regression); the core is empty."""

    has_core = False

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """Return a fresh model with the initialization of torch."""
        return MLP(hidden=()).build(image_shape, num_classes)
