"""A matrix file: one scenario, settings by name along axes, and the cells of a published table.

    source: whose table, which one
    seeds: [1, 2, 3]
    scenario: {extends: ..., ...}            what all cells have in common; the keys of a scenario
    axes:
      similarity:
        l2: {algorithm: {similarity: inverse_l2}}
      merge:
        fedavg: {algorithm: {merge: fedavg}}
    cells:
      l2/fedavg: {scenario: {algorithm: {tau: 19}}, published: {mean: 21.10, std: 2.51}}
      oracle: {scenario: {algorithm: {name: oracle}}, published: {mean: 9.43, std: 0.33}}
    measures: [fair_accuracy]                columns beside the accuracy, see measures.py; published: {measures: ...}
    shapes:                                  what a figure without numbers shows, see shapes.py
      - {claim: the oracle is best, order: [oracle, l2/fedavg]}

A cell named after values of the axes is the common scenario with their settings, in the order of the name, and then its
own laid over it, by the rule of `extends`; any other name is a cell with nothing but its own. Accuracies are in
percent, as published tables have them.

What a figure without printed numbers shows, as checks of our means: an order of cells, or cells that are alike.

The keys of a matrix file, and of its cells; matrix.py shows one and makes scenarios of it.
"""

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.reproduce.measures import MEASURES
from ddlsim.scenario.load import apply_overrides, extended, find, finish, merge
from ddlsim.scenario.model import Scenario
from ddlsim.scenario.tree import Problem, ScenarioProblems, Tree, did_you_mean, in_order, in_short, parse_file
from ddlsim.scenario.validate import check_section
from ddlsim.tasks.base import Metric

Place = str | Annotated[tuple[str, ...], MinLen(1)]
Verdict = Literal["holds", "does not hold", "no value", "not run"]


class Shape(BaseModel):
    """One claim of the paper; exactly one of `order` and `near` is given.

    Args:
        claim: what the figure shows or the text says.
        order: cells from the highest value to the lowest; a list of cells in the place of one: these in any order.
        margin: by how much each must be above the next at least; below 0: how far under it it may be.
        near: cells whose values lie within `within` of each other.
        within: see `near`.
        of: what is compared: null: the mean; a number: that cluster, from 0; a name: that measure.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    claim: str
    order: Annotated[tuple[Place, ...], MinLen(2)] | None = None
    margin: float = 0.0
    near: Annotated[tuple[str, ...], MinLen(2)] | None = None
    within: Annotated[float, Ge(0)] = 0.0
    of: int | str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "Shape":
        if (self.order is None) == (self.near is None):
            raise ValueError("expected either order or near")
        return self

    @property
    def cells(self) -> tuple[str, ...]:
        """Those that it speaks of."""
        return tuple(chain(*map(_listed, self.order or self.near or ())))

    def judge(self, values: Mapping[str, float | None]) -> Verdict:
        """Whether the cells' values are as claimed.

        Args:
            values: cell that has been run -> the value that is compared; None: it has none (a target never reached,
                a run that diverged).
        """
        if any(cell not in values for cell in self.cells):
            return "not run"
        found = {cell: value for cell in self.cells if (value := values[cell]) is not None}
        if len(found) < len(self.cells):
            return "no value"
        if self.order:
            places = [[found[cell] for cell in _listed(place)] for place in self.order]
            return _said(all(min(above) >= max(below) + self.margin for above, below in pairwise(places)))
        return _said(max(found.values()) - min(found.values()) <= self.within)


def _listed(place: Place) -> tuple[str, ...]:
    return (place,) if isinstance(place, str) else place


def _said(holds: bool) -> Verdict:
    return "holds" if holds else "does not hold"


def unknown_cells(shapes: Sequence[Shape], cells: Sequence[str]) -> list[tuple[int, str]]:
    """Position of a shape, and a cell that it names and that the matrix has not."""
    return [(index, cell) for index, shape in enumerate(shapes) for cell in shape.cells if cell not in cells]


def _once(seeds: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(seeds)) < len(seeds):
        raise ValueError("expected every seed once")
    return seeds


Seeds = Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1), AfterValidator(_once)]
Overlay = dict[str, Any]
"""Part of a scenario."""


class _Section(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class PublishedMeasure(_Section):
    """A published value with its deviation.

    Args:
        mean: over the seeds.
        std: of that mean; null: not published.
    """

    mean: float
    std: Annotated[float, Ge(0)] | None = None


class Published(_Section):
    """What a paper reports of one cell; accuracies in percent. Each of them may be missing.

    Args:
        mean: over the seeds.
        std: of that mean, see `spread`; null: not published.
        clusters: the mean of each cluster; null: of this one it is not published.
        clusters_std: their deviations.
        measures: measure -> its value, or its {mean, std}.
    """

    mean: float | None = None
    std: Annotated[float, Ge(0)] | None = None
    clusters: tuple[float | None, ...] | None = None
    clusters_std: tuple[Annotated[float, Ge(0)] | None, ...] | None = None
    measures: dict[str, float | PublishedMeasure] = {}

    def measure(self, name: str) -> PublishedMeasure | None:
        """The published value of a measure, if there is one."""
        found = self.measures.get(name)
        return PublishedMeasure(mean=found) if isinstance(found, int | float) else found


class CellFile(_Section):
    """One cell as it stands in the file.

    Args:
        scenario: its own settings.
        seeds: instead of those of the matrix.
        published: the number to meet; null: none is known.
        note: a remark, shown under the table.
        outside: why ours lies outside two published deviations, where that is known.
    """

    scenario: Overlay = {}
    seeds: Seeds | None = None
    published: Published | None = None
    note: str = ""
    outside: str = ""


class MatrixFile(_Section):
    """The file.

    Args:
        description: one line for people.
        source: where the published numbers stand.
        note: what a reader must know, shown under the table.
        not_run: why cells have not been run, shown in the overview of all tables while there are such.
        seeds: of every cell.
        average: what a mean is taken over first: all nodes, or the clusters, each weighing the same.
        spread: what the standard deviation is over: seeds, or the clusters or nodes of one run (mean over seeds).
        scenario: what all cells have in common.
        axes: axis -> value -> its settings.
        cells: name -> cell.
        measures: columns beside the accuracy, see measures.py.
        shapes: what figures show, see shapes.py.
        common_distance: whether the table tells how far all cells lie from the published ones, see distance.py.
    """

    description: str = ""
    source: str
    note: str = ""
    not_run: str = ""
    seeds: Seeds
    average: Literal["nodes", "clusters"] = "nodes"
    spread: Literal["seeds", "clusters", "nodes"] = "seeds"
    scenario: Overlay
    axes: dict[str, dict[str, Overlay]] = {}
    cells: dict[str, Overlay]
    measures: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    common_distance: bool = False


NO_SETTINGS = ("seed", "name", "description", "paper", "fallback")
"""Keys of a scenario that change no result of a cell."""


@dataclass(frozen=True)
class Cell:
    """One setting of a matrix.

    Args:
        name: as in the file.
        scenario: with the first seed.
        seeds: in order.
        published: the number to meet, or None.
        note: a remark.
        outside: why ours lies outside two published deviations, where that is known.
        settings: what the files say of it, without seed, names and published numbers.
    """

    name: str
    scenario: Scenario
    seeds: tuple[int, ...]
    published: Published | None
    note: str
    outside: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Matrix:
    """A checked matrix.

    Args:
        name: the file's name without its ending.
        description: one line for people.
        source: where the published numbers stand.
        note: what a reader must know.
        average: "nodes" or "clusters": what a mean is taken over.
        spread: "seeds", "clusters" or "nodes": what a standard deviation is over.
        cells: in the file's order.
        overrides: settings from the command line, laid over every cell.
        measures: columns beside the accuracy.
        shapes: what figures show.
        common_distance: whether the table tells how far all cells lie from the published ones.
        not_run: why cells have not been run.
    """

    name: str
    description: str
    source: str
    note: str
    average: str
    spread: str
    cells: tuple[Cell, ...]
    overrides: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    shapes: tuple[Shape, ...] = ()
    common_distance: bool = False
    not_run: str = ""

    @property
    def changes(self) -> tuple[str, ...]:
        """The overrides that can change results; without any the matrix is as published."""
        return tuple(override for override in self.overrides if not override.startswith("records."))

    @property
    def judged_by(self) -> Metric:
        """What the nodes of all cells are judged by."""
        return self.cells[0].scenario.learned.judged_by

    @property
    def metric(self) -> str:
        """Its name: accuracy, mse, ..."""
        return self.judged_by.name


def read_matrix(path: str | Path, overrides: Sequence[str] = (), patterns: Sequence[str] = ()) -> Matrix:
    """Reads and checks a matrix with all its cells.

    Args:
        path: a YAML file, or the bare name of one in ./scenarios or among those that come with ddlsim.
        overrides: "dotted.key=value" texts, laid over every cell that is meant.
        patterns: which cells are meant, shell patterns; empty: all.
    Raises:
        ScenarioError: every problem of the file and of its cells at once, each with its place; nothing has been run.
    """
    for override in overrides:
        if override.partition("=")[0].strip() == "seed":
            raise ScenarioError(f"--set {override}: a matrix has seeds of its own; --seeds takes the first of them.")
    file = find(path, matrices=True)
    try:
        tree = parse_file(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{file}: cannot be read: {error}") from error
    if "cells" not in tree.value:
        raise ScenarioError(f"{file}: is no matrix (it has no `cells`). Run a scenario with `ddlsim run {path}`.")
    whole, problems = check_section(tree, MatrixFile)
    if whole is None:
        raise ScenarioProblems(in_order(problems))
    problems += _axes_problems(tree)
    problems += _name_problems(tree, whole)
    if not tree.value["cells"].value:
        problems.append(Problem(tree.value["cells"].mark, "cells", "expected at least one cell"))
    if problems:
        raise ScenarioProblems(in_order(problems))
    base = extended(tree.value["scenario"], file)
    cells = []
    for name, cell in tree.value["cells"].value.items():
        own_overrides = overrides if is_meant(name, patterns) else ()
        made, found = _cell(file.stem, name, cell, base, _values(tree), whole.seeds, own_overrides)
        problems += found
        if made is not None:
            cells.append(made)
    if problems:
        raise ScenarioProblems(in_order(problems))
    problems = _cluster_problems(tree, whole, cells)
    if problems:
        raise ScenarioProblems(in_order(problems))
    judged = {cell.scenario.learned.judged_by.name for cell in cells}
    if len(judged) > 1:
        raise ScenarioError(
            f"{file}: cells of a matrix must be judged by one metric, these by {' and '.join(sorted(judged))}."
        )
    return Matrix(
        file.stem,
        whole.description,
        whole.source,
        whole.note,
        whole.average,
        whole.spread,
        tuple(cells),
        tuple(overrides),
        whole.measures,
        whole.shapes,
        whole.common_distance,
        whole.not_run,
    )


def is_meant(cell: str, patterns: Sequence[str]) -> bool:
    """Whether a cell's name matches one of the patterns, or there are none."""
    return not patterns or any(fnmatch.fnmatch(cell, pattern) for pattern in patterns)


def _values(tree: Tree) -> dict[str, tuple[str, Tree]]:
    """Value -> its axis and its settings."""
    axes = tree.value.get("axes")
    return {
        value: (axis, settings)
        for axis, values in (axes.value if axes else {}).items()
        for value, settings in values.value.items()
    }


def _axes_problems(tree: Tree) -> list[Problem]:
    """Values that would make a cell's name ambiguous."""
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for axis, values in (tree.value["axes"].value if "axes" in tree.value else {}).items():
        for value, settings in values.value.items():
            if "/" in value:
                problems.append(Problem(settings.key, f"axes.{axis}.{value}", "a value's name cannot hold a slash"))
            if value in seen:
                text = f"there is a {value!r} on axis {seen[value]} already; cells could not tell them apart"
                problems.append(Problem(settings.key, f"axes.{axis}.{value}", text))
            seen.setdefault(value, axis)
    return problems


def _name_problems(tree: Tree, whole: MatrixFile) -> list[Problem]:
    """Measures and cells that do not exist, and cells that would share their directory and results file."""
    problems = []
    places: dict[str, str] = {}
    for name, cell in tree.value["cells"].value.items():
        first = places.setdefault(name.replace("/", "+"), name)
        if first != name:
            problems.append(Problem(cell.key, f"cells.{name}", f"its directory would be that of {first}; rename one"))
    for index, name in enumerate(whole.measures):
        if name not in MEASURES:
            text = f"unknown measure {name!r}.{did_you_mean(name, MEASURES)} Known: {', '.join(MEASURES)}"
            problems.append(Problem(tree.value["measures"].value[index].mark, f"measures[{index}]", text))
    cells = list(tree.value["cells"].value)
    for index, name in unknown_cells(whole.shapes, cells):
        text = f"no cell is named {name!r}.{did_you_mean(name, cells)}"
        problems.append(Problem(tree.value["shapes"].value[index].mark, f"shapes[{index}]", text))
    for index, shape in enumerate(whole.shapes):
        if isinstance(shape.of, str) and shape.of not in whole.measures:
            text = f"of: {shape.of!r} is none of the measures of this matrix"
            problems.append(Problem(tree.value["shapes"].value[index].mark, f"shapes[{index}]", text))
    return problems


def _cluster_problems(tree: Tree, whole: MatrixFile, cells: Sequence[Cell]) -> list[Problem]:
    """Shapes that compare a cluster which one of their cells does not have."""
    problems = []
    count = {cell.name: len(cell.scenario.nodes.clusters) for cell in cells}
    for index, shape in enumerate(whole.shapes):
        fewest = min(shape.cells, key=lambda name: count[name])
        if isinstance(shape.of, int) and not 0 <= shape.of < count[fewest]:
            text = f"of: {shape.of}: {fewest} has the clusters 0..{count[fewest] - 1}"
            problems.append(Problem(tree.value["shapes"].value[index].mark, f"shapes[{index}]", text))
    return problems


def settings_of(tree: Tree) -> dict[str, Any]:
    """Return the settings of a cell that can change its results, without defaults."""
    said = tree.plain()
    if isinstance(said.get("training"), dict):
        said["training"] = in_short(said["training"])
    return {key: value for key, value in said.items() if key not in NO_SETTINGS}


def _cell(
    matrix: str,
    name: str,
    tree: Tree,
    base: Tree,
    values: dict[str, tuple[str, Tree]],
    seeds: tuple[int, ...],
    overrides: Sequence[str],
) -> tuple[Cell | None, list[Problem]]:
    at = ("cells", name)
    cell, problems = check_section(tree, CellFile, at)
    parts = name.split("/")
    unknown = [part for part in parts if part not in values]
    if len(parts) > 1 and unknown:
        hint = did_you_mean(unknown[0], values)
        text = f"no axis has the value {unknown[0]!r}.{hint} Known: {', '.join(values)}"
        problems.append(Problem(tree.key, ".".join(at), text))
    elif not unknown and len({values[part][0] for part in parts}) < len(parts):
        problems.append(Problem(tree.key, ".".join(at), "names two values of one axis"))
    if cell is None or problems:
        return None, problems
    scenario_tree = base
    for part in parts if not unknown else ():
        scenario_tree = merge(scenario_tree, values[part][1])
    if "scenario" in tree.value:
        scenario_tree = merge(scenario_tree, tree.value["scenario"])
    label = f"{matrix}-{name.replace('/', '-')}"
    own_seeds = cell.seeds or seeds
    scenario_tree.value.pop("name", None)
    settings = settings_of(scenario_tree)
    try:
        scenario = finish(apply_overrides(scenario_tree, [*overrides, f"seed={own_seeds[0]}"]), label)
    except ScenarioProblems as error:
        return None, error.problems
    clusters = len(scenario.nodes.clusters)
    for key in ("clusters", "clusters_std"):
        numbers = getattr(cell.published, key) if cell.published else None
        if numbers and len(numbers) != clusters:
            where = tree.value["published"].value[key]
            text = f"expected one number for each of the {clusters} clusters, got {len(numbers)}"
            return None, [Problem(where.mark, f"cells.{name}.published.{key}", text)]
    for measure in cell.published.measures if cell.published else ():
        if measure not in MEASURES:
            where = tree.value["published"].value["measures"].value[measure]
            text = f"unknown measure {measure!r}.{did_you_mean(measure, MEASURES)}"
            return None, [Problem(where.key, f"cells.{name}.published.measures.{measure}", text)]
    return Cell(name, scenario, own_seeds, cell.published, cell.note, cell.outside, settings), []
