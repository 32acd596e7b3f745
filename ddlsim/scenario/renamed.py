"""Keys that had another name in the version before: they are taken for one more version, with a warning."""

import warnings

from ddlsim.scenario.tree import Tree

KEYS = {("device",): "compute_device", ("evaluation", "checkpoint"): "evaluated_model"}
"""Path of a key as it was -> its name now, in the same place."""

VALUES: dict[tuple[str, ...], dict[str, str]] = {}
"""Path of a key -> its values as they were and as they are now."""


class RenamedWarning(FutureWarning):
    """A scenario says something by its former name."""


def with_present_names(tree: Tree) -> Tree:
    """A scenario, or a part of one, with present names; its `fallback` likewise."""
    for path, name in KEYS.items():
        tree = _renamed(tree, path, name)
        tree = _renamed(tree, ("fallback", *path), name)
    for path, values in VALUES.items():
        for place in (path, ("fallback", *path)):
            found = _at(tree, place)
            if found is not None and isinstance(found.value, str) and found.value in values:
                _warn(found, f"{'.'.join(path)}: {found.value}", f"{'.'.join(path)}: {values[found.value]}")
                found.value = values[found.value]
    return tree


def present_path(path: tuple[str, ...], tree: Tree) -> tuple[str, ...]:
    """The path of a `--set` with present names."""
    plain = path[1:] if path[:1] == ("fallback",) else path
    if plain not in KEYS:
        return path
    _warn(tree, ".".join(path), ".".join((*path[:-1], KEYS[plain])))
    return (*path[:-1], KEYS[plain])


def _at(tree: Tree | None, path: tuple[str, ...]) -> Tree | None:
    for key in path:
        tree = tree.child(key) if tree is not None else None
    return tree


def _renamed(tree: Tree, path: tuple[str, ...], name: str) -> Tree:
    section = _at(tree, path[:-1])
    if section is not None and section.is_mapping and path[-1] in section.value:
        child = section.value[path[-1]]
        _warn(child, ".".join(path), ".".join((*path[:-1], name)))
        section.value = {name if key == path[-1] else key: value for key, value in section.value.items()}
    return tree


def _warn(tree: Tree, was: str, now: str) -> None:
    text = f"{tree.key}: {was} is called {now} now; the former name will be refused by the next version."
    warnings.warn(RenamedWarning(text), stacklevel=2)
