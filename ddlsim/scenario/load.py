"""Read a scenario file, merge it with its `extends`, overrides and fallback, and check the result.

Defaults, `extends`, `fallback` and parts of sweeps are merged by one rule: mappings key by key, but a mapping with a
`name` replaces the whole named part, because the keys belong to the part of that name. Every other value replaces the
value below it. A value of `--set` replaces the old value, also if it is a mapping. The bare name of a part, `el`, means
`{name: el}` everywhere.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError, did_you_mean
from ddlsim.scenario import tree as trees
from ddlsim.scenario.files import by_name, find
from ddlsim.scenario.merging import applies_to_fallback, is_part, merge, put, real_key
from ddlsim.scenario.model import DEFAULTS, Scenario, to_plain
from ddlsim.scenario.parts import LISTED, PART_PATHS, plain, with_named_parts, with_whole_paths
from ddlsim.scenario.tree import Mark, Problem, ScenarioProblems, Tree
from ddlsim.scenario.validate import validate

OF_PUBLISHED = (("data",), ("nodes",), ("model",), ("task",), ("partition",), ("shift",), ("algorithm", "name"))
"""Keys that published numbers (`paper`) depend on; a scenario that changes one of them drops the numbers."""


def load(path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Read, merge and check a scenario.

    Args:
        path: a YAML file, or the bare name of one in ./scenarios or in the package.
        overrides: "dotted.key=value" texts, as given to --set; values are YAML.
    Raises:
        ScenarioError: every problem of the scenario at once, each with its place; nothing has been run.
    """
    file = find(path)
    return finish(apply_overrides(read_tree(file), overrides), file.stem)


def read_tree(file: Path) -> Tree:
    """Read a scenario file, merged over the file that it extends.

    Raises:
        ScenarioError: if it cannot be read, or holds more than one scenario.
    """
    tree = read_file(file, str(file), ())
    if "cells" in tree.value or "axes" in tree.value:
        command = "reproduce" if "source" in tree.value else "sweep"
        raise ScenarioError(f"{file}: holds a matrix of scenarios, not one. Run it with `ddlsim {command} {file}`.")
    return tree


def from_python(source: "str | Path | Mapping[str, Any] | Scenario", changes: Mapping[str, Any]) -> Scenario:
    """Check a scenario from Python code in any form, with some keys changed.

    Args:
        source: a file or its bare name, as for `load`; a mapping, as for `from_mapping`, whose `extends` is a path from
            the working directory or a bare name; or a Scenario.
        changes: dotted key -> value, plain or with parts as objects or classes.
    Raises:
        ScenarioError: every problem at once.
    """
    if isinstance(source, Scenario):
        tree, name = trees.from_plain(to_plain(source), Mark("scenario")), source.name
    elif isinstance(source, Mapping):
        found, name = dict(source), "scenario"
        base = found.pop("extends", None)
        tree = _tree_of(found, "scenario")
        if base is not None:
            file = find(base)
            below = read_tree(file)
            tree, name = without_stale_numbers(below, merge(below, tree)), file.stem
    elif isinstance(source, str | Path):
        file = find(source)
        tree, name = read_tree(file), file.stem
    else:
        raise ScenarioError(f"scenario: expected a path, name, mapping or Scenario, got a {type(source).__name__}.")
    return finish(changed(tree, [_change(key, value) for key, value in changes.items()]), name)


def _change(key: str, value: Any) -> tuple[tuple[str, ...], Tree]:
    """Return a change for `changed`, like one of --set."""
    if not isinstance(key, str):
        raise ScenarioError(f"set: expected dotted keys, such as training.learning_rate, got {key!r}.")
    path, whole = tuple(key.split(".")), value
    for part in reversed(path):
        whole = {part: whole}
    tree = _tree_of(whole, f"set {key}")
    for part in path:
        tree = tree.value[part]
    return _long(path, tree), tree


def as_overrides(changes: Mapping[str, Any]) -> list[str]:
    """Return changes from Python code, as for `from_python`, as "dotted.key=value" texts.

    Raises:
        ScenarioError: a scenario cannot hold a value.
    """
    found = [_change(key, value) for key, value in changes.items()]
    return [f"{'.'.join(path)}={json.dumps(tree.plain())}" for path, tree in found]


def _tree_of(mapping: Mapping[str, Any], where: str) -> Tree:
    """Return the tree of a mapping from Python code."""
    return trees.from_plain(plain(with_named_parts(dict(mapping))), Mark(where))


def from_mapping(mapping: dict[str, Any], name: str = "scenario") -> Scenario:
    """Check a scenario from a mapping with the keys of a file.

    Args:
        mapping: plain values; where a file has a mapping with a name, also a part (`Facade(heads=2)`), or its class.
            A class that is in no table is known by its own name then.
        name: the scenario's name unless the mapping gives one.
    Raises:
        ScenarioError: every problem at once.
    """
    return finish(_tree_of(mapping, "scenario"), name)


def with_fallback(scenario: Scenario) -> Scenario | None:
    """Return a scenario with its fallback applied, or None if it has no fallback."""
    if scenario.fallback is None:
        return None
    mark = Mark("fallback")
    whole = trees.from_plain(to_plain(scenario), mark)
    fallback = whole.value.pop("fallback", Tree({}, mark))
    applied, problems = validate(merge(whole, fallback))
    if applied is None:
        raise ScenarioProblems(problems)
    applied._notes = scenario._notes
    return applied


def finish(tree: Tree, name: str) -> Scenario:
    """Merge a tree over the defaults, and check it.

    Args:
        tree: a whole scenario; it gets `name` if it has none.
        name: the scenario's name unless the tree gives one.
    Raises:
        ScenarioProblems: every problem at once.
    """
    tree.value.setdefault("name", Tree(name, tree.mark))
    tree = with_whole_paths(merge(trees.from_plain(DEFAULTS, tree.mark), tree))
    fallback = tree.value.get("fallback")
    main = Tree({key: child for key, child in tree.value.items() if key != "fallback"}, tree.mark)
    scenario, problems = validate(main)
    notes: list[str] = []
    if fallback is not None and fallback.value is not None:
        if fallback.is_mapping and not problems:
            fallback, notes = _fitting_fallback(main, fallback)
        problems += _fallback_problems(main, fallback, problems)
    if problems:
        raise ScenarioProblems(trees.in_order(problems))
    assert scenario is not None
    if fallback is None:
        return scenario
    scenario = scenario.model_copy(update={"fallback": fallback.plain()})
    scenario._notes = tuple(notes)
    return scenario


def _fitting_fallback(main: Tree, fallback: Tree) -> tuple[Tree, list[str]]:
    """Return a fallback without keys of parts that the scenario no longer has, and a note on each.

    A key is left out if its part was named elsewhere (--set, a file that extends this one) and does not have it. A
    contradiction within the fallback's own file remains an error.
    """
    notes = []
    _, problems = validate(merge(main, fallback))
    for problem in problems:
        path = tuple(problem.path.split("[")[0].split("."))
        part = next((path[:depth] for depth in (1, 2) if path[:depth] in PART_PATHS and len(path) > depth), ())
        key = path[: len(part) + 1]
        name = trees.value_at(main, (*part, "name"))
        given = trees.value_at(fallback, key)
        if not part or name is None or given is None or trees.value_at(fallback, (*part, "name")) is not None:
            continue
        if given.key.source != name.mark.source:
            fallback = trees.without(fallback, key)
            notes.append(f"NOTE: fallback.{'.'.join(key)} is dropped: {'.'.join(part)} is {name.value!r} now.")
    return fallback, notes


def _fallback_problems(main: Tree, fallback: Tree, reported: list[Problem]) -> list[Problem]:
    """Return the problems of the scenario with its fallback that it does not have without it."""
    if not fallback.is_mapping:
        return [Problem(fallback.mark, "fallback", "expected a mapping (key: value) or null")]
    problems = [
        Problem(fallback.value[key].key, f"fallback.{key}", f"a fallback cannot hold {key!r}")
        for key in ("extends", "fallback", "name")
        if key in fallback.value
    ]
    if problems:
        return problems
    _, found = validate(merge(main, fallback))
    own = _marks(fallback) | {fallback.key}
    for problem in found:
        if any(problem.mark == one.mark and problem.path == one.path for one in reported):
            continue
        if problem.mark in own:
            problems.append(Problem(problem.mark, f"fallback.{problem.path}", problem.text))
        else:
            problems.append(Problem(problem.mark, problem.path, f"with the fallback applied: {problem.text}"))
    return problems


def _marks(tree: Tree) -> set[Mark]:
    return {tree.mark, tree.key}.union(*(_marks(child) for _, child in tree.children()))


def read_file(file: Path, source: str, above: tuple[Path, ...]) -> Tree:
    """Read a file, merged over the file that it extends."""
    try:
        tree = trees.parse_file(file.read_text(encoding="utf-8"), source)
    except OSError as error:
        raise ScenarioError(f"{source}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"{source}: is not UTF-8 text (byte {error.start})") from error
    return extended(tree, file, above)


def extended(tree: Tree, file: Path, above: tuple[Path, ...] = ()) -> Tree:
    """Return a scenario merged over the one that its `extends` names, if any.

    Args:
        tree: the scenario.
        file: its file; the path in `extends` is relative to it, or the name of a scenario.
        above: files that extend this one, to detect a cycle.
    """
    extends = tree.value.pop("extends", None)
    if extends is None:
        return tree
    if not isinstance(extends.value, str) or not extends.value:
        raise ScenarioProblems([Problem(extends.mark, "extends", "expected the path of a scenario file")])
    parent = _parent(file, extends.value)
    above = (*above, file.resolve())
    if parent.resolve() in above:
        chain = " -> ".join(one.name for one in (*above[above.index(parent.resolve()) :], parent))
        raise ScenarioProblems([Problem(extends.mark, "extends", f"files extend each other in a cycle: {chain}")])
    if not parent.is_file():
        text = f"no file {parent} (the path is relative to {file.parent}), and no scenario of that name."
        text += did_you_mean(extends.value.removesuffix(".yaml"), by_name())
        raise ScenarioProblems([Problem(extends.mark, "extends", text)])
    below = read_file(parent, own_code.shown_path(parent.resolve()), above)
    below.value.pop("name", None)  # a run under its parent's name would be taken for the parent
    return without_stale_numbers(below, merge(below, tree))


def _parent(file: Path, extends: str) -> Path:
    """Return the file that a file extends: in the same folder, or else by its bare name."""
    parent = file.parent / extends
    if not parent.suffix and not parent.is_file():
        parent = parent.with_suffix(".yaml")
    return parent if parent.is_file() else by_name().get(extends.removesuffix(".yaml"), parent)


def apply_overrides(tree: Tree, overrides: Sequence[str]) -> Tree:
    """Return a tree with the values of "dotted.key=value" texts.

    Raises:
        ScenarioProblems: a text has another form.
    """
    return changed(tree, [parse_override(text) for text in overrides])


def changed(tree: Tree, changes: Sequence[tuple[tuple[str, ...], Tree]]) -> Tree:
    """Return a tree with values set at paths, as `--set` does; sections are set before their keys."""
    before = tree = merge(Tree({}, tree.mark), tree)
    changes = [(_real_path(path, tree), value) for path, value in changes]
    # Names before other keys of one section, because a new name drops the old part's keys, not the new ones.
    for path, value in sorted(changes, key=lambda change: (len(change[0]), change[0][-1] != "name")):
        tree = put(tree, path, value)
        # Values from the command line also apply to the fallback, except the data.
        own = path[0] in ("fallback", "data", "extends") or tree.child("fallback") is None
        if not own and applies_to_fallback(merge(trees.from_plain(DEFAULTS, tree.mark), tree), path):
            tree = put(tree, ("fallback", *path), trees.from_plain(value.plain(), value.mark))
    return without_stale_numbers(before, tree)


def _real_path(path: tuple[str, ...], tree: Tree) -> tuple[str, ...]:
    """Return a path without aliases in a tree."""
    found: tuple[str, ...] = ()
    for key in path:
        found += (real_key(key, found, trees.value_at(tree, (*found, "name")) if found else None),)
    return found


def without_stale_numbers(before: Tree, after: Tree) -> Tree:
    """Drop the published numbers of a changed scenario if its data, nodes or models differ.

    Args:
        before: the scenario before the change.
        after: the changed scenario; numbers set by the change itself are kept.
    """
    numbers = before.child("paper")
    if numbers is None or after.child("paper") is not numbers:
        return after
    kept = all(_plain_at(before, path) == _plain_at(after, path) for path in OF_PUBLISHED)
    return after if kept else Tree({k: v for k, v in after.value.items() if k != "paper"}, after.mark, after.key)


def _plain_at(tree: Tree, path: tuple[str, ...]) -> Any:
    found = trees.value_at(merge(trees.from_plain(DEFAULTS, tree.mark), tree), path)
    return None if found is None else found.plain()


def parse_override(text: str) -> tuple[tuple[str, ...], Tree]:
    """Return the path and the value of "dotted.key=value".

    Raises:
        ScenarioProblems: the text has another form.
    """
    mark = Mark(f"--set {text}")
    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ScenarioProblems([Problem(mark, "", "expected KEY=VALUE, e.g. --set algorithm.heads=3")])
    if path[0] == "extends":
        raise ScenarioProblems([Problem(mark, "extends", "can only be set in a file")])
    given = trees.parse_value(value, mark, ".".join(path))
    return _long(path, given), given


def _long(path: tuple[str, ...], given: Tree) -> tuple[str, ...]:
    """Return the long path of a change: a bare name is a value of `name`, so a part of this name keeps its keys."""
    is_name = isinstance(given.value, str) and is_part(path) and path[-1] not in LISTED
    return (*path, "name") if is_name else trees.long_path(path)
