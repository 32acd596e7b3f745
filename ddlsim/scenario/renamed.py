"""What had another name in the version before: it is taken for one more version, with a warning."""

import warnings

from ddlsim.scenario.tree import Problem, ScenarioProblems, Tree

KEYS = {
    ("device",): "compute_device",
    ("evaluation", "checkpoint"): "evaluated_model",
    ("protocol", "staleness"): "staleness_s",
}
"""Path of a key as it was -> its name now, in the same place."""

NEW_UNITS = {"protocol.staleness_s": "it counts simulated seconds, no longer rounds"}
"""Name of a key now -> how its unit has changed."""

VALUES: dict[tuple[str | int, str], str] = {
    ("name", "colour"): "color",
    ("name", "fibre"): "fiber",
    ("kind", "fibre"): "fiber",
    ("augmentation", "colour"): "color",
    ("candidates", "neighbours"): "neighbors",
    ("order", "after_normalising"): "after_normalizing",
    ("order", "before_normalising"): "before_normalizing",
}
"""A key, wherever it stands, and its value as it was -> its value now."""


class RenamedWarning(FutureWarning):
    """A scenario says something by its former name."""


def with_present_names(tree: Tree) -> Tree:
    """A scenario, or the part of one that a `--set` gives, with present names; its `fallback` likewise."""
    for path, name in KEYS.items():
        _rename_key(tree, path, name)
        _rename_key(tree, ("fallback", *path), name)
    _rename_values(tree)
    return tree


def present_path(path: tuple[str, ...], tree: Tree) -> tuple[str, ...]:
    """The path of a `--set` with present names."""
    plain = path[1:] if path[:1] == ("fallback",) else path
    if plain not in KEYS:
        return path
    _warn(tree, ".".join(path), ".".join((*path[:-1], KEYS[plain])))
    return (*path[:-1], KEYS[plain])


def _rename_key(tree: Tree, path: tuple[str, ...], name: str) -> None:
    section: Tree | None = tree
    for key in path[:-1]:
        section = section.child(key) if section is not None else None
    if section is None or not section.is_mapping or path[-1] not in section.value:
        return
    if name in section.value:
        text = f"is a former name of {'.'.join((*path[:-1], name))}, which is given as well; leave it out"
        raise ScenarioProblems([Problem(section.value[path[-1]].key, ".".join(path), text)])
    _warn(section.value[path[-1]], ".".join(path), ".".join((*path[:-1], name)))
    section.value = {name if key == path[-1] else key: value for key, value in section.value.items()}


def _rename_values(tree: Tree) -> None:
    for key, child in tree.children():
        if isinstance(child.value, str) and (key, child.value) in VALUES:
            _warn(child, f"{key}: {child.value}", f"{key}: {VALUES[key, child.value]}")
            child.value = VALUES[key, child.value]
        _rename_values(child)


def _warn(tree: Tree, was: str, now: str) -> None:
    unit = f", and {NEW_UNITS[now]}" if now in NEW_UNITS else ""
    text = f"{tree.key}: {was} is called {now} now{unit}; the former name will be refused by the next version."
    warnings.warn(RenamedWarning(text), stacklevel=2)
