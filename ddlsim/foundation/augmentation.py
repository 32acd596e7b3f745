"""The augmentation of training samples in a scenario, and its callables.

none, crop_flip or color, which are ddlsim's own (learning/augmenting.py); or a class of torchvision.transforms.v2 by
its name, with its arguments as keys; a class or function in a file (./mine.py:Mine); a callable that Python code gives;
or a list of these, applied in their order. Transforms inside a transform (RandomApply) are mappings with a name.
"""

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any

from ddlsim.foundation import own_code, sources
from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import DataMissing, ScenarioError, did_you_mean

BUILT_IN = ("none", "crop_flip", "color")
GIVEN = "given"
"""Name of a callable from Python code; its key `sha256` identifies it."""
REFUSED = {
    "Normalize": "It would change training samples alone: give mean and std of the data instead.",
    "MixUp": "It mixes labels, which is not supported.",
    "CutMix": "It mixes labels, which is not supported.",
}
"""Class of torchvision -> why it is refused."""

_given: dict[str, Callable[[Any], Any]] = {}


def as_text(value: Any) -> Any:
    """Return an augmentation as plain data; a callable becomes a digest that this process maps to it."""
    if isinstance(value, list | tuple):
        return [as_text(each) for each in value]
    if not callable(value):
        return value
    if isinstance(value, type):
        raise ScenarioError(f"training.augmentation: expected an object, got the class {value.__name__}. Call it.")
    known = [_text_of(each) for each in flattened([value])]
    unknown = uuid.uuid4().hex  # its runs are not reusable
    text = "\n".join(unknown if each is None else each for each in known)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    _given[digest] = value
    return {"name": GIVEN, "sha256": digest}


def _text_of(transform: Any) -> str | None:
    """A text by which another process knows a transform: its name and source digest if it is a function in a file, its
    `repr` if it is one of torchvision's. None: any other object.
    """
    if isinstance(transform, FunctionType):
        digest = sources.digest_of(transform)
        return digest and f"{transform.__qualname__} {digest}"
    inside = [type(each) for each in transform.modules()] if hasattr(transform, "modules") else []
    shown = all(each.__module__.startswith("torchvision.") and each.__name__ != "Lambda" for each in inside)
    return repr(transform) if inside and shown else None


def checked(value: Any) -> Any:
    """Return an augmentation if it is valid.

    Raises:
        ScenarioError: its name is not a callable's, or its keys do not fit the callable.
    """
    if value not in BUILT_IN:
        with suppress(DataMissing):  # reported on use: the records of a run can be read without it
            callables(value)
    return value


def callables(value: Any) -> list[Callable[[Any], Any]]:
    """Return the transforms of an augmentation that is not one of BUILT_IN, in order.

    Raises:
        ScenarioError: see `checked`. DataMissing: a transform is not available in this process.
    """
    if isinstance(value, list):
        return [each for inner in value for each in callables(inner)]
    keys = dict(value) if isinstance(value, Mapping) else {"name": value}
    name = keys.pop("name", None)
    if not isinstance(name, str) or name in BUILT_IN:
        raise ScenarioError(
            f"expected {', '.join(BUILT_IN)} alone, or transforms with a name, such as {{name: RandomCrop, size: 28, "
            f"padding: 4}}, got {name!r}"
        )
    if name == GIVEN:
        if keys.get("sha256") not in _given:
            raise DataMissing(
                f"training.augmentation: the transform {keys.get('sha256')} comes from Python and is not in this "
                "process. Pass it again, as training.augmentation or by ddlsim.data.Arrays(augment=...)."
            )
        return flattened([_given[keys["sha256"]]])
    if own_code.is_place(name):
        target = own_code.load_object(name)
    else:
        v2 = needed("torchvision.transforms.v2", "vision", "training.augmentation")
        target = getattr(v2, name, None)
        if not isinstance(target, type):
            meant = did_you_mean(name, [*BUILT_IN, *dir(v2)])
            raise ScenarioError(
                f"unknown name {name!r}.{meant} Known: {', '.join(BUILT_IN)}, classes of torchvision.transforms.v2, "
                "and ./mine.py:Mine"
            )
    try:
        inner = {key: _inner(each) for key, each in keys.items()}
        return flattened([target(**inner) if isinstance(target, type) else partial(target, **inner)])
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"{name}: {error}") from error


def flattened(transforms: Sequence[Any]) -> list[Callable[[Any], Any]]:
    """Return the transforms, with each Compose replaced by its transforms.

    Raises:
        ScenarioError: one is not supported.
    """
    found: list[Callable[[Any], Any]] = []
    for each in transforms:
        kind = type(each).__name__
        if kind in REFUSED and type(each).__module__.startswith("torchvision."):
            raise ScenarioError(f"{kind} is not supported as an augmentation. {REFUSED[kind]}")
        inner = each.transforms if kind == "Compose" else None
        found += [each] if inner is None else flattened(inner)
    return found


def _inner(value: Any) -> Any:
    """Return the value of a key, with mappings with a name replaced by transforms."""
    if isinstance(value, Mapping) and "name" in value:
        return callables(value)[0]
    if isinstance(value, list) and value and all(isinstance(each, Mapping) and "name" in each for each in value):
        return callables(value)
    return value
