"""One rule for laying a mapping over another: defaults, `extends`, `fallback` and parts of sweeps all follow it.

A mapping is merged key by key, but one that gives a `name` for a named part replaces that part whole: the keys of the
part that stood there belong to another one. Everything else replaces what was there. `--set` puts the value that it
gives in the place of what is there, whatever it is: a mapping too replaces a whole section.
"""

from typing import Any

from ddlsim.scenario.own_parts import with_whole_path
from ddlsim.scenario.parts import PART_PATHS, table
from ddlsim.scenario.problems import Mark
from ddlsim.scenario.shorthand import is_training, with_long_names
from ddlsim.scenario.tree import Tree


def is_part(path: tuple[str, ...]) -> bool:
    """Whether a named part stands at this path, in the scenario or in its fallback."""
    return (path[1:] if path[:1] == ("fallback",) else path) in PART_PATHS


def merge(below: Tree, above: Tree, path: tuple[str, ...] = ()) -> Tree:
    """`above` laid over `below`; both stay as they are, values keep the place where they were written."""
    if is_training(path):
        below, above = with_long_names(below), with_long_names(above)
    whole = is_part(path) or path[-1:] == ("augmentation",)
    if not (below.is_mapping and above.is_mapping) or (whole and "name" in above.value):
        return above
    merged = dict(below.value)
    for key, child in above.value.items():
        merged[key] = merge(merged[key], child, (*path, key)) if key in merged else child
    return Tree(merged, above.mark, above.key)


def put(tree: Tree, path: tuple[str, ...], value: Tree) -> Tree:
    """A tree with one value put at a path, as `--set` does.

    Another `name` for a named part drops the keys that belonged to the part that stood there; the same name keeps them.
    """
    return _put(tree, path, value, ())


def _put(tree: Tree | None, rest: tuple[str, ...], value: Tree, path: tuple[str, ...]) -> Tree:
    if not rest:
        return value
    if tree is not None and is_training(path):
        tree = with_long_names(tree)
    here = dict(tree.value) if tree is not None and tree.is_mapping else {}
    key = rest[0]
    renames = rest == ("name",) and is_part(path) and "name" in here
    if renames and _meant(path, here["name"]) != _meant(path, value):
        here = {}
    here[key] = _put(here.get(key), rest[1:], value, (*path, key))
    mark, at = (tree.mark, tree.key) if tree is not None else (value.mark, value.key)
    return Tree(here, mark, at)


def _meant(path: tuple[str, ...], name: Tree) -> Any:
    """The name that a name of a part stands for; of a class in a file that with the whole path."""
    found = with_whole_path(name).value
    return table(path[-1]).meant(found) if isinstance(found, str) else found


def has(tree: Tree, path: tuple[str, ...]) -> bool:
    """Whether a tree gives a value at this path, the long one, or below it."""
    return value_at(tree, path) is not None


def changes_alike(tree: Tree, path: tuple[str, ...]) -> bool:
    """Whether what is put at a path belongs into the fallback as well: this gives a value there, or by the same name
    the part that has the key.

    Args:
        tree: a scenario laid over the defaults.
        path: the long one.
    """
    if has(tree, ("fallback", *path)):
        return True
    for depth in range(1, len(path)):
        if path[:depth] in PART_PATHS:
            own, other = (value_at(tree, (*start, *path[:depth], "name")) for start in ((), ("fallback",)))
            if own is not None and other is not None:
                return bool(_meant(path[:depth], own) == _meant(path[:depth], other))
    return False


def without(tree: Tree, path: tuple[str, ...]) -> Tree:
    """A tree without the value at a path, the long one, and without mappings that this leaves empty."""
    rest = path[1:]
    here = dict((with_long_names(tree) if rest and is_training(path[:1]) else tree).value)
    below = here.pop(path[0])
    if rest:
        if is_training(path[:1]):
            below = with_long_names(below)
        left = without(below, rest)
        if left.value:
            here[path[0]] = left
    return Tree(here, tree.mark, tree.key)


def value_at(tree: Tree, path: tuple[str, ...]) -> Tree | None:
    """The value at this path, the long one; None: there is none."""
    found: Tree | None = tree
    for depth, key in enumerate(path):
        if found is None:
            return None
        found = (with_long_names(found) if is_training(path[:depth]) else found).child(key)
    return found


def at_place(tree: Tree, mark: Mark) -> Tree:
    """The same tree with every value at one place."""
    if tree.is_mapping:
        return Tree({key: at_place(child, mark) for key, child in tree.value.items()}, mark)
    if isinstance(tree.value, list):
        return Tree([at_place(child, mark) for child in tree.value], mark)
    return Tree(tree.value, mark)
