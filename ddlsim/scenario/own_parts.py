"""Parts of a scenario that are not ddlsim's own: classes in files, classes and objects that Python code gives."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddlsim.foundation import augmentation, own_code
from ddlsim.scenario import parts
from ddlsim.scenario.tree import Tree


def with_given_parts(mapping: dict[str, Any]) -> dict[str, Any]:
    """A scenario as a mapping in which parts may be objects, or classes, or mappings whose name is a class; all become
    mappings with a name.

    Raises:
        ScenarioError: if a class does not keep its contract.
    """
    found = dict(mapping)
    for key in parts.TABLES:
        if key in found:
            found[key] = _given(key, found[key])
    if "augmentation" in found:
        found["augmentation"] = augmentation.as_text(found["augmentation"])
    for section in ("network", "training", "fallback"):
        if isinstance(found.get(section), dict):
            found[section] = with_given_parts(found[section])
    return found


def _given(key: str, value: Any) -> Any:
    if key in parts.LISTED and isinstance(value, list | tuple):
        return [_given(key, one) for one in value]
    if isinstance(value, type):
        return {"name": parts.table(key).name_given(value)}
    if isinstance(value, dict) and isinstance(value.get("name"), type):
        return {**value, "name": parts.table(key).name_given(value["name"])}
    if dataclasses.is_dataclass(value):
        parts.table(key).name_given(type(value))
        return parts.to_plain(key, value)
    return value


def named_parts(scenario: Any) -> Iterator[tuple[str, Any]]:
    """The key and the part of every place of a scenario where a named part stands."""
    for path in parts.PART_PATHS:
        part = scenario
        for key in path:
            part = getattr(part, key)
        for one in part if path[-1] in parts.LISTED else [part]:
            if one is not None:
                yield path[-1], one
                yield from ((path[-1], inner) for inner in getattr(one, "inner_parts", tuple)())


def places(scenario: Any) -> list[tuple[type, str]]:
    """Classes of parts that were loaded from files and modules, and from where."""
    classes = (type(part) for _, part in named_parts(scenario))
    return [(cls, place) for cls in classes if (place := own_code.place_of(cls)) is not None]


def origins(*scenarios: Any) -> list[dict[str, Any]]:
    """What a manifest says of every part of scenarios that is not ddlsim's own; what several have stands there once."""
    found: list[dict[str, Any]] = []
    for scenario in scenarios:
        about = (parts.table(key).about(part) for key, part in named_parts(scenario))
        found += [each for each in about if each is not None and (scenario is scenarios[0] or each not in found)]
    return found


def with_whole_paths(tree: Tree) -> Tree:
    """A scenario in which classes in files are named by their whole paths: what stands in a file is relative to its
    folder, anything else to the working directory.
    """
    if not tree.is_mapping:
        return tree
    found = {}
    for key, child in tree.value.items():
        if key in parts.TABLES or key == "augmentation":
            child = with_whole_path(child)
        elif key in ("network", "training", "fallback"):
            child = with_whole_paths(child)
        found[key] = child
    return Tree(found, tree.mark, tree.key)


def with_whole_path(tree: Tree) -> Tree:
    """A part, or a name in the list of a mixed model."""
    if own_code.is_place(tree.value):
        folder = Path.cwd() if tree.mark.line is None else Path(tree.mark.source).parent
        return Tree(own_code.absolute(tree.value, folder), tree.mark, tree.key)
    if isinstance(tree.value, list):
        return Tree([with_whole_path(child) for child in tree.value], tree.mark, tree.key)
    if tree.is_mapping:
        inside = {key: with_whole_path(child) if key in ("name", "models") else child for key, child in tree.children()}
        return Tree(inside, tree.mark, tree.key)
    return tree
