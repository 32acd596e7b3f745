"""Runs of a matrix: seed after seed, cell after cell, each in its own process.

The same call after an interrupt runs what is missing. A failed run stops no other run; failures are listed at the end.
"""

import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.directory import write_json
from ddlsim.runs.reproduce.matrix import Cell, Matrix, is_selected
from ddlsim.runs.sweeps.points import Point, refuse_shared_directories, words_of
from ddlsim.runs.sweeps.pool import Job, progress, run_jobs

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
    notify: Callable[[str], None] = lambda _: None,
    add: Callable[[Run, dict[str, Any]], None] = lambda *_: None,
    stored: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> Outcome:
    """Run what is missing.

    Args:
        runs: see `runs_of`.
        data_dir: where to look for data first.
        download: whether torchvision may download.
        jobs: number of simultaneous processes.
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
        notify(f"{len(runs) - len(missing)} of {len(runs)} runs are there already.")
    options = ["-q", *([] if data_dir is None else ["--data-dir", str(data_dir)])]
    options += [] if download else ["--no-download"]
    failures, origin = [], {"commit": source_commit()}
    try:
        ends = run_jobs([Job(run.name, words_of(run, options)) for run in missing], jobs)
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
        _git(root, "ls-files", "--error-unmatch", "ddlsim/__init__.py")  # not a repository around an installation
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--", "ddlsim", "scenarios", "csrc") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
