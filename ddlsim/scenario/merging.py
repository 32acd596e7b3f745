"""Merging of scenarios: values laid over others, values put at a path, and keys in place of their aliases.

The tables of the parts have the aliases of names (`full` for complete).
"""

from typing import Any

from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario.parts import LISTED, OPTIONAL, PART_PATHS, TABLES, keys_of, table, with_whole_path
from ddlsim.scenario.per_node import PER_NODE
from ddlsim.scenario.tree import Problem, ScenarioProblems, Tree, is_training, value_at, with_long_names

ALIASES = {
    "training": {"lr": "learning_rate", "bs": "batch_size", "local_epochs": "epochs"},
    "data": {"target": "label", "test_share": "test_fraction", "test_size": "test_fraction", "file": "path"},
    **{part: {"file": "path"} for part in ("partition", "topology", "links", "devices", "churn")},
}
"""Section or kind of part -> alias of a key -> the key."""


def real_key(key: str, path: tuple[str, ...], name: Tree | None = None) -> str:
    """Return the real key of a key in the mapping at a path.

    Args:
        key: a key or an alias.
        path: path of the mapping.
        name: name of the part at this path, if any; a part with a key of the alias's name has no such alias.
    """
    if not is_training(path) and not is_part(path):
        return key
    real = ALIASES.get(path[-1], {}).get(key, key)
    if real == key or name is None or is_training(path):
        return real
    try:
        own = {field.name for field in keys_of(table(path[-1])[with_whole_path(name).value])}
    except (KeyError, TypeError, ScenarioError):  # which validation reports
        return real
    return real if real in own and key not in own else key


def with_real_keys(tree: Tree, path: tuple[str, ...], below: Tree | None = None) -> Tree:
    """Return the value at a path without aliases; null and {name: none} become the form of resolved scenarios.

    Args:
        tree: the value; the values below its keys are unchanged.
        path: its path.
        below: the value that it overrides, whose name also applies to a part without a name.
    Raises:
        ScenarioProblems: a key and its alias are both set.
    """
    key, name = path[-1] if path else "", tree.child("name")
    if key in OPTIONAL and name is not None and name.value == "none":
        return Tree(None, tree.mark, tree.key)
    if tree.value is None and key in {*TABLES} - OPTIONAL and "none" in table(key):
        return Tree({"name": Tree("none", tree.mark)}, tree.mark, tree.key)
    if not tree.is_mapping:
        return tree
    name = name or (below.child("name") if below is not None else None)
    found: dict[str, Tree] = {}
    for written, child in tree.value.items():
        real = real_key(written, path, name)
        if real in found or (real != written and real in tree.value):
            text = f"alias of {real}, which is also set; remove one of them"
            raise ScenarioProblems([Problem(child.key, ".".join((*path, written)), text)])
        found[real] = child
    return Tree(found, tree.mark, tree.key)


def is_part(path: tuple[str, ...]) -> bool:
    """Whether a named part is at this path, in the scenario or in its fallback."""
    return (path[1:] if path[:1] == ("fallback",) else path) in PART_PATHS


def as_mapping(tree: Tree, path: tuple[str, ...]) -> Tree:
    """Return `{name: el}` for the bare name of a part, `el`; every other value unchanged."""
    is_name = isinstance(tree.value, str) and is_part(path) and path[-1] not in LISTED
    return Tree({"name": Tree(tree.value, tree.mark)}, tree.mark, tree.key) if is_name else tree


def merge(below: Tree, above: Tree, path: tuple[str, ...] = ()) -> Tree:
    """Return `above` merged over `below`; values keep their marks, the arguments stay unchanged."""
    below, above = as_mapping(below, path), as_mapping(above, path)
    below, above = with_real_keys(below, path), with_real_keys(above, path, below)
    if is_training(path):
        below, above = with_long_names(below), with_long_names(above)
    whole = is_part(path) or path[-1:] == ("augmentation",) or (is_training(path[:-1]) and path[-1] in PER_NODE)
    if not (below.is_mapping and above.is_mapping) or (whole and "name" in above.value):
        return above
    merged = dict(below.value)
    for key, child in above.value.items():
        merged[key] = merge(merged.get(key, Tree({}, child.mark)), child, (*path, key))
    return Tree(merged, above.mark, above.key)


def put(tree: Tree | None, rest: tuple[str, ...], value: Tree, path: tuple[str, ...] = ()) -> Tree:
    """Return a tree with one value set, as `--set` does.

    A new `name` of a named part drops the keys of the old part; the same name keeps them.

    Args:
        tree: the tree at `path`; None: a new one.
        rest: path of the value from there.
        value: the value.
        path: path of the tree.
    """
    if not rest:
        return value
    if tree is not None:
        tree = with_real_keys(as_mapping(tree, path), path)
        tree = with_long_names(tree) if is_training(path) else tree
    here = dict(tree.value) if tree is not None and tree.is_mapping else {}
    key = rest[0]
    renames = rest == ("name",) and is_part(path) and "name" in here
    if renames and _canonical_name(path, here["name"]) != _canonical_name(path, value):
        here = {}
    here[key] = put(here.get(key), rest[1:], value, (*path, key))
    mark, at = (tree.mark, tree.key) if tree is not None else (value.mark, value.key)
    return Tree(here, mark, at)


def _canonical_name(path: tuple[str, ...], name: Tree) -> Any:
    """Return the name of a part without aliases, with the absolute path of a file."""
    found = with_whole_path(name).value
    return table(path[-1]).meant(found) if isinstance(found, str) else found


def applies_to_fallback(tree: Tree, path: tuple[str, ...]) -> bool:
    """Whether a change at a path also applies to the fallback, because the fallback sets this key or names the same
    part.

    Args:
        tree: a scenario merged over the defaults.
        path: path in the long form.
    """
    if value_at(tree, ("fallback", *path)) is not None:
        return True
    for depth in range(1, len(path)):
        if path[:depth] in PART_PATHS:
            own, other = (value_at(tree, (*start, *path[:depth], "name")) for start in ((), ("fallback",)))
            if own is not None and other is not None:
                return bool(_canonical_name(path[:depth], own) == _canonical_name(path[:depth], other))
    return False
