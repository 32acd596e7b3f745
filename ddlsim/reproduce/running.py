"""Runs what a matrix asks for and is not there yet: seed after seed, cell after cell, in one process or in several."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from ddlsim.errors import ScenarioError
from ddlsim.reproduce.matrix import Cell, Matrix, is_meant
from ddlsim.runs import run as run_scenario
from ddlsim.runs.directory import complete_summary, same_scenario
from ddlsim.scenario import Scenario, from_mapping
from ddlsim.scenario.model import to_plain


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
        return finished if finished and same_scenario(self.directory, self.scenario) else None


def runs_of(matrix: Matrix, out: Path, seeds: int | None = None, patterns: Sequence[str] = ()) -> list[Run]:
    """The runs of a matrix, all cells with their first seed first, so that a table fills up evenly.

    Args:
        matrix: what to run.
        out: folder of its runs: <cell>/seed-<seed>, slashes in the cell's name as `+`.
        seeds: only so many seeds of each cell; None: all.
        patterns: only cells that match one of these shell patterns; empty: all.
    Raises:
        ScenarioError: if no cell matches.
    """
    cells = [cell for cell in matrix.cells if is_meant(cell.name, patterns)]
    if not cells:
        known = ", ".join(cell.name for cell in matrix.cells)
        raise ScenarioError(f"--cells {' '.join(patterns)}: no cell of {matrix.name} matches. Known: {known}.")
    found = []
    for turn in range(max(len(cell.seeds[:seeds]) for cell in cells)):
        for cell in cells:
            if turn < len(cell.seeds[:seeds]):
                seed = cell.seeds[turn]
                scenario = cell.scenario.model_copy(update={"seed": seed})
                found.append(Run(cell, scenario, out / cell.name.replace("/", "+") / f"seed-{seed}"))
    return found


def reproduce(
    runs: Sequence[Run],
    *,
    data_dir: Path | None = None,
    download: bool = True,
    jobs: int = 1,
    tell: Callable[[str], None] = lambda _: None,
    command: list[str] | None = None,
) -> bool:
    """Runs what has not been run yet.

    The scenarios' fallbacks are never taken: published numbers are of the data that they name.

    Args:
        runs: see `runs_of`.
        data_dir: where to look for data first.
        download: whether torchvision may download.
        jobs: processes that run side by side.
        tell: takes progress, line by line.
        command: for the manifests.
    Returns:
        Whether all of them are there now; False if the user has interrupted.
    Raises:
        DataMissing, DataDamaged: see `ddlsim run`.
    """
    wanted = [run for run in runs if run.summary() is None]
    if len(wanted) < len(runs):
        tell(f"{len(runs) - len(wanted)} of {len(runs)} runs are there already.")
    options = {"data_dir": data_dir, "download": download, "command": command}
    started = time.perf_counter()
    outcomes = _in_turn(wanted, options) if jobs == 1 else _side_by_side(wanted, options, jobs)
    for done, (run, summary) in enumerate(outcomes, 1):
        if summary["status"] != "done":
            return False
        spent_s = time.perf_counter() - started
        tell(_line(run, summary, done, len(wanted), spent_s))
    return True


def _line(run: Run, summary: dict, done: int, total: int, spent_s: float) -> str:
    from ddlsim.report.text import quality_text, seconds_text

    metric = summary["metric"]
    value = quality_text(metric, summary[metric]["all"])
    left = seconds_text(spent_s / done * (total - done))
    return (
        f"[{done}/{total}] {run.cell.name} seed {run.scenario.seed}: {metric} {value}"
        f"  ({seconds_text(summary['wall_s'])}, ETA {left})"
    )


def _in_turn(runs: Sequence[Run], options: dict) -> Iterator[tuple[Run, dict]]:
    for run in runs:
        yield run, run_scenario(run.scenario, out=run.directory, fallback=False, progress="none", **options)


def _side_by_side(runs: Sequence[Run], options: dict, jobs: int) -> Iterator[tuple[Run, dict]]:
    """Fresh processes, each with its share of the cores; a scenario travels as its YAML keys."""
    context = get_context("spawn")
    number = context.Value("i", 0)
    with ProcessPoolExecutor(jobs, context, _take_cores, (number, jobs)) as pool:
        pending = {pool.submit(_run_elsewhere, to_plain(run.scenario), run.directory, options): run for run in runs}
        try:
            for future in as_completed(pending):
                yield pending[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _take_cores(number, jobs: int) -> None:
    """Limits a worker process to its share of the cores, so that its waves have as many threads."""
    with number.get_lock():
        own, number.value = number.value, number.value + 1
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        share = max(1, len(cores) // jobs)
        os.sched_setaffinity(0, {cores[(own * share + i) % len(cores)] for i in range(share)})


def _run_elsewhere(scenario: dict, directory: Path, options: dict) -> dict:
    return run_scenario(from_mapping(scenario), out=directory, fallback=False, progress="none", **options)
