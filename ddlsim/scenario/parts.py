"""The named parts of a scenario: their tables, and conversion between mappings with a `name` and frozen dataclasses.

Tables are imported on the first lookup of a name, so that reading a scenario does not import torch.
"""

import dataclasses
import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path, PurePath
from typing import Any, NotRequired, get_args, get_type_hints

from pydantic import ConfigDict, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError, core_schema
from typing_extensions import TypedDict

from ddlsim.foundation import augmentation, own_code
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.registry import Registry
from ddlsim.scenario.synonyms import suggestion
from ddlsim.scenario.tree import Tree

TABLES = {
    "algorithm": "ddlsim.algorithms:ALGORITHMS",
    "aggregation": "ddlsim.aggregation:AGGREGATIONS",
    "attacks": "ddlsim.attacks:ATTACKS",
    "model": "ddlsim.models:MODELS",
    "data": "ddlsim.data:DATASETS",
    "task": "ddlsim.tasks:TASKS",
    "partition": "ddlsim.data:PARTITIONS",
    "shift": "ddlsim.data:SHIFTS",
    "topology": "ddlsim.topologies:TOPOLOGIES",
    "links": "ddlsim.network:LINKS",
    "compression": "ddlsim.network.messages.compression:COMPRESSIONS",
    "devices": "ddlsim.devices:DEVICES",
    "churn": "ddlsim.churn:CHURNS",
    "optimizer": "ddlsim.learning.optimizing:OPTIMIZERS",
    "schedule": "ddlsim.learning.optimizing:SCHEDULES",
}
"""Key of the scenario -> table of its names."""

LISTED = frozenset({"attacks"})
"""Keys with a list of named parts."""

OPTIONAL = frozenset({"aggregation", "churn", "schedule", "task"})
"""Keys that may be null; a null at another key is its part `none`, if there is one."""

SECTIONS = {"links": "network", "compression": "network", "optimizer": "training", "schedule": "training"}
"""Key of a named part -> its section; other named parts are at the top level."""

PART_PATHS = tuple((SECTIONS[key], key) if key in SECTIONS else (key,) for key in TABLES)
"""Paths of the named parts of a scenario."""


def table(key: str) -> Registry:
    """Return the table of the names of a key."""
    module, _, attribute = TABLES[key].partition(":")
    return getattr(importlib.import_module(module), attribute)


class NamedPart:
    """Marks a pydantic field as a named part: `{name: facade, heads: 2}` becomes `Facade(heads=2)`."""

    def __init__(self, key: str):
        self.key = key

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.make)

    def make(self, value: Any) -> Any:
        """Return the part of a mapping with a name.

        Raises:
            ValidationError: with every error of the mapping, located by key.
        """
        if not isinstance(value, dict):
            raise PydanticCustomError("part_type", "expected a mapping with a name")
        if "name" not in value:
            raise _located("missing", None, value)
        known = table(self.key)
        keys = {key: child for key, child in value.items() if key != "name"}
        try:
            cls = known[value["name"]]
        except (KeyError, TypeError):
            raise _located("unknown_name", unknown_name(known, value["name"]), value["name"]) from None
        except ScenarioError as error:  # a class from outside
            raise _located("refused", str(error), value["name"]) from error
        try:
            # Checked as JSON, pydantic's strict mode takes a list for a tuple and a mapping for a nested dataclass.
            made = cls(**checker(cls).validate_json(json.dumps(keys)))
            _check_defaults(made, keys)
            return made
        except ValidationError:
            raise
        except (ValueError, ScenarioError) as error:  # the part's own __post_init__
            raise refused(str(error)) from error
        except Exception as error:
            text = own_code.user_frame(error)
            if text is None:
                raise
            raise refused(text) from error


def refused(text: str) -> PydanticCustomError:
    """Return the error of a validator of pydantic whose text is reported as it is."""
    return PydanticCustomError("refused", "{text}", {"text": text})


def unknown_name(known: Registry, name: object) -> str:
    """Return the message on a name that is not in a table."""
    in_file = " A class in a file is named ./mine.py:Mine." if re.search("[:/]", str(name)) else ""
    hint = suggestion(name, [*known, *known.aliases], known.kind)
    return f"unknown name {name!r}.{hint}{in_file} Known: {', '.join(known)}"


def _located(kind: str, text: str | None, value: Any) -> ValidationError:
    error: Any = kind if text is None else PydanticCustomError(kind, "{text}", {"text": text})
    return ValidationError.from_exception_data("part", [{"type": error, "loc": ("name",), "input": value}])


@cache
def checker(cls: type) -> TypeAdapter:
    """Return the validator of a part's keys: strict types, bounds, no other keys.

    Raises:
        ScenarioError: the annotations of the class are faulty.
    """
    try:
        hints = get_type_hints(cls, include_extras=True)
        keys = {
            field.name: hints[field.name] if is_required(field) else NotRequired[hints[field.name]]
            for field in keys_of(cls)
        }
        make: Any = TypedDict  # checkers know only calls of it that they can read
        shape = make(cls.__name__, keys)
        shape.__pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
        return TypeAdapter(shape)
    except Exception as error:
        place = own_code.where(cls)
        text = f"{f'{place}: ' if place else ''}the fields of {cls.__qualname__} cannot be keys: {error}"
        raise ScenarioError(" ".join(text.split())) from error


def _check_defaults(part: Any, keys: Mapping[str, Any]) -> None:
    """Raise ScenarioError if a user-defined class has a default that its annotation forbids, because the scenario that
    a run writes, with all keys, could not be read."""
    if not own_code.is_from_outside(part):
        return
    cls: type = type(part)
    try:
        checker(cls).validate_json(json.dumps(plain(part)))
    except ValidationError as error:
        key, text = error.errors()[0]["loc"][0], error.errors()[0]["msg"]
        value, place = getattr(part, str(key)), own_code.where(cls)
        head = f"{f'{place}: ' if place else ''}{key} of {cls.__qualname__} is {value!r}"
        found = "" if key in keys else " by default, or as __post_init__ leaves it"
        hint = f" Write `{key}: ... | None = None`." if value is None else ""
        raise ScenarioError(f"{head}{found}, which its annotation does not allow: {text}.{hint}") from error


def keys_of(cls: type) -> list[dataclasses.Field]:
    """Return the fields of a part that are YAML keys."""
    return [field for field in dataclasses.fields(cls) if field.init]


def is_required(field: dataclasses.Field) -> bool:
    """Whether a key has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def default_of(field: dataclasses.Field) -> Any:
    """Return a key's default as plain YAML data; only for optional keys."""
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    return plain(value)


def to_plain(key: str, part: Any) -> dict[str, Any]:
    """Return a part as a mapping: its name, then all its keys."""
    return {"name": table(key).name_of(part), **plain(part)}


def plain(value: Any, path: str = "") -> Any:
    """Return dataclasses, tuples, paths and values of numpy and torch as plain YAML data.

    Args:
        value: value of a key, or mapping of keys.
        path: dotted path of the value, for messages.

    Raises:
        ScenarioError: a value that a scenario cannot hold.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in keys_of(type(value))}
    if isinstance(value, Mapping):
        return {str(key): plain(child, f"{path}.{key}".lstrip(".")) for key, child in value.items()}
    if isinstance(value, list | tuple | range):
        return [plain(child, f"{path}[{i}]") for i, child in enumerate(value)]
    if isinstance(value, Enum):  # also of texts and of numbers
        return plain(value.value, path)
    if value is None or isinstance(value, bool):
        return value
    for kind in (int, float, str):  # also NumPy's, and what extends these
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch
        return plain(value.tolist(), path)
    shown = " ".join(repr(value).split())
    raise ScenarioError(
        f"{path}{': ' if path else ''}expected a number, text, truth value, list or mapping, got a "
        f"{type(value).__name__} ({shown:.80}). Pass a text, and create the object in the class."
    )


def nested_dataclass(hint: Any) -> type | None:
    """Return the dataclass inside an annotation such as tuple[Absence, ...], or None."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next((found for arg in get_args(hint) if (found := nested_dataclass(arg))), None)


def first_line(cls: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(cls) or "").partition("\n")[0]


def key_docs(cls: type) -> dict[str, str]:
    """Return the text of each key from the `Args:` of the docstrings of a class and its bases."""
    found: dict[str, str] = {}
    for base in cls.__mro__:
        lines = inspect.cleandoc(base.__doc__ or "").splitlines()
        if "Args:" not in lines:
            continue
        key = None
        for line in lines[lines.index("Args:") + 1 :]:
            if line and not line.startswith(" "):
                break
            start = re.match(r"    (\w+): (.*)", line)
            if start:
                key = None if start[1] in found else start[1]
                if key:
                    found[key] = start[2]
            elif key and line.strip():
                found[key] += f" {line.strip()}"
    return found


def with_named_parts(mapping: dict[str, Any]) -> dict[str, Any]:
    """Replace objects, classes and mappings named by a class, as parts of a scenario, by mappings with a name.

    Raises:
        ScenarioError: a class does not keep its contract.
    """
    found = dict(mapping)
    for key in TABLES:
        if key in found:
            found[key] = _named_part(key, found[key])
    if "augmentation" in found:
        found["augmentation"] = augmentation.as_text(found["augmentation"])
    for section in ("network", "training", "fallback"):
        if isinstance(found.get(section), dict):
            found[section] = with_named_parts(found[section])
    return found


def _named_part(key: str, value: Any) -> Any:
    if key in LISTED and isinstance(value, list | tuple):
        return [_named_part(key, one) for one in value]
    if isinstance(value, type):
        return {"name": table(key).register_class(value)}
    if isinstance(value, dict) and isinstance(value.get("name"), type):
        return {**value, "name": table(key).register_class(value["name"])}
    if dataclasses.is_dataclass(value):
        table(key).register_class(type(value))
        return to_plain(key, value)
    return value


def named_parts(scenario: Any) -> Iterator[tuple[str, Any]]:
    """Yield the key and the part of every named part of a scenario."""
    for path in PART_PATHS:
        part = scenario
        for key in path:
            part = getattr(part, key)
        for one in part if path[-1] in LISTED else [part]:
            if one is not None:
                yield path[-1], one
                yield from ((path[-1], inner) for inner in getattr(one, "inner_parts", tuple)())


def places(scenario: Any) -> list[tuple[type, str]]:
    """Return the classes of parts that were loaded from files and modules, with their places."""
    classes = (type(part) for _, part in named_parts(scenario))
    return [(cls, place) for cls in classes if (place := own_code.place_of(cls)) is not None]


def origins(*scenarios: Any) -> list[dict[str, Any]]:
    """Return the manifest's entry on each user-defined part of scenarios, once if several scenarios share it."""
    found: list[dict[str, Any]] = []
    for scenario in scenarios:
        about = (table(key).about(part) for key, part in named_parts(scenario))
        found += [each for each in about if each is not None and (scenario is scenarios[0] or each not in found)]
    return found


def with_whole_paths(tree: Tree) -> Tree:
    """Make paths of classes absolute, relative to the folder of the scenario file or else the working directory."""
    if not tree.is_mapping:
        return tree
    found = {}
    for key, child in tree.value.items():
        if key in TABLES or key == "augmentation":
            child = with_whole_path(child)
        elif key in ("network", "training", "fallback"):
            child = with_whole_paths(child)
        found[key] = child
    return Tree(found, tree.mark, tree.key)


def with_whole_path(tree: Tree) -> Tree:
    """Make the path of a part's class absolute, also in the list of a mixed model."""
    if own_code.is_place(tree.value):
        folder = Path.cwd() if tree.mark.line is None else Path(tree.mark.source).parent
        return Tree(own_code.absolute(tree.value, folder), tree.mark, tree.key)
    if isinstance(tree.value, list):
        return Tree([with_whole_path(child) for child in tree.value], tree.mark, tree.key)
    if tree.is_mapping:
        inside = {key: with_whole_path(child) if key in ("name", "models") else child for key, child in tree.children()}
        return Tree(inside, tree.mark, tree.key)
    return tree
