"""The table of models: a file or module may also have a torch.nn.Module class, or a function that makes modules.

The arguments of such a class or function are keys: `model: {name: ./nets.py:Net, width: 8}` is Net(width=8). It is
given `image_shape` and `num_classes` where it takes them by these names.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ddlsim import own_code
from ddlsim.errors import ScenarioError
from ddlsim.models.base import ModelSettings
from ddlsim.models.shapes import ImageShape
from ddlsim.part import Part
from ddlsim.registry import Registry

if TYPE_CHECKING:
    from torch import nn

GIVEN = ("image_shape", "num_classes")
PLAIN = (bool, int, float, str)


class ModelTable(Registry):
    """See Registry."""

    def _load_place(self, place: str) -> type:
        made = own_code.load_object(place)
        if isinstance(made, type) and (issubclass(made, Part) or not _makes_modules(made)):
            return made  # what is wrong with it is told
        return settings_of(made)


def _makes_modules(made: type) -> bool:
    """Whether a class is one of torch.nn.Module; a file without torch has none."""
    torch = sys.modules.get("torch")
    return torch is not None and issubclass(made, torch.nn.Module)


@cache
def settings_of(made: "Callable[..., nn.Module]") -> type[ModelSettings]:
    """The model that stands for a class or function; its keys are the arguments that these take.

    Raises:
        ScenarioError: if one has the name of a key of all models.
    """
    fields: list[Any] = []
    for key, argument in _signature(made).parameters.items():
        if key in GIVEN or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
            continue
        if (
            key in {field.name for field in dataclasses.fields(ModelSettings)}
            or argument.kind is argument.POSITIONAL_ONLY
        ):
            raise ScenarioError(f"{made.__qualname__} takes {key}, which cannot be a key. Give it another name.")
        kind = argument.annotation if argument.annotation in PLAIN else Any
        if argument.default is argument.empty:
            fields.append((key, kind))
        elif isinstance(argument.default, list | dict):
            copied = partial(type(argument.default), argument.default)
            fields.append((key, Any, dataclasses.field(default_factory=copied)))
        else:
            if kind is Any and type(argument.default) in PLAIN:
                kind = type(argument.default)
            fields.append((key, kind, dataclasses.field(default=argument.default)))
    namespace = {
        "made": staticmethod(made),
        "build": _build,
        "__module__": made.__module__,
        "__doc__": made.__doc__ or "",
    }
    bases = (ModelSettings,)
    cls = dataclasses.make_dataclass(made.__name__, fields, bases=bases, frozen=True, kw_only=True, namespace=namespace)
    own_code.stand_for(cls, made)
    return cls


def _build(self: Any, image_shape: ImageShape, num_classes: int) -> "nn.Module":
    """See ModelSettings."""
    arguments = _signature(self.made).parameters
    anything = any(each.kind is each.VAR_KEYWORD for each in arguments.values())  # torchvision's functions pass it on
    anything &= not _has_no_init(self.made)
    given: dict[str, Any] = {"image_shape": image_shape} if "image_shape" in arguments else {}
    given |= {"num_classes": num_classes} if "num_classes" in arguments or anything else {}
    keys = {each.name for each in dataclasses.fields(self)} - {each.name for each in dataclasses.fields(ModelSettings)}
    return self.made(**{key: getattr(self, key) for key in keys}, **given)


def _has_no_init(made: "Callable[..., nn.Module]") -> bool:
    """Whether a class leaves its making to torch.nn.Module, which seems to take any argument and refuses them all."""
    return isinstance(made, type) and made.__init__.__module__ == "torch.nn.modules.module"  # type: ignore[misc]


def _signature(made: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(made, eval_str=True)
    except (NameError, TypeError):
        return inspect.signature(made)
