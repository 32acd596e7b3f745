"""Settings common to all models that a scenario can name, and the check, without torch, that images fit a model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from annotated_types import Ge, Lt
from pydantic import BeforeValidator

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.registry import Part

if TYPE_CHECKING:
    from torch import nn

    from ddlsim.models.split import SplitModel


ImageShape = tuple[int, ...]
"""Channels, height, width; of samples that are not images whatever shape they have."""


BUILD_ARGUMENTS = ("image_shape", "num_classes")
"""Arguments that a class or function that makes modules may take, by name."""


def require(fits: bool, model: str, image_shape: ImageShape, wanted: str) -> None:
    """Raise ScenarioError if images do not fit a model.

    Args:
        fits: whether they fit.
        model: the model's name in YAML.
        image_shape: (C, H, W) of the data.
        wanted: which shapes fit, e.g. "3 x 32 x 32".
    """
    if not fits:
        shape = " x ".join(map(str, image_shape)) or "single numbers"
        text = f"{model} takes images of {wanted} (channels x height x width), the data has {shape}"
        raise ScenarioError(f"model: {text}. Choose another model, or data of that shape.")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Part):
    """Base of the entries of MODELS; user-defined models that derive from it also have the key `buffers`.

    Parameters that `build` has frozen (`requires_grad_(False)`) are one constant for all nodes: they are neither
    trained, merged, compared, sent nor counted.

    Args:
        buffers: floating-point buffers (BatchNorm statistics). shared: merged and sent like trained parameters; local:
            each node keeps its own. Integer buffers always stay with their node.
    """

    buffers: Literal["shared", "local"] = "shared"

    @property
    def has_core(self) -> bool:
        """Whether anything comes before the head. Default: it does."""
        return True

    only_size: ClassVar[bool] = False
    """Whether it consists only of numbers of values (`part_sizes`), for network-only runs."""

    def part_sizes(self) -> Mapping[str, int]:
        """Number of float32 values per part, where `only_size`."""
        raise NotImplementedError(f"{type(self).__name__} must define part_sizes()")

    def fitted(self, num_tokens: int | None, label_shape: tuple[int, ...]) -> "ModelSettings":
        """Return the model for samples of `num_tokens` different tokens, with labels of this shape per sample; called
        before all else. Default: the model unchanged. Models of sequences fill in the keys that a scenario leaves open.

        Args:
            num_tokens: number of different tokens; None if samples are not tokens.
            label_shape: shape of one sample's labels; () for a single label.
        """
        return self

    def builders(self, image_shape: ImageShape, num_classes: int) -> "Mapping[str, Callable[[], nn.Module]]":
        """Return per architecture, by a name for messages, the function that makes a module. Default: `build` alone."""
        return {type(self).__name__: lambda: self.build(image_shape, num_classes)}

    def assignment(self, num_nodes: int, seed: int) -> list[str] | None:
        """Per node the name of its architecture in `builders`. Default: None, all nodes have the only one."""
        return None

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless samples of this shape fit; by default all do."""

    def build(self, image_shape: ImageShape, num_classes: int) -> "nn.Module":
        """Build a fresh module; its random values come from torch's generator.

        Its submodules `core` and `head` are the parts, and its forward is head(core(x)). In a module without these two,
        the last `nn.Linear` is the head and all else the core (whole.py).

        Args:
            image_shape: of one sample, (C, H, W) for images.
            num_classes: number of outputs.

        Raises:
            ScenarioError: if the options fit no network; names the key.
            DataMissing, DataDamaged: if files of initial weights are missing, or do not fit the model.
        """
        raise NotImplementedError


class ImageModel(ModelSettings):
    """Base of models for images of one shape, or from a smallest height and width."""

    name: ClassVar[str]
    """Name in YAML."""

    images: ClassVar[ImageShape | int]
    """The only shape that fits, (C, H, W); or the smallest height and width, of any channels."""

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit."""
        if isinstance(self.images, tuple):
            require(image_shape == self.images, self.name, image_shape, " x ".join(map(str, self.images)))
        else:
            fits = len(image_shape) == 3 and min(image_shape[1:]) >= self.images
            require(fits, self.name, image_shape, f"at least {self.images} x {self.images} pixels, any channels")

    def build(self, image_shape: ImageShape, num_classes: int) -> "SplitModel":
        """Return a fresh model with the initialization of torch.

        Raises:
            ScenarioError: if the images do not fit.
        """
        from ddlsim.models.split import SplitModel

        self.check(image_shape)
        return SplitModel(*self.parts(image_shape, num_classes))

    def parts(self, image_shape: ImageShape, num_classes: int) -> "tuple[nn.Module, nn.Module]":
        """Return a fresh core and a fresh head, in this order, since both draw from torch's generator."""
        raise NotImplementedError


def _whole(value: object) -> object:
    """Return a whole number written as 7e9 as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@dataclass(frozen=True, kw_only=True)
class Sizes(ModelSettings):
    """No model, only how large it is; for `learning: none`.

    Args:
        core: number of float32 values of the core, 4 bytes each on the wire; 7e9 is a number too.
        head: number of float32 values of the head.
    """

    core: Annotated[int, Ge(0), Lt(2**40), BeforeValidator(_whole)] = 79_584
    head: Annotated[int, Ge(0), Lt(2**40), BeforeValidator(_whole)] = 10_250

    only_size: ClassVar[bool] = True

    @property
    def has_core(self) -> bool:
        """Whether anything comes before the head."""
        return self.core > 0

    def part_sizes(self) -> dict[str, int]:
        """Number of float32 values per part."""
        return {"core": self.core, "head": self.head}
