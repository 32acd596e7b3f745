"""Runs what a matrix asks for and is not there yet: seed after seed, cell after cell, each in a process of its own.

It can be stopped at any time and started again: what has run to its end is there, and is not run again. A run that
fails is told at the end, with all others that did.
"""

import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.directory import complete_summary, same_scenario, write_json
from ddlsim.runs.manifest import same_files
from ddlsim.runs.reproduce.matrix import Cell, Matrix, is_meant
from ddlsim.runs.sweeps.pool import Job, run_jobs
from ddlsim.scenario import Scenario, to_yaml

ORIGIN = "origin.json"
"""In a run's directory: the commit of the sources that it ran with."""


@dataclass(frozen=True)
class Run:
    """One seed of one cell.

    Args:
        cell: which cell.
        scenario: with this seed.
        directory: where its run lies, or will lie.
    """

    cell: Cell
    scenario: Scenario
    directory: Path

    def summary(self) -> dict | None:
        """Its summary, if it has been run to its end as the matrix is now."""
        finished = complete_summary(self.directory)
        return finished if finished and self._is_there() else None

    def _is_there(self) -> bool:
        return same_scenario(self.directory, self.scenario) and same_files(self.directory, self.scenario)

    @property
    def file(self) -> Path:
        """The scenario that its process reads: beside its directory."""
        return self.directory.with_name(f"{self.directory.name}.yaml")


def runs_of(matrix: Matrix, out: Path, seeds: int | None = None, patterns: Sequence[str] = ()) -> list[Run]:
    """The runs of a matrix, all cells with their first seed first, so that a table fills up evenly.

    Args:
        matrix: what to run.
        out: folder of its runs: <cell>/seed-<seed>, slashes in the cell's name as `+`.
        seeds: only so many seeds of each cell; None: all.
        patterns: only cells that match one of these shell patterns; empty: all.
    Raises:
        ScenarioError: if a pattern matches no cell.
    """
    cells = [cell for cell in matrix.cells if is_meant(cell.name, patterns)]
    for pattern in patterns:
        if not any(is_meant(cell.name, [pattern]) for cell in cells):
            known = ", ".join(cell.name for cell in matrix.cells)
            raise ScenarioError(f"--cells {pattern}: no cell of {matrix.name} matches. Known: {known}.")
    found = []
    for turn in range(max(len(cell.seeds[:seeds]) for cell in cells)):
        for cell in cells:
            if turn < len(cell.seeds[:seeds]):
                seed = cell.seeds[turn]
                scenario = cell.scenario.model_copy(update={"seed": seed})
                found.append(Run(cell, scenario, out / cell.name.replace("/", "+") / f"seed-{seed}"))
    return found


@dataclass(frozen=True)
class Failure:
    """A run that did not come to its end.

    Args:
        run: which.
        reason: what went wrong.
    """

    run: Run
    reason: str

    def __str__(self) -> str:
        return f"{self.run.cell.name} seed {self.run.scenario.seed}: {self.reason}"


@dataclass(frozen=True)
class Outcome:
    """How it went.

    Args:
        interrupted: the user has stopped it; what is missing is run when it is started again.
        failures: in the order in which they happened.
    """

    interrupted: bool
    failures: tuple[Failure, ...]


def reproduce(
    runs: Sequence[Run],
    *,
    data_dir: Path | None = None,
    download: bool = True,
    jobs: int = 1,
    tell: Callable[[str], None] = lambda _: None,
    add: Callable[[Run, dict], None] = lambda *_: None,
    stored: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> Outcome:
    """Runs what has not been run yet.

    The scenarios' fallbacks are never taken: published numbers are of the data that they name.

    Args:
        runs: see `runs_of`.
        data_dir: where to look for data first.
        download: whether torchvision may download.
        jobs: processes that run side by side.
        tell: takes progress, line by line.
        add: called with every run that is complete, now or earlier, and its summary.
        stored: seeds with stored results, by cell; they are not run again.
    """
    there = {run.directory: run.summary() for run in runs}
    wanted = [
        run for run in runs if there[run.directory] is None and run.scenario.seed not in stored.get(run.cell.name, ())
    ]
    for run in runs:
        summary = there[run.directory]
        if summary is not None:
            add(run, summary)
    if len(wanted) < len(runs):
        tell(f"{len(runs) - len(wanted)} of {len(runs)} runs are there already.")
    options = [] if data_dir is None else ["--data-dir", str(data_dir)]
    options += ["-q", "--resume", "--no-fallback", *([] if download else ["--no-download"])]
    for run in wanted:
        run.file.parent.mkdir(parents=True, exist_ok=True)
        run.file.write_text(to_yaml(run.scenario), encoding="utf-8")
    tasks = {Job(str(run.directory), _words(run, options)): run for run in wanted}
    started, failures, origin = time.perf_counter(), [], {"commit": source_commit()}
    try:
        for done, ended in enumerate(run_jobs(list(tasks), jobs), 1):
            run, place = tasks[ended.job], f"[{done}/{len(wanted)}]"
            summary = run.summary()
            if ended.code or summary is None:
                failures.append(Failure(run, ended.cause or "it has ended without a summary"))
                tell(f"{place} {failures[-1]}")
            else:
                write_json(run.directory / ORIGIN, origin)
                add(run, summary)
                tell(f"{place} {_line(run, summary, done, len(wanted), time.perf_counter() - started)}")
    except KeyboardInterrupt:
        return Outcome(True, tuple(failures))
    return Outcome(False, tuple(failures))


def _words(run: Run, options: Sequence[str]) -> tuple[str, ...]:
    """The arguments of `ddlsim` that make the run."""
    return ("run", str(run.file), "--out", str(run.directory), *options)


def source_commit() -> str | None:
    """The commit of the sources that run, with a `+` if they differ from it; None: they are not in a repository."""
    root = Path(__file__).parents[3]
    try:
        _git(
            root, "ls-files", "--error-unmatch", "ddlsim/__init__.py"
        )  # not the repository that an installation lies in
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        return commit + ("+" if _git(root, "status", "--porcelain", "--", "ddlsim", "scenarios", "csrc") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _line(run: Run, summary: dict, done: int, total: int, spent_s: float) -> str:
    from ddlsim.report.summary import honest_part
    from ddlsim.report.text import seconds_text
    from ddlsim.tasks.base import Metric

    metric = summary["metric"]
    value = Metric(**summary["judged_by"]).text(honest_part(summary)[metric]["all"])
    left = seconds_text(spent_s / done * (total - done))
    return (
        f"{run.cell.name} seed {run.scenario.seed}: {metric} {value}  ({seconds_text(summary['wall_s'])}, ETA {left})"
    )
