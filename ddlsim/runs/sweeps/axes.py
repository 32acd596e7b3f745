"""The grammar of sweeps and of matrices (published tables): one scenario, axes of settings, and cells.

    scenario: {extends: smoke.yaml}          the keys of a scenario, common to all runs
    seeds: [0, 1, 2]
    axes:
      topology.name: [ring, complete]        a dotted key and its values, or
      heads:                                 a name and, per value, any part of a scenario
        two: {algorithm: {heads: 2}}
        ten: {algorithm: {heads: 10}, rounds: 40}
    cells: [ring/two, complete/ten]          combinations of values

A cell is the common scenario with the parts of its values laid over it in the order of its name. `--grid KEY=a,b` on
the command line is an axis of a key.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeVar

from annotated_types import Ge, MinLen
from pydantic import AfterValidator, Field

from ddlsim.foundation.errors import ScenarioError, did_you_mean
from ddlsim.scenario.files import find
from ddlsim.scenario.load import extended, read_file, without_stale_numbers
from ddlsim.scenario.merging import merge
from ddlsim.scenario.sections import Section
from ddlsim.scenario.tree import Mark, Problem, ScenarioProblems, Tree, in_order, parse_value
from ddlsim.scenario.validate import check_section

MOST_SEEDS = 100_000
_SEEDS = re.compile(r"(\d+)(?:\.\.(\d+))?$", re.ASCII)


@dataclass(frozen=True)
class Value:
    """One value of an axis.

    Args:
        label: label in names of directories.
        option: "KEY=VALUE", as for --set; or
        part: a part of a scenario, laid over the others.
    """

    label: str
    option: str = ""
    part: Tree | None = None

    @property
    def short(self) -> str:
        """The label without its key."""
        return self.label.partition("=")[2] or self.label


Axis = tuple[Value, ...]


def _unique(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("expected every seed once")
    return seeds


Seeds = Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1), AfterValidator(_unique)]


class GridKeys(Section):
    """Keys of sweeps and matrices.

    Args:
        description: one line for people.
        scenario: common to all runs.
        axes: a key -> its values, or a name -> value -> part of a scenario.
    """

    description: str = ""
    scenario: dict[str, Any]
    axes: dict[str, list[Any] | dict[str, dict[str, Any]]] = Field(default_factory=dict)


class SweepFile(GridKeys):
    """A sweep file.

    Args:
        seeds: seeds of every combination; null: the scenario's own.
        cells: combinations such as ring/two; null: all.
    """

    seeds: Seeds | None = None
    cells: list[str] | None = None


Content = TypeVar("Content", bound=GridKeys)


@dataclass(frozen=True)
class GridFile:
    """A file with axes.

    Args:
        path: the file.
        tree: its content with the place of every value.
        base: the common scenario, laid over the one that it extends.
        axes: values of each axis.
    """

    path: Path
    tree: Tree
    base: Tree
    axes: tuple[Axis, ...]

    def values(self, cell: str, mark: Mark, place: str) -> list[Value]:
        """Return the values that the name of a cell lists, "ring/two"; at most one of each axis.

        Args:
            cell: the name.
            mark, place: where it is written.
        Raises:
            ScenarioProblems: a part of the name is not a value of a remaining axis.
        """
        found, left = [], [{value.short: value for value in axis} for axis in self.axes]
        for part in cell.split("/"):
            axis = next((axis for axis in left if part in axis), None)
            if axis is None:
                known = [name for axis in left for name in axis]
                hint = did_you_mean(part, known)
                text = f"no remaining axis has the value {part!r}.{hint} Known: {', '.join(known) or 'none'}"
                raise ScenarioProblems([Problem(mark, place, text)])
            left.remove(axis)
            found.append(axis[part])
        return found


def read_grid_file(path: str | Path, content: type[Content], matrices: bool = False) -> tuple[GridFile, Content]:
    """Read a sweep or a matrix, and check its own keys.

    Args:
        path: the file, or a bare name.
        content: model of the keys.
        matrices: whether a bare name means a matrix.
    Raises:
        ScenarioError: every problem of the file's keys at once.
    """
    file = find(path, matrices)
    tree = read_file(file, str(file), ())
    if matrices and "cells" not in tree.value:
        raise ScenarioError(f"{file}: is not a matrix (it has no `cells`). Run a scenario with `ddlsim run {path}`.")
    if not matrices and "source" in tree.value:
        raise ScenarioError(f"{file}: holds a published table. Run it with `ddlsim reproduce {path}`.")
    whole, problems = check_section(tree, content)
    if whole is None:
        raise ScenarioProblems(in_order(problems))
    written = tree.value["axes"].value if "axes" in tree.value else {}
    axes = tuple(_axis(name, values) for name, values in written.items())
    return GridFile(file, tree, extended(tree.value["scenario"], file), axes), whole


def _axis(name: str, values: Tree) -> Axis:
    if values.is_mapping:
        return tuple(Value(label, part=part) for label, part in values.value.items())
    return values_of_key(name, values.plain())


def combined(base: Tree, parts: Iterable[Tree | None]) -> Tree:
    """Return a scenario with further parts laid over it, one after the other."""
    for part in parts:
        base = base if part is None else without_stale_numbers(base, merge(base, part))
    return base


def parse_seeds(text: str) -> tuple[int, ...]:
    """Return the seeds of "0..4" (including both ends), "0,2,7" or "0..2,9".

    Raises:
        ScenarioError: the text has another form.
    """
    found: list[int] = []
    for part in text.split(","):
        match = _SEEDS.match(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if last < first or last - first >= MOST_SEEDS:
            raise ScenarioError(f"--seeds {text[:60]}: expected 0..4 or 0,2,7, got {part.strip()[:60]!r}.")
        found += range(first, last + 1)
    return tuple(dict.fromkeys(found))


def parse_grid(text: str) -> tuple[Value, ...]:
    """Return the values of "KEY=a,b,..." as YAML; commas inside brackets do not separate values.

    Raises:
        ScenarioError: the text has another form.
    """
    key, equals, values = text.partition("=")
    if not equals or not key.strip() or not values.strip():
        raise ScenarioError(f"--grid {text[:200]}: expected KEY=VALUE,VALUE, such as topology.name=ring,complete.")
    found = parse_value(f"[{values}]", Mark(f"--grid {text}"), key)
    return values_of_key(key.strip(), found.plain())


def values_of_key(key: str, values: Iterable[Any]) -> tuple[Value, ...]:
    """Return the axis of a dotted key; different values have different labels."""
    found = [Value(f"{key}={label_of(plain)}", f"{key}={_as_yaml(plain)}") for plain in values]
    different = list(dict.fromkeys(found))
    labels = dict(zip(different, numbered([value.label for value in different]), strict=True))
    return tuple(Value(labels[value], value.option) for value in found)


def numbered(labels: Sequence[str]) -> list[str]:
    """Return unique labels: equal ones get a number, Net-1, Net-2, ..."""
    times = Counter(labels)
    numbers = {label: count(1) for label in times}

    def named(label: str) -> str:
        if times[label] == 1:
            return label
        return next(text for number in numbers[label] if (text := f"{label}-{number}") not in times)

    return [named(label) for label in labels]


def _as_yaml(plain: Any) -> str:
    """Return a value as the text after `--set KEY=`."""
    if isinstance(plain, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_./-]*", plain):
        return plain if plain.lower() not in ("null", "true", "false", "yes", "no", "on", "off") else json.dumps(plain)
    return json.dumps(plain)


def label_of(plain: Any) -> str:
    """Return a value's label for names of directories; objects and classes of Python are labeled by their class."""
    if isinstance(plain, Mapping):
        own = [label_of(plain["name"])] if "name" in plain else []
        others = (f"{label_of(str(key))}={label_of(value)}" for key, value in plain.items() if key != "name")
        return "-".join([*own, *others])
    if isinstance(plain, list | tuple):
        return "-".join(map(label_of, plain))
    if plain is None or isinstance(plain, bool | int | float):
        plain = json.dumps(plain)
    elif not isinstance(plain, str):
        plain = (plain if isinstance(plain, type) else type(plain)).__name__
    return re.sub(r"[^A-Za-z0-9_.+-]+", "-", plain)[:60]
