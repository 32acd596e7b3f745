"""The cells of a matrix and their runs, each in a separate process; published.py has the keys of its file.

The same call after an interrupt runs the missing ones. A failed run stops no other run; failures are listed at the end.
"""

import fnmatch
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ddlsim.foundation.environment import git
from ddlsim.foundation.errors import ScenarioError, did_you_mean
from ddlsim.runs.directory import write_json
from ddlsim.runs.reproduce.published import CellFile, MatrixFile, Published
from ddlsim.runs.sweeps.axes import GridFile, combined, read_grid_file
from ddlsim.runs.sweeps.points import Point, refuse_shared_directories, words_of
from ddlsim.runs.sweeps.pool import Job, progress
from ddlsim.runs.sweeps.together import run_processes
from ddlsim.scenario.load import apply_overrides, finish
from ddlsim.scenario.model import Scenario
from ddlsim.scenario.tree import Problem, ScenarioProblems, Tree, in_order, in_short
from ddlsim.tasks.base import Metric

NO_SETTINGS = ("seed", "name", "description", "paper", "fallback")
"""Keys of a scenario that change no result of a cell."""


@dataclass(frozen=True)
class Cell:
    """One cell of a matrix.

    Args:
        name: name in the file.
        scenario: its scenario with the first seed.
        seeds: its seeds, in order.
        content: its keys in the file.
        settings: its scenario as written, without seed, names and published numbers.
    """

    name: str
    scenario: Scenario
    seeds: tuple[int, ...]
    content: CellFile
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def published(self) -> Published | None:
        """The published numbers; None if there are none."""
        return self.content.published


@dataclass(frozen=True)
class Matrix:
    """A checked matrix.

    Args:
        name: name of the file without its ending.
        content: keys of the file.
        cells: cells in the file's order.
        overrides: settings from the command line for every cell.
    """

    name: str
    content: MatrixFile
    cells: tuple[Cell, ...]
    overrides: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[str, ...]:
        """The overrides that can change results; without any the matrix is as published."""
        return tuple(override for override in self.overrides if not override.startswith("records."))

    @property
    def learns(self) -> bool:
        """Whether its runs train models; without training (`learning: none`) they have measures alone."""
        return self.cells[0].scenario.learning != "none"

    @property
    def judged_by(self) -> Metric:
        """The metric of the nodes of all cells."""
        return self.cells[0].scenario.learned.judged_by

    @property
    def metric(self) -> str:
        """Its name: accuracy, mse, ..."""
        return self.judged_by.name


def read_matrix(path: str | Path, overrides: Sequence[str] = (), patterns: Sequence[str] = ()) -> Matrix:
    """Read and check a matrix with all its cells.

    Args:
        path: a YAML file, or the bare name of one in ./scenarios or in the package.
        overrides: "dotted.key=value" texts for every selected cell.
        patterns: shell patterns of the selected cells; empty for all.
    Raises:
        ScenarioError: every problem of the file and of its cells at once, each with its place.
    """
    for override in overrides:
        if override.partition("=")[0].strip() == "seed":
            raise ScenarioError(f"--set {override}: a matrix has its own seeds; --seeds takes the first of them.")
    file, content = read_grid_file(path, MatrixFile, matrices=True)
    problems = list(_shape_problems(file.tree, content))
    cells = []
    for name, tree in file.tree.value["cells"].value.items():
        try:
            cells.append(_cell(file, name, tree, content, overrides if is_selected(name, patterns) else ()))
        except ScenarioProblems as error:
            problems += error.problems
    problems = problems or list(_cluster_problems(file.tree, content, cells))
    if problems:
        raise ScenarioProblems(in_order(problems))
    judged = {cell.scenario.learned.judged_by.name for cell in cells}
    if len(judged) > 1:
        raise ScenarioError(f"{file.path}: cells are judged by one metric, these by {' and '.join(sorted(judged))}.")
    return Matrix(file.path.stem, content, tuple(cells), tuple(overrides))


def is_selected(cell: str, patterns: Sequence[str]) -> bool:
    """Whether a cell's name matches one of the patterns; without patterns every cell does."""
    return not patterns or any(fnmatch.fnmatch(cell, pattern) for pattern in patterns)


def settings_of(tree: Tree) -> dict[str, Any]:
    """Return the settings of a cell that can change its results, without defaults."""
    said = tree.plain()
    if isinstance(said.get("training"), dict):
        said["training"] = in_short(said["training"])
    return {key: value for key, value in said.items() if key not in NO_SETTINGS}


def _shape_problems(tree: Tree, content: MatrixFile) -> Iterator[Problem]:
    """Problems of shapes that name unknown cells or measures."""
    for index, shape in enumerate(content.shapes):
        texts = [
            f"no cell is named {cell!r}.{did_you_mean(cell, content.cells)}"
            for cell in shape.cells
            if cell not in content.cells
        ]
        if isinstance(shape.of, str) and shape.of not in content.measures:
            texts.append(f"of: {shape.of!r} is not a measure of this matrix")
        for text in texts:
            yield Problem(tree.value["shapes"].value[index].mark, f"shapes[{index}]", text)


def _cluster_problems(tree: Tree, content: MatrixFile, cells: Sequence[Cell]) -> Iterator[Problem]:
    """Problems of shapes and published numbers of clusters that a cell does not have."""
    count = {cell.name: len(cell.scenario.nodes.clusters) for cell in cells}
    for index, shape in enumerate(content.shapes):
        fewest = min(shape.cells, key=lambda name: count[name])
        if isinstance(shape.of, int) and not 0 <= shape.of < count[fewest]:
            text = f"of: {shape.of}: {fewest} has the clusters 0..{count[fewest] - 1}"
            yield Problem(tree.value["shapes"].value[index].mark, f"shapes[{index}]", text)
    for cell in cells:
        for key in ("clusters", "clusters_std"):
            numbers = getattr(cell.published, key, None)
            if numbers and len(numbers) != count[cell.name]:
                where = tree.value["cells"].value[cell.name].value["published"].value[key]
                text = f"expected one number for each of the {count[cell.name]} clusters, got {len(numbers)}"
                yield Problem(where.mark, f"cells.{cell.name}.published.{key}", text)


def _cell(file: GridFile, name: str, tree: Tree, content: MatrixFile, overrides: Sequence[str]) -> Cell:
    """Return a checked cell; raise ScenarioProblems for its problems."""
    own = content.cells[name]
    is_value = "/" in name or any(value.short == name for axis in file.axes for value in axis)
    values = file.values(name, tree.key, f"cells.{name}") if is_value else []
    merged = combined(file.base, [*(value.part for value in values), tree.child("scenario")])
    merged = apply_overrides(merged, [value.option for value in values if value.option])
    for key in ("name", "fallback"):  # a table's runs take no other data than the published one
        merged.value.pop(key, None)
    settings, seeds = settings_of(merged), own.seeds or content.seeds
    label = f"{file.path.stem}-{name.replace('/', '-')}"
    scenario = finish(apply_overrides(merged, [*overrides, f"seed={seeds[0]}"]), label)
    return Cell(name, scenario, seeds, own, settings)


ORIGIN = "origin.json"
"""File in a run directory with the commit of the sources."""


@dataclass(frozen=True, kw_only=True)
class Run(Point):
    """One seed of one cell."""

    cell: Cell
    seed: int


def runs_of(matrix: Matrix, out: Path, seeds: int | None = None, patterns: Sequence[str] = ()) -> list[Run]:
    """Return the runs of a matrix, all cells with their first seed first, so that a table fills up evenly.

    Args:
        matrix: the matrix.
        out: folder of its runs: <cell>/seed-<seed>, slashes in the cell's name as `+`.
        seeds: number of seeds of each cell; None for all.
        patterns: shell patterns of the selected cells; empty for all.
    Raises:
        ScenarioError: a pattern matches no cell, or two cells would have the same directory.
    """
    cells = [cell for cell in matrix.cells if is_selected(cell.name, patterns)]
    for pattern in patterns:
        if not any(is_selected(cell.name, [pattern]) for cell in cells):
            known = ", ".join(cell.name for cell in matrix.cells)
            raise ScenarioError(f"--cells {pattern}: no cell of {matrix.name} matches. Known: {known}.")
    found = []
    for turn in range(max(len(cell.seeds[:seeds]) for cell in cells)):
        for cell in cells:
            for seed in cell.seeds[:seeds][turn : turn + 1]:
                name, directory = f"{cell.name} seed {seed}", out / cell.name.replace("/", "+") / f"seed-{seed}"
                scenario = cell.scenario.model_copy(update={"seed": seed})
                found.append(Run(name=name, directory=directory, scenario=scenario, cell=cell, seed=seed))
    refuse_shared_directories(found)
    return found


@dataclass(frozen=True)
class Outcome:
    """Result of `reproduce`.

    Args:
        interrupted: whether the user has stopped it.
        failures: name and cause of each failed run.
    """

    interrupted: bool
    failures: tuple[tuple[str, str], ...]


def reproduce(
    runs: Sequence[Run],
    *,
    data_dir: Path | None = None,
    download: bool = True,
    jobs: int = 1,
    together: int | None = None,
    notify: Callable[[str], None] = lambda _: None,
    add: Callable[[Run, dict[str, Any]], None] = lambda *_: None,
    stored: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> Outcome:
    """Run the missing runs.

    Args:
        runs: see `runs_of`.
        data_dir: where to look for data first.
        download: whether torchvision may download.
        jobs, together: see `run_processes`.
        notify: receives progress, line by line.
        add: called with every complete run and its summary.
        stored: seeds with stored results, by cell; they are not run again.
    """
    complete = {run.name: summary for run in runs if (summary := run.summary()) is not None}
    missing = [run for run in runs if run.name not in complete and run.seed not in stored.get(run.cell.name, ())]
    for run in runs:
        if run.name in complete:
            add(run, complete[run.name])
    if len(missing) < len(runs):
        notify(f"{len(runs) - len(missing)} of {len(runs)} runs exist already.")
    options = ["-q", *([] if data_dir is None else ["--data-dir", str(data_dir)])]
    options += [] if download else ["--no-download"]
    failures, origin = [], {"commit": source_commit()}
    try:
        started = [Job(run.name, words_of(run, options)) for run in missing]
        ends = run_processes(started, jobs, together)
        for run, summary, ended in progress(missing, ends, notify):
            if summary is None:
                failures.append((run.name, ended.cause))
            else:
                write_json(run.directory / ORIGIN, origin)
                add(run, summary)
    except KeyboardInterrupt:
        return Outcome(True, tuple(failures))
    return Outcome(False, tuple(failures))


def source_commit() -> str | None:
    """Return the commit of the sources, with a `+` if they differ from it; None outside a repository."""
    root = Path(__file__).parents[3]
    try:
        git(root, "ls-files", "--error-unmatch", "ddlsim/__init__.py")  # not a repository around an installation
        commit = git(root, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if git(root, "status", "--porcelain", "--", "ddlsim", "scenarios", "csrc") else "")
    except (OSError, subprocess.SubprocessError):
        return None
