"""Several architectures in one run: every node trains its own, and only parts that they have in common can be
merged.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from annotated_types import MinLen

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.own_code import is_place
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import CountOrZero, UnitCount
from ddlsim.models.base import ImageShape, ModelSettings

if TYPE_CHECKING:
    from ddlsim.models.split import SplitModel


@dataclass(frozen=True, kw_only=True)
class Mixed(ModelSettings):
    """A list of models, dealt to the nodes.

    Args:
        models: names, or mappings with a name and keys, of other models.
        assign: round_robin: node i has entry i modulo their number; random: each node draws one; or per node the
            position of its entry in `models`.
        latent: size of the features that every model hands to its head, for models that take one; null for their own.
    """

    models: Annotated[tuple[str | dict[str, Any], ...], MinLen(1)]
    assign: Literal["round_robin", "random"] | tuple[CountOrZero, ...] = "round_robin"
    latent: UnitCount | None = 512

    def __post_init__(self) -> None:
        self._parts()
        if isinstance(self.assign, tuple) and max(self.assign, default=0) >= len(self.models):
            raise ScenarioError(f"assign: expected entries of 0..{len(self.models) - 1}, got {max(self.assign)}.")

    @property
    def has_core(self) -> bool:
        """Whether in all of the models anything comes before the head."""
        return all(part.has_core for part in self._parts().values())

    def check(self, image_shape: ImageShape) -> None:
        """Raise ScenarioError unless the images fit all of the models."""
        for part in self._parts().values():
            part.check(image_shape)

    def fitted(self, num_tokens: int | None, label_shape: tuple[int, ...]) -> "Mixed":
        parts = list(self._parts().values())
        made = [part.fitted(num_tokens, label_shape) for part in parts]
        if all(one is other for one, other in zip(made, parts, strict=True)):
            return self
        names = [entry if isinstance(entry, str) else entry["name"] for entry in self.models]
        models = tuple({"name": name, **_keys(part)} for name, part in zip(names, made, strict=True))
        return dataclasses.replace(self, models=models)

    def builders(self, image_shape: ImageShape, num_classes: int) -> "dict[str, Callable[[], SplitModel]]":
        """Return per architecture, by its own name, the function that makes a fresh model.

        Raises:
            ScenarioError: if the images do not fit one of them.
        """
        self.check(image_shape)
        return {name: partial(part.build, image_shape, num_classes) for name, part in self._parts().items()}

    def assignment(self, num_nodes: int, seed: int) -> list[str]:
        """Per node the name of its architecture.

        Raises:
            ScenarioError: if `assign` is a list of another length.
        """
        names = list(self._parts())
        if self.assign == "round_robin":
            return [names[node % len(names)] for node in range(num_nodes)]
        if self.assign == "random":
            return [names[int(stream(seed, "architecture", node).integers(len(names)))] for node in range(num_nodes)]
        if len(self.assign) != num_nodes:
            raise ScenarioError(
                f"model.assign: expected one entry for each of {num_nodes} nodes, got {len(self.assign)}."
            )
        return [names[entry] for entry in self.assign]

    def inner_parts(self) -> "list[ModelSettings]":
        """The models in the list."""
        return list(self._parts().values())

    def _parts(self) -> dict[str, Any]:
        """The models by name; equal names are numbered."""
        made = [_make(entry, self.latent) for entry in self.models]
        names = [entry if isinstance(entry, str) else str(entry["name"]) for entry in self.models]
        names = [type(model).__name__ if is_place(name) else name for name, model in zip(names, made, strict=True)]
        distinct = [f"{name}#{position}" if names.count(name) > 1 else name for position, name in enumerate(names)]
        return dict(zip(distinct, made, strict=True))


def _keys(part: Any) -> dict[str, Any]:
    """Return the keys of a model that an entry may have."""
    return {each.name: getattr(part, each.name) for each in dataclasses.fields(part) if each.name != "buffers"}


def _make(entry: str | dict[str, Any], latent: int | None) -> Any:
    """Return the model that an entry names.

    Raises:
        ScenarioError: if the model does not exist, or a key or value does not fit it.
    """
    from pydantic import TypeAdapter, ValidationError

    from ddlsim.models import MODELS

    keys: dict[str, Any] = {"name": entry} if isinstance(entry, str) else dict(entry)
    name = keys.pop("name", None)
    known = [known for known in MODELS if known != "mixed"]
    if name not in known and not is_place(name):
        raise ScenarioError(f"models: unknown name {name!r}. Known: {', '.join(known)}.")
    model = MODELS[name]
    fields = [field.name for field in dataclasses.fields(model) if field.name != "buffers"]
    unknown = [key for key in keys if key not in fields]
    if unknown:
        raise ScenarioError(f"models: {name} has no key {unknown[0]!r}. Allowed: {', '.join(['name', *fields])}.")
    if latent is not None and "latent" in fields:
        keys.setdefault("latent", latent)
    name = model.__name__ if is_place(name) else name
    try:
        return TypeAdapter(model).validate_python(keys)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ScenarioError(f"models: {name}.{where}: {first['msg']}, got {first['input']!r}.") from error
