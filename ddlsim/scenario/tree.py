"""Parse YAML into a tree of values that know their place in the file, for problems that name it.

YAML 1.2 by ruamel.yaml: `30:2` and `on` stay text, `1e-3` is a number. A repeated key in one mapping is a problem.

The tree of the section `training` may have short forms: `{optimizer: adamw, eps: 1e-6}` means
`{optimizer: {name: adamw, eps: 1e-6}}`, and `schedule: cosine` means `schedule: {name: cosine}`. Only keys of torch's
optimizers may be keys of the section.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import BaseConstructor
from ruamel.yaml.error import MarkedYAMLError, StreamMark, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ddlsim.foundation.errors import ScenarioError

MOST_SHOWN, MOST_TEXT = 200, 1000
"""Most characters of a source line, option or path, and of an explanation, in a message."""


@dataclass(frozen=True)
class Mark:
    """A place in a file, or an option of the command line.

    Args:
        source: the file's path as given, or the option, e.g. "--set rounds=0".
        line: line from 1; None for an option.
        column: column from 1.
        text: the whole source line.
    """

    source: str
    line: int | None = None
    column: int | None = None
    text: str | None = None

    def __str__(self) -> str:
        source = cut(self.source)
        return source if self.line is None else f"{source}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Problem:
    """One problem of a scenario.

    Args:
        mark: where it was written.
        path: dotted path of the key, or "" for the file as a whole.
        text: expected value, found value and cure.
    """

    mark: Mark
    path: str
    text: str

    def __str__(self) -> str:
        head = f"{self.mark}: " + (f"{cut(self.path)}: " if self.path else "") + cut(self.text, MOST_TEXT)
        line, column = self.mark.text or "", self.mark.column
        if not line or column is None or len(line) > MOST_SHOWN:
            return head
        # Tabs stay tabs under the text, so that the caret stands under the right character whatever their width.
        indent = "".join("\t" if c == "\t" else " " for c in line[: column - 1])
        return f"{head}\n{self.mark.line:6d} | {line}\n{'':6} | {indent}^"


def cut(text: str, most: int = MOST_SHOWN) -> str:
    """Return the text, or its two ends if it is longer."""
    half = most // 2
    return text if len(text) <= most else f"{text[:half]} ... {text[-half:]}"


class ScenarioProblems(ScenarioError):
    """All problems of one scenario.

    Args:
        problems: at least one, in the order of the message.
    """

    def __init__(self, problems: Sequence[Problem]):
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems without repetitions, by file and from top to bottom."""
    unique = list(dict.fromkeys(problems))
    sources = list(dict.fromkeys(problem.mark.source for problem in unique))
    return sorted(unique, key=lambda p: (sources.index(p.mark.source), p.mark.line or 0, p.mark.column or 0))


NUMBER_LIKE = re.compile(r"[-+]?(\d[\d_]*\.?|\d*\.\d+|\d+\.\d*)([eE][-+]?\d+)?$")
MAX_DEPTH = 100
"""Deepest nesting of lists and mappings, with aliases (*name) expanded; pydantic's JSON reader allows 200."""
MAX_ALIASED = 100_000
"""Most values in the expanded aliases of one text, in addition to one per character."""
TOO_DEEP = "lists or mappings are nested too deeply"
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN_TAGS = {
    f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null", "str", "map", "seq", "timestamp")
}


@dataclass
class Tree:
    """A value with its place.

    Args:
        value: a scalar, a dict of text -> Tree, or a list of Tree.
        mark: place of the value.
        key: place of its key, or `mark` if it has none.
        option: the value was given on the command line.
    """

    value: Any
    mark: Mark
    key: Mark = field(default=None)  # type: ignore[assignment]

    def __post_init__(self) -> None:
        self.key = self.key or self.mark

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.value, dict)

    def plain(self) -> Any:
        """Return the value without places."""
        if self.is_mapping:
            return {key: child.plain() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.plain() for child in self.value]
        return self.value

    def children(self) -> Iterator[tuple[str | int, "Tree"]]:
        """Yield keys or positions with their trees."""
        if self.is_mapping:
            yield from self.value.items()
        elif isinstance(self.value, list):
            yield from enumerate(self.value)

    def child(self, key: object) -> "Tree | None":
        """Return the tree of a key or position, or None."""
        if self.is_mapping:
            return self.value.get(key)
        if isinstance(self.value, list) and isinstance(key, int) and 0 <= key < len(self.value):
            return self.value[key]
        return None


def from_plain(value: Any, mark: Mark) -> Tree:
    """Return the tree of plain values that all have one place."""
    if isinstance(value, dict):
        return Tree({str(key): from_plain(child, mark) for key, child in value.items()}, mark)
    if isinstance(value, list | tuple):
        return Tree([from_plain(child, mark) for child in value], mark)
    return Tree(value, mark)


def parse_file(text: str, source: str) -> Tree:
    """Return the tree of a YAML file whose top level is a mapping.

    Args:
        text: the file's text.
        source: its path, for messages.
    Raises:
        ScenarioProblems: bad YAML, repeated keys, a top level that is not a mapping.
    """
    lines = text.splitlines()

    def mark(at: StreamMark) -> Mark:
        line = lines[at.line] if at.line < len(lines) else ""
        return Mark(source, at.line + 1, at.column + 1, line)

    tree = _parse(text, mark, Mark(source, 1, 1, lines[0] if lines else ""))
    if not tree.is_mapping:
        got = ", got nothing" if tree.value is None else ""
        raise ScenarioProblems([Problem(tree.mark, "", f"expected a mapping (key: value) at the top level{got}")])
    return tree


def parse_value(text: str, mark: Mark, path: str) -> Tree:
    """Return the tree of a YAML scalar or flow collection from an option; all its values have the place `mark`.

    Args:
        text: the value's text.
        mark: the option.
        path: dotted path of the key that it is for, for messages.
    Raises:
        ScenarioProblems: bad YAML, repeated keys.
    """
    return _parse(text, lambda _: mark, mark, path)


def _parse(text: str, mark_of: Callable[[StreamMark], Mark], top: Mark, path: str = "") -> Tree:
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
    except RecursionError as error:
        raise ScenarioProblems([Problem(top, path, TOO_DEEP)]) from error
    except MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise ScenarioProblems([Problem(mark_of(at) if at else top, "", f"not valid YAML: {what}")]) from error
    except YAMLError as error:
        raise ScenarioProblems([Problem(top, "", f"not valid YAML: {str(error).splitlines()[0]}")]) from error
    except (ValueError, OverflowError) as error:  # an escape such as "\U00110000" that names no character
        what = "an escape (a backslash and U, u or x in double quotes) names no character"
        raise ScenarioProblems([Problem(top, path, f"not valid YAML: {what} ({error})")]) from error
    if root is None:
        return Tree(None, top)
    builder = _Builder(mark_of, top, len(text) + MAX_ALIASED)
    tree = builder.build(root, path, 0)
    if builder.problems:
        raise ScenarioProblems(builder.problems)
    return tree


class _Builder:
    """Convert composed YAML nodes to a Tree and collect problems; excessive nesting and aliases raise at once."""

    def __init__(self, mark_of: Callable[[StreamMark], Mark], top: Mark, most: int):
        self.mark_of = mark_of
        self.top = top
        self.most = most
        self.count = 0
        self.problems: list[Problem] = []

    def build(self, node: Node, path: str, depth: int) -> Tree:
        mark = self.mark_of(node.start_mark)
        self.count += 1
        if self.count > self.most:
            text = f"aliases (*name) stand for more than {MAX_ALIASED:,} values; write the values out"
            raise ScenarioProblems([Problem(self.top, "", text)])
        if depth > MAX_DEPTH:
            raise ScenarioProblems([Problem(mark, "", TOO_DEEP)])
        if _tag(node) not in _PLAIN_TAGS:
            self.problems.append(Problem(mark, path, f"unknown YAML tag {_tag(node)}; write the value without a tag"))
            return Tree(None, mark)
        if isinstance(node, MappingNode):
            return Tree(self._mapping(node, path, depth + 1), mark)
        if isinstance(node, SequenceNode):
            return Tree([self.build(child, f"{path}[{i}]", depth + 1) for i, child in enumerate(node.value)], mark)
        assert isinstance(node, ScalarNode)
        return Tree(self._scalar(node, mark, path), mark)

    def _mapping(self, node: MappingNode, path: str, depth: int) -> dict[str, Tree]:
        found: dict[str, Tree] = {}
        merged: dict[str, Tree] = {}
        for key_node, value_node in node.value:
            key_mark = self.mark_of(key_node.start_mark)
            if _tag(key_node) == _MERGE:
                for part in value_node.value if isinstance(value_node, SequenceNode) else [value_node]:
                    known = len(self.problems)
                    tree = self.build(part, path, depth)
                    if tree.is_mapping:
                        merged = {**tree.value, **merged}
                    elif known == len(self.problems):
                        self.problems.append(Problem(key_mark, path, "<< takes a mapping, or a list of mappings"))
                continue
            if not isinstance(key_node, ScalarNode):
                self.problems.append(Problem(key_mark, path, "expected a key of plain text"))
                continue
            key = key_node.value
            here = f"{path}.{key}" if path else key
            child = self.build(value_node, here, depth)
            child.key = key_mark
            if key in found:
                first = found[key].key
                where = f", first in line {first.line}" if first.line is not None else ""
                self.problems.append(Problem(key_mark, here, f"key {key!r} is written twice{where}"))
            else:
                found[key] = child
        return {**merged, **found}

    def _scalar(self, node: ScalarNode, mark: Mark, path: str) -> Any:
        if _tag(node).endswith((":str", ":timestamp")):
            if node.style is None and NUMBER_LIKE.match(node.value):  # such as 1e-3, whatever the YAML version says
                return float(node.value.replace("_", ""))
            return node.value
        try:
            constructor = _constructor()
            value = constructor.construct_object(node)
            constructor.constructed_objects.clear()  # which would keep every node of every scenario
            str(value)  # more digits than Python turns into text would fail later
        except (ValueError, LookupError):
            kind = _tag(node).rpartition(":")[2]
            self.problems.append(Problem(mark, path, f"cannot be read as {kind}: {node.value[:40]!r}"))
            return None
        if isinstance(value, float) and math.isnan(value):
            self.problems.append(Problem(mark, path, "expected a number, got .nan"))
            return None
        return value


@cache
def _constructor() -> BaseConstructor:
    yaml = YAML(typ="safe", pure=True)
    return yaml.constructor


def _tag(node: Node) -> str:
    return str(node.tag or "tag:yaml.org,2002:str")


OPTIMIZER_KEYS = frozenset(
    {"adamw_rate", "adjust_lr_fn", "alpha", "amsgrad", "beta2_decay", "betas", "centered", "d", "dampening"}
    | {"decoupled_weight_decay", "eps", "etas", "initial_accumulator_value", "lambd", "lr_decay"}
    | {"momentum", "momentum_decay", "nesterov", "ns_coefficients", "ns_steps", "rho", "step_sizes", "t0"}
    | {"weight_decay"}
)
"""Keys of the optimizers, which may also be keys of the section `training`."""


def is_training(path: tuple[str, ...]) -> bool:
    """Whether a path is the section `training`, of the scenario or of its fallback."""
    return path in (("training",), ("fallback", "training"))


def with_long_names(training: Tree) -> Tree:
    """Return the long form of the section `training`; other values than mappings unchanged."""
    if not training.is_mapping:
        return training
    found = {key: child for key, child in training.value.items() if key not in OPTIMIZER_KEYS}
    flat = {key: child for key, child in training.value.items() if key in OPTIMIZER_KEYS}
    if flat:
        optimizer = found.get("optimizer")
        if optimizer is not None and isinstance(optimizer.value, str):
            optimizer = Tree({"name": optimizer}, optimizer.mark, optimizer.key)
        if optimizer is not None and not optimizer.is_mapping:
            return training  # null or a list, which validation reports
        inside = dict(optimizer.value) if optimizer is not None else {}
        for key in flat.keys() & inside.keys():
            text = f"training.optimizer.{key} is given as well; leave one of them out"
            raise ScenarioProblems([Problem(flat[key].key, f"training.{key}", text)])
        mark, at = (optimizer.mark, optimizer.key) if optimizer is not None else (training.mark, training.key)
        found["optimizer"] = Tree({**inside, **flat}, mark, at)
    return Tree(found, training.mark, training.key)


def without(tree: Tree, path: tuple[str, ...]) -> Tree:
    """Return a tree without the value at a long path, and without mappings that become empty."""
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
    """Return the value at a long path, or None."""
    found: Tree | None = tree
    for depth, key in enumerate(path):
        if found is None:
            return None
        found = (with_long_names(found) if is_training(path[:depth]) else found).child(key)
    return found


def long_path(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of a `--set` in the long form."""
    head = path[:-1]
    if is_training(head) and path[-1] in OPTIMIZER_KEYS:
        return (*head, "optimizer", path[-1])
    return path


def in_short(training: dict[str, Any]) -> dict[str, Any]:
    """Return plain data of the section `training` in the short form."""
    optimizer = training.get("optimizer")
    if not isinstance(optimizer, dict):
        return training
    flat = {key: value for key, value in optimizer.items() if key in OPTIMIZER_KEYS}
    rest = {key: value for key, value in optimizer.items() if key not in OPTIMIZER_KEYS}
    short = {"optimizer": rest.get("name")} if set(rest) == {"name"} else {"optimizer": rest} if rest else {}
    return {**{key: value for key, value in training.items() if key != "optimizer"}, **short, **flat}
