"""Sweeps: one scenario under all combinations of some settings, each with several seeds; axes.py has the grammar.

Every combination is checked before anything runs; a combination that cannot be run does not stop the others. A sweep
can also be printed for other schedulers: one command per run, or an array script for SLURM.
"""

import json
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.directory import complete_summary, same_scenario
from ddlsim.runs.manifest import same_files
from ddlsim.runs.sweeps.axes import Axis, SweepFile, Value, combined, read_grid_file
from ddlsim.scenario import Scenario
from ddlsim.scenario.load import apply_overrides, finish, parse_override, with_fallback
from ddlsim.scenario.model import to_plain, to_yaml
from ddlsim.scenario.tree import Problem, ScenarioProblems, Tree

MOST_POINTS = 100_000


@dataclass(frozen=True)
class Base:
    """The common part of all runs of a sweep.

    Args:
        name: name of the scenario, unless it sets one.
        tree: the scenario as written.
        overrides: "dotted.key=value" texts for every run.
        out: folder of the runs: <combination>/seed-<seed>.
        argument: the scenario's name on the command line; None if it is part of a sweep file.
    """

    name: str
    tree: "Tree"
    overrides: tuple[str, ...]
    out: Path
    argument: str | None = None


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Args:
        name: its values and seed, e.g. "topology.name=ring,algorithm.heads=2 seed 3".
        directory: its run directory.
        scenario: its scenario; None if it is invalid.
        refusal: reason why it cannot be run.
        words: the arguments of `ddlsim` up to the directory; None if the scenario must be written to a file first.
        problems: all problems of its scenario.
    """

    name: str
    directory: Path
    scenario: Scenario | None
    refusal: str = ""
    words: tuple[str, ...] | None = None
    problems: "tuple[Problem, ...]" = ()

    def summary(self) -> dict[str, Any] | None:
        """Return the summary of its complete run with the current settings, on its data or its fallback's."""
        found = complete_summary(self.directory)
        if found is None or self.scenario is None:
            return None
        for scenario in (self.scenario, with_fallback(self.scenario)):
            if scenario and same_scenario(self.directory, scenario) and same_files(self.directory, scenario):
                return found
        return None

    @property
    def file(self) -> Path:
        """File of a scenario that options alone cannot describe, next to the directory."""
        return self.directory.with_name(f"{self.directory.name}.yaml")


def points(
    base: Base, axes: Sequence[Axis], seeds: Sequence[int] | None, cells: Sequence[Sequence[Value]] | None = None
) -> list[Point]:
    """Return all combinations with the first seed, then with the next ones, so that results fill up evenly.

    Args:
        base: the common part.
        axes: values of each axis.
        seeds: seeds of each combination; None for the scenario's own.
        cells: the combinations; None for all.
    Raises:
        ScenarioError: there are too many, or two of them have the same name, directory or scenario.
    """
    total = math.prod(map(len, axes)) * len(seeds or [0])
    if total > MOST_POINTS:
        raise ScenarioError(f"a sweep may have {MOST_POINTS:,} runs, this one has {total:,}.")
    combinations = list(product(*axes)) if cells is None else cells
    if not combinations:
        raise ScenarioError("the sweep has no combination: expected at least one cell, or one value per axis.")
    drawn: Sequence[int | None] = seeds or [None]
    found = [point_of(base, combination, seed) for seed in drawn for combination in combinations]
    common = [each for each in found[0].problems if all(each in point.problems for point in found)]
    if len(found) > 1 and common:  # no setting of the grid can correct them
        raise ScenarioProblems(common)
    refuse_shared_directories(found)
    refuse_same_scenarios((point.name, point.scenario) for point in found if point.scenario is not None)
    if any(point.scenario is not None and point.scenario.devices.measures for point in found):
        raise ScenarioError(
            "devices: a sweep compares runs, and devices calibrated would measure other step times in each of them. "
            "Set devices to what `ddlsim calibrate` prints."
        )
    return found


def refuse_shared_directories(found: Iterable[Point]) -> None:
    """Raise ScenarioError if two runs would have the same directory."""
    names: dict[Path, list[str]] = {}
    for point in found:
        names.setdefault(point.directory, []).append(point.name)
    directory, shared = max(names.items(), key=lambda item: len(item[1]))
    if len(shared) > 1:
        same = " and ".join(map(repr, shared[:5]))
        raise ScenarioError(f"runs of the sweep would share the directory {directory}: {same}. Rename or remove them.")


def refuse_same_scenarios(found: Iterable[tuple[str, Scenario]]) -> None:
    """Raise ScenarioError if two runs of different names would be the same.

    Args:
        found: name and scenario of each run.
    """
    known: dict[str, list[tuple[str, Scenario]]] = {}
    for name, scenario in found:
        alike = known.setdefault(json.dumps(to_plain(scenario), sort_keys=True), [])
        same = next((other for other, known in alike if known == scenario), None)
        if same is not None:
            raise ScenarioError(
                f"runs of the sweep would be the same: {same!r} and {name!r}. A value is repeated, two axes set "
                "one key, or one sets a whole part whose keys another sets: put the part first, or change the values."
            )
        alike.append((name, scenario))


def point_of(base: Base, combination: Sequence[Value], seed: int | None) -> Point:
    """Return the run of one combination."""
    label = ",".join(value.label for value in combination)
    folder = re.sub(r"[/\0]|^\.+$", "-", label)
    directory = (base.out / folder if folder else base.out) / ("run" if seed is None else f"seed-{seed}")
    title = " ".join(filter(None, (label, "" if seed is None else f"seed {seed}"))) or base.name
    options = [*base.overrides, *(value.option for value in combination if value.option)]
    options += [] if seed is None else [f"seed={seed}"]
    words = None
    if base.argument is not None:
        words = ("run", base.argument, *(word for option in options for word in ("--set", option)))
    try:
        _refuse_hidden(options, [value.option for value in combination if value.option])
        tree = combined(base.tree, (value.part for value in combination))
        scenario = finish(apply_overrides(tree, options), base.name)
    except ScenarioError as error:
        problems = tuple(error.problems) if isinstance(error, ScenarioProblems) else ()
        return Point(title, directory, None, str(error).splitlines()[0], words, problems)
    return Point(title, directory, scenario, "", words)


def _refuse_hidden(options: Sequence[str], naming_options: Sequence[str]) -> None:
    """Raise ScenarioError if another option overrides a key inside a value that the run's name states.

    Args:
        options: options of the run, "KEY=VALUE".
        naming_options: the options in the name of the run.
    """
    parsed = {option: parse_override(option) for option in options}
    for whole in naming_options:
        path, tree = parsed[whole]
        for option, (longer, value) in parsed.items():
            inner = tree if longer[: len(path)] == path and longer != path else None
            for key in longer[len(path) :]:
                inner = None if inner is None else inner.child(key)
            if inner is not None and inner.plain() != value.plain():
                raise ScenarioError(f"{whole}: {option} overrides a part of it. Remove one of the two.")


def read_sweep(
    path: str | Path,
    out: Path | None = None,
    overrides: Sequence[str] = (),
    grid: Sequence[Axis] = (),
    seeds: Sequence[int] | None = None,
) -> list[Point]:
    """Return the runs of a sweep file.

    Args:
        path: the file.
        out: folder of the runs; by default runs/sweep-<name of the file>.
        overrides: "dotted.key=value" texts for every run.
        grid: more axes, see `parse_grid`.
        seeds: replace the file's seeds.
    Raises:
        ScenarioError: every problem of the file at once; a combination that cannot be run is a point with a refusal.
    """
    file, content = read_grid_file(path, SweepFile)
    written = file.tree.value["cells"].value if content.cells is not None else ()
    cells = [file.values(str(cell.value), cell.mark, f"cells[{index}]") for index, cell in enumerate(written)]
    if cells and grid:
        raise ScenarioError(f"{file.path}: has `cells`. Remove them, or leave --grid out.")
    name = file.path.stem
    base = Base(name, file.base, tuple(overrides), out or Path("runs") / f"sweep-{name}")
    return points(base, [*file.axes, *grid], seeds or content.seeds, None if content.cells is None else cells)


SLURM = """\
#!/bin/bash
#SBATCH --job-name={name}
#SBATCH --array=1-{count}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=4
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --output={log}
# Add your cluster's options: --time, --partition, --gres=gpu:1. TERM, 120 s before the end, makes a run end with a
# checkpoint; a task whose run is complete ends at once, so submit the same script again to run the rest.
cd {here} || exit 1
command=$(sed -n "${{SLURM_ARRAY_TASK_ID}}p" <<'RUNS'
{commands}
RUNS
)
eval "exec srun $command"
"""


def words_of(point: Point, options: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the arguments of `ddlsim` for a run; write the scenario's file if options cannot describe it."""
    words = point.words
    if words is None:
        assert point.scenario is not None
        point.file.parent.mkdir(parents=True, exist_ok=True)
        point.file.write_text(to_yaml(point.scenario), encoding="utf-8")
        words = ("run", str(point.file))
    return (*words, "--resume", "--out", str(point.directory), *options)


def commands(points: Sequence[Point], options: Sequence[str] = ()) -> str:
    """One line for each run."""
    return "".join(f"{shlex.join(['ddlsim', *words_of(point, options)])}\n" for point in points)


def slurm(points: Sequence[Point], name: str, out: Path, options: Sequence[str] = ()) -> str:
    """A script for `sbatch`, a task of its array for each run."""
    log = shlex.quote(str(out.absolute() / "slurm-%A_%a.log"))
    here = shlex.quote(str(Path.cwd()))
    return SLURM.format(
        name=shlex.quote(name), count=len(points), log=log, here=here, commands=commands(points, options).rstrip()
    )
