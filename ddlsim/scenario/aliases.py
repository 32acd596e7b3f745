"""Aliases of keys in scenarios; a resolved scenario has the real keys.

The tables of the parts have the aliases of names (`full` for complete).
"""

from ddlsim.foundation.errors import ScenarioError
from ddlsim.scenario import parts
from ddlsim.scenario.tree import Problem, ScenarioProblems, Tree, is_training

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
    if not is_training(path) and (path[1:] if path[:1] == ("fallback",) else path) not in parts.PART_PATHS:
        return key
    real = ALIASES.get(path[-1], {}).get(key, key)
    if real == key or name is None or is_training(path):
        return real
    try:
        own = {field.name for field in parts.keys_of(parts.table(path[-1])[parts.with_whole_path(name).value])}
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
    if key in parts.OPTIONAL and name is not None and name.value == "none":
        return Tree(None, tree.mark, tree.key)
    if tree.value is None and key in {*parts.TABLES} - parts.OPTIONAL and "none" in parts.table(key):
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
