"""The table of models, with the networks of torchvision and timm.

A file or module may also contain a torch.nn.Module class, or a function that makes modules. The arguments of such a
class or function are keys: `model: {name: ./nets.py:Net, width: 8}` is Net(width=8). It receives `image_shape` and
`num_classes` if it has arguments of these names.

A network starts with random weights, torchvision's, or those in a user's file.

torchvision's networks have their original stems; core: everything up to the features, head: the layers from features to
logits.

Sources: He et al., "Deep residual learning for image recognition", CVPR 2016; Ma et al., "ShuffleNet V2", ECCV 2018;
Szegedy et al., "Going deeper with convolutions", CVPR 2015; Krizhevsky, "One weird trick for parallelizing
convolutional neural networks", 2014. With `latent` the net's own last layer becomes a linear layer to `latent`
features, and the head is ReLU and a linear layer, as in MAPL's code (Mukherjee, "Model agnostic peer-to-peer learning",
2023): for any network, heads of equal latent size have the same layers. Difference from that code: GoogLeNet has no
auxiliary classifiers, which are never trained there. Other than three channels change the first convolution alone.

Trainable parameters of the core with 512 latent features and three channels: resnet18 11,439,168, shufflenet_v2
1,778,404, googlenet 6,124,704; resnet18 as a whole with 100 classes 11,227,812, and 9,620 buffer values (20 counts).

timm's image networks are available by name (Wightman, "PyTorch Image Models", 2019): pip install 'ddlsim[vision]'. The
head is the network's last linear layer, the core all the rest (whole.py).
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ddlsim.foundation import own_code
from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError, did_you_mean
from ddlsim.foundation.input_files import state_of
from ddlsim.foundation.registry import Part, Registry
from ddlsim.foundation.units import UnitCount
from ddlsim.models.base import BUILD_ARGUMENTS, ImageModel, ImageShape, ModelSettings, require

if TYPE_CHECKING:
    import torch
    from torch import nn


PLAIN = (bool, int, float, str)


class ModelTable(Registry):
    """Registry of models, which also accepts classes and functions that make modules."""

    def _load_place(self, place: str) -> type:
        factory = own_code.load_object(place)
        if isinstance(factory, type) and (issubclass(factory, Part) or not _makes_modules(factory)):
            return factory  # its error is reported later
        return settings_of(factory)


def _makes_modules(factory: type) -> bool:
    """Whether a class is one of torch.nn.Module; a file without torch has none."""
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(factory, torch.nn.Module)


@cache
def settings_of(factory: "Callable[..., nn.Module]") -> type[ModelSettings]:
    """Return the model of a class or function; its keys are the arguments of the class or function.

    Raises:
        ScenarioError: if an argument has the name of a key of all models.
    """
    fields: list[Any] = []
    for key, argument in _signature(factory).parameters.items():
        if key in BUILD_ARGUMENTS or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        if (
            key in {each.name for each in dataclasses.fields(ModelSettings)}
            or argument.kind is argument.POSITIONAL_ONLY
        ):
            raise ScenarioError(f"{factory.__qualname__} takes {key}, which cannot be a key. Give it another name.")
        kind = argument.annotation if argument.annotation in PLAIN else Any
        default = argument.default
        if default is argument.empty:
            fields.append((key, kind))
            continue
        if kind is Any and type(default) in PLAIN:
            kind = type(default)
        is_shared = isinstance(default, list | dict)
        fields.append(
            (key, kind, field(default_factory=partial(copy, default)) if is_shared else field(default=default))
        )
    namespace = {"module_factory": staticmethod(factory), "build": _build, "__module__": factory.__module__}
    namespace["__doc__"] = factory.__doc__ or ""
    bases = (ModelSettings,)
    cls = dataclasses.make_dataclass(
        factory.__name__, fields, bases=bases, frozen=True, kw_only=True, namespace=namespace
    )
    if place := own_code.place_of(factory):
        own_code.know(cls, place)
    return cls


def _build(self: Any, image_shape: ImageShape, num_classes: int) -> "nn.Module":
    """Build a fresh module, as ModelSettings.build does."""
    arguments = _signature(self.module_factory).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in arguments.values())  # torchvision's functions pass it on
    anything &= not _has_no_init(self.module_factory)
    shapes: dict[str, Any] = {"image_shape": image_shape} if "image_shape" in arguments else {}
    shapes |= {"num_classes": num_classes} if "num_classes" in arguments or anything else {}
    keys = {each.name for each in dataclasses.fields(self)} - {each.name for each in dataclasses.fields(ModelSettings)}
    return self.module_factory(**{key: getattr(self, key) for key in keys}, **shapes)


def _has_no_init(factory: "Callable[..., nn.Module]") -> bool:
    """Whether a class leaves its making to torch.nn.Module, which seems to take any argument and refuses them all."""
    return isinstance(factory, type) and factory.__init__.__module__ == "torch.nn.modules.module"  # type: ignore[misc]


def _signature(factory: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(factory, eval_str=True)
    except (NameError, TypeError):
        return inspect.signature(factory)


NONE, TORCHVISION = "none", "torchvision"
WRAPPERS = ("state_dict", "model", "model_state_dict", "net")
"""Keys under which training scripts save a state dict."""


def load_pretrained(net: "nn.Module", pretrained: str, weights: str, last: str) -> None:
    """Load weights into a network, except into its last layer, whose classes differ.

    Args:
        net: a fresh network of torchvision.
        pretrained: torchvision, or the path of a file with a state dict (torch.save), also as training scripts wrap it
            (state_dict, model, module.), or none to keep the random weights.
        weights: torchvision's name of the network's weights, e.g. "ResNet18_Weights".
        last: name of the last layer in the network.
    Raises:
        DataMissing: if the file is missing, or torchvision's was not downloaded.
        DataDamaged: if it is not a state dict of this network.
    """
    if pretrained == NONE:
        return
    wanted = [name for name in net.state_dict() if not name.startswith(last + ".")]
    found = _unwrapped(_read(pretrained, weights, state_of(pretrained)), wanted, last)
    values = {name: each for name, each in found.items() if not name.startswith(last + ".")}
    try:
        lacking = net.load_state_dict(values, strict=False)
    except RuntimeError as error:
        what = str(error).splitlines()[-1].strip()
        raise DataDamaged(f"model.pretrained: {pretrained} does not fit: {what}") from error
    missing = [name for name in lacking.missing_keys if not name.startswith(last + ".")]
    if missing or lacking.unexpected_keys:
        wrong = ", ".join([*(f"no {name}" for name in missing[:3]), *lacking.unexpected_keys[:3]])
        raise DataDamaged(f"model.pretrained: {pretrained} holds the weights of another network ({wrong}).")


def _unwrapped(found: Mapping[str, Any], wanted: Sequence[str], last: str) -> "Mapping[str, torch.Tensor]":
    """Return the weights in a checkpoint: the weights under a wrapper's key, without a prefix of all names (module.),
    if all names then fit; else the checkpoint unchanged.
    """
    for own in (found, *(found[key] for key in WRAPPERS if isinstance(found.get(key), Mapping))):
        ends = [name.removesuffix(wanted[0]) for name in map(str, own) if name.endswith(wanted[0])]
        for prefix in dict.fromkeys(("", *ends)):
            names = {str(name).removeprefix(prefix): value for name, value in own.items()}
            fits = {name for name in names if not name.startswith(last + ".")} == set(wanted)
            if fits and all(str(name).startswith(prefix) for name in own):
                return names
    return found


@lru_cache(maxsize=2)
def _read(pretrained: str, weights: str, state: tuple[int, int, int] | None) -> "dict[str, torch.Tensor]":
    """Read a state dict; it is cached until the file changes, because every node's model starts with it."""
    import torch

    if pretrained == TORCHVISION:
        models = needed("torchvision.models", "vision", "model.pretrained: torchvision")
        chosen = models.get_weight(f"{weights}.DEFAULT")
        try:
            return chosen.get_state_dict(progress=False, check_hash=True)
        except (OSError, RuntimeError) as error:  # URLError and timeouts are OSErrors, a wrong hash is a RuntimeError
            text = f"torchvision's weights did not come by download: {error}. Get {chosen.url} and give the file's path"
            raise DataMissing(f"model.pretrained: {text}.") from error
    path = Path(pretrained).expanduser()
    if not path.is_file():
        raise DataMissing(f"model.pretrained: expected none, torchvision or the path of a state dict, got {path}.")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that torch cannot read raises errors of any type
        raise DataDamaged(f"model.pretrained: {path} cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(found, dict):
        raise DataDamaged(f"model.pretrained: {path} holds {type(found).__name__}, expected a state dict.")
    return found


@dataclass(frozen=True, kw_only=True)
class _Torchvision(ImageModel):
    """Base of networks of torchvision, cut before their last linear layer, or followed by a head on latent features."""

    function: ClassVar[str]
    """Name of the function in torchvision.models that makes the network."""

    first: ClassVar[str]
    last: ClassVar[str] = "fc"
    """Names of the first convolution and of the last linear layer in the network."""

    arguments: ClassVar[Mapping[str, bool]] = {}
    """Further arguments of the function."""

    images: ClassVar[ImageShape | int] = 28
    latent: UnitCount | None = None

    def parts(self, image_shape: ImageShape, num_classes: int) -> "tuple[nn.Module, nn.Module]":
        from torch import nn

        from ddlsim.models.split import latent_head

        make = getattr(needed("torchvision.models", "vision", f"model: {self.name}"), self.function)
        whole = make(weights=None, num_classes=self.latent or num_classes, **self.arguments)
        self.load_weights(whole)
        channels = image_shape[0]
        if channels != 3:
            old: Any = whole.get_submodule(self.first)  # a Conv2d, whose pairs torch types as tuples of any length
            sizes = old.out_channels, old.kernel_size, old.stride, old.padding
            whole.set_submodule(self.first, nn.Conv2d(channels, *sizes, bias=old.bias is not None))
        if self.latent:
            return whole, latent_head(self.latent, num_classes)
        head = whole.get_submodule(self.last)
        whole.set_submodule(self.last, nn.Identity())
        return whole, head

    def load_weights(self, net: "nn.Module") -> None:
        """Load initial weights into a fresh network. Default: torchvision's random ones remain."""


@dataclass(frozen=True, kw_only=True)
class ResNet18(_Torchvision):
    """torchvision's ResNet-18; images from 28 x 28 (they are not resized).

    Args:
        latent: size of the features that the head gets; null for the net's own 512.
        pretrained: none; torchvision: trained on ImageNet, downloaded; or the path of a state dict. All but the last
            layer starts with these weights, and images must have three channels.
    """

    name = function = "resnet18"
    first = "conv1"
    pretrained: str = NONE

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        super().check(image_shape)
        fits = self.pretrained == NONE or image_shape[0] == 3
        require(fits, "resnet18 with pretrained weights", image_shape, "3 channels, at least 28 x 28")

    def load_weights(self, net: "nn.Module") -> None:
        """Load the pretrained weights, if any.

        Raises:
            DataMissing, DataDamaged: if the weights are missing or are of another network.
        """
        load_pretrained(net, self.pretrained, "ResNet18_Weights", self.last)


@dataclass(frozen=True, kw_only=True)
class ShuffleNetV2(_Torchvision):
    """torchvision's ShuffleNet V2 x1.0, not pretrained; images from 28 x 28 (they are not resized).

    Args:
        latent: size of the features that the head gets; null: the net's own 1,024.
    """

    name, function, first = "shufflenet_v2", "shufflenet_v2_x1_0", "conv1.0"


@dataclass(frozen=True, kw_only=True)
class GoogLeNet(_Torchvision):
    """torchvision's GoogLeNet without auxiliary classifiers, not pretrained; images from 28 x 28 (not resized).

    Args:
        latent: size of the features that the head gets; null: the net's own 1,024.
    """

    name = function = "googlenet"
    first = "conv1.conv"
    arguments: ClassVar[Mapping[str, bool]] = {"aux_logits": False, "init_weights": True}


@dataclass(frozen=True, kw_only=True)
class AlexNet(_Torchvision):
    """torchvision's AlexNet, not pretrained; images from 63 x 63 (see alexnet_small for smaller ones).

    Args:
        latent: size of the features that the head gets; null: the net's own 4,096.
    """

    name = function = "alexnet"
    first, last, images = "features.0", "classifier.6", 63


Argument = bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class Timm(ModelSettings):
    """A network of timm by its name, such as resnet18d or vit_tiny_patch16_224; its head is the last linear layer.

    Args:
        architecture: a name of timm.list_models().
        arguments: keys of timm.create_model and of the network, e.g. {img_size: 32, patch_size: 4}.
        pretrained: none, or the path of a state dict; all but the last layer starts with these weights.
    """

    architecture: str
    arguments: dict[str, Argument] = field(default_factory=dict, hash=False)
    pretrained: str = NONE

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless timm has the network and samples are images."""
        require(len(image_shape) == 3, "timm", image_shape, "images [C, H, W]")
        known = needed("timm", "vision", "model").list_models()
        if self.architecture not in known:
            meant = did_you_mean(self.architecture, known)
            raise ScenarioError(f"model.architecture: timm has no network {self.architecture!r}.{meant}")

    def build(self, image_shape: ImageShape, num_classes: int) -> "nn.Module":
        """A fresh network with timm's initialization, or the weights of a file.

        Raises:
            ScenarioError: timm refuses the arguments.
            DataMissing, DataDamaged: the file is missing, or is not a state dict of this network.
        """
        self.check(image_shape)
        try:
            net = needed("timm", "vision", "model").create_model(
                self.architecture, num_classes=num_classes, in_chans=image_shape[0], **self.arguments
            )
        except (TypeError, ValueError, RuntimeError, AssertionError) as error:
            raise ScenarioError(f"model.arguments: timm.create_model({self.architecture!r}): {error}") from error
        load_pretrained(net, self.pretrained, "", str(net.default_cfg.get("classifier", "")))
        return net
