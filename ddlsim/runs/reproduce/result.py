"""Results of the runs of each cell, their distance from the published numbers, and the distance common to all cells.

The difference of one cell is uncertain if few seeds were published and fewer have been run. An effect on all cells
(other images, another version of a library) appears in their weighted mean; the scatter around the mean shows whether
there are others.

Results are stored in one JSON file per table, from which pages are made when the run directories are gone.

    <folder>/<matrix>.json         <matrix>+<override>+... if settings were overridden

The file holds, per cell, the settings and the values of every seed with the command, the commit, the machine and the
date. Values are used only if the cell's settings, the code of its plug-ins and its files have not changed since; values
of other settings move to the cell's `earlier` when a new run is added.
"""

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.summary import honest_part
from ddlsim.runs.directory import read_json, write_json
from ddlsim.runs.manifest import file_digests
from ddlsim.runs.reproduce.matrix import ORIGIN, Cell, Matrix, Run
from ddlsim.runs.reproduce.published import measured
from ddlsim.scenario.parts import origins

FROM_MANIFEST = ("device", "cpu", "threads", "started")
CODE_KEYS = ("kind", "sha256", "distribution", "version")
"""Entries of a manifest's plug-in that identify its code, on any machine."""

Values = dict[str, Any]
"""Values of one run and their origin."""


def table_name(matrix: Matrix) -> str:
    """Return the name of a matrix with its overrides, for files and folders."""
    return "+".join([matrix.name, *(change.replace("/", "|") for change in matrix.changes)])


def run_values(matrix: Matrix, run: Run, summary: dict[str, Any]) -> Values:
    """Return the numbers of one run: the matrix's metric over all nodes and per cluster, and its measures."""
    found = honest_part(summary)[matrix.metric]
    values = {key: found.get(key) for key in ("all", "clusters", "std")}
    if summary.get("diverged"):
        values["diverged"] = len(summary["diverged"]["nodes"]) / summary["nodes"]
    return values | {"measures": measured(summary, run.directory, matrix.content.measures)}


@dataclass(frozen=True)
class ResultStore:
    """The stored results of one matrix.

    Args:
        matrix: the matrix.
        folder: folder of all results files.
    """

    matrix: Matrix
    folder: Path

    @property
    def path(self) -> Path:
        """The results file."""
        return self.folder / f"{table_name(self.matrix)}.json"

    def read(self) -> dict[str, dict[int, Values]]:
        """Return the valid values by cell and seed.

        Raises:
            ScenarioError: the file cannot be read.
        """
        stored = read_table(self.path)["cells"]
        return {cell.name: _valid(stored[cell.name], cell) for cell in self.matrix.cells if cell.name in stored}

    def add(self, run: Run, summary: dict[str, Any]) -> None:
        """Add the values of a completed run; several processes may add to one file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            table = read_table(self.path)
            cell = table["cells"].setdefault(run.cell.name, {"settings": run.cell.settings, "seeds": {}})
            if cell["settings"] != run.cell.settings:
                earlier = [*cell.pop("earlier", []), dict(cell)]
                cell |= {"settings": run.cell.settings, "seeds": {}, "earlier": earlier}
            seeds = cell["seeds"] | {str(run.seed): self._values(run, summary)}
            cell["seeds"] = dict(sorted(seeds.items(), key=lambda item: int(item[0])))
            write_json(self.path, self._head() | {"cells": table["cells"]})

    def _head(self) -> dict[str, Any]:
        return {"matrix": self.matrix.name, "overrides": list(self.matrix.changes), "metric": self.matrix.metric}

    def _values(self, run: Run, summary: dict[str, Any]) -> Values:
        manifest, origin = read_json(run.directory / "manifest.json"), read_json(run.directory / ORIGIN)
        changes = [word for change in self.matrix.changes for word in ("--set", change)]
        values = {
            **run_values(self.matrix, run, summary),
            "rounds": summary["rounds"],
            "wall_s": summary["wall_s"],
            "commit": origin.get("commit"),
            **{key: manifest.get(key) for key in FROM_MANIFEST},
            "command": ["ddlsim", "reproduce", self.matrix.name, "--cells", run.cell.name, *changes],
        }
        inputs = _inputs(manifest.get("plugins") or (), manifest.get("files_read") or {})
        return values if inputs == NO_INPUTS else {**values, "inputs": inputs}


NO_INPUTS: dict[str, Any] = {"code": [], "files": {}}


def _valid(stored: Mapping[str, Any], cell: Cell) -> dict[int, Values]:
    """Return the values of a cell's seeds that were computed with its current settings, plug-ins and files."""
    if stored["settings"] != cell.settings:
        return {}
    now = _inputs(origins(cell.scenario), file_digests(cell.scenario))
    found = {seed: stored["seeds"][str(seed)] for seed in cell.seeds if str(seed) in stored["seeds"]}
    return {seed: values for seed, values in found.items() if _same_inputs(values.get("inputs", NO_INPUTS), now)}


def _inputs(plugins: Iterable[Mapping[str, Any]], files: Mapping[str, str]) -> dict[str, Any]:
    """Return the digests of plug-ins and files that a run depends on."""
    return {"code": [[each.get(key) for key in CODE_KEYS] for each in plugins], "files": dict(files)}


def _same_inputs(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return then["code"] == now["code"] and all(
        then["files"].get(name, digest) == digest for name, digest in now["files"].items()
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for the lock of a folder, so that no process overwrites the results that another one adds."""
    with (folder / ".lock").open("w") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_table(path: Path) -> dict[str, Any]:
    """Return the content of a results file; without cells if the file does not exist.

    Raises:
        ScenarioError: it cannot be read, or is another file: the next run would overwrite its content.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"cells": {}}
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: cannot be read ({error}). Repair the file, or move it away.") from error
    if not isinstance(found, dict) or not isinstance(found.get("cells"), dict):
        raise ScenarioError(f"{path}: expected a results file, which has `cells`. Move it, or set another --results.")
    return found


CLOSE = 2.0
"""Published standard deviations within which a cell counts as reproduced."""
CLOSE_PERCENT = 5.0
"""Percent within which the first published measure of a table without learning counts as reproduced."""
FAR = 2.0
"""Percentage points beyond which a cell without a published deviation over seeds counts as outside."""


@dataclass(frozen=True)
class Result:
    """Our results of one cell; accuracies in percent, like the published ones.

    Args:
        cell: the cell.
        seeds: completed seeds; without any, the numbers are None.
        mean: over seeds.
        std: population standard deviation over seeds (or over clusters, or over nodes and then the mean over seeds, as
            the matrix says); None with one seed.
        clusters: mean of each cluster over seeds; None for a cluster without honest nodes.
        measures: measure -> mean over the seeds that have it.
        having: measure -> number of seeds that have it: some may not reach a target.
        partly: seeds in which some nodes have diverged; if all nodes have in one seed, the numbers are None.
        unmeasured: measures missing in stored results, which are older than the matrix's key.
    """

    cell: Cell
    seeds: tuple[int, ...]
    mean: float | None
    std: float | None
    clusters: tuple[float | None, ...]
    measures: Mapping[str, float] = field(default_factory=dict)
    having: Mapping[str, int] = field(default_factory=dict)
    partly: tuple[int, ...] = ()
    unmeasured: frozenset[str] = frozenset()

    @property
    def difference(self) -> float | None:
        """Ours minus the published mean."""
        published = self.cell.published
        if self.mean is None or published is None or published.mean is None:
            return None
        return self.mean - published.mean

    @property
    def deviations(self) -> float | None:
        """The difference in published standard deviations."""
        published, difference = self.cell.published, self.difference
        if difference is None or published is None or not published.std:
            return None
        return difference / published.std

    def relative_error(self, measure: str) -> float | None:
        """Return the difference of a measure from its published value, in percent."""
        published = self.cell.published and self.cell.published.measure(measure)
        if not published or not published.mean or measure not in self.measures:
            return None
        return 100 * (self.measures[measure] / published.mean - 1)

    def value(self, of: int | str | None) -> float | None:
        """Return the value that a shape compares: the mean (None), a cluster or a measure."""
        if isinstance(of, int):
            return self.clusters[of] if of < len(self.clusters) else None
        return self.mean if of is None else self.measures.get(of)


def results(matrix: Matrix, runs: Sequence[Run], folder: Path | None = None) -> list[Result]:
    """Return one result per cell that has runs, in the matrix's order.

    Args:
        matrix: the matrix of the cells.
        runs: see `runs_of`.
        folder: folder of stored results, which complete run directories override; None to use directories only.
    """
    found, stored = [], {} if folder is None else ResultStore(matrix, folder).read()
    for cell in matrix.cells:
        own = [run for run in runs if run.cell is cell]
        if not own:
            continue
        wanted = {run.seed for run in own}
        values = {seed: value for seed, value in stored.get(cell.name, {}).items() if seed in wanted}
        values |= {run.seed: run_values(matrix, run, summary) for run in own if (summary := run.summary()) is not None}
        found.append(result_of(matrix, cell, sorted(values.items())))
    return found


def result_of(matrix: Matrix, cell: Cell, own: list[tuple[int, dict[str, Any]]]) -> Result:
    """Return the result of a cell.

    Args:
        matrix: the matrix of the cell.
        cell: the cell.
        own: seeds with their values, see `run_values`.
    """
    scale = matrix.judged_by.scale
    valued = [values for _, values in own if _is_whole(values) or not matrix.learns]
    seeds = tuple(seed for seed, _ in own)
    if not valued or len(valued) < len(own):
        return Result(cell, seeds, None, None, ())
    of_seeds = {name: [v.get("measures", {}).get(name) for v in valued] for name in matrix.content.measures}
    known = {name: [value for value in values if value is not None] for name, values in of_seeds.items()}
    measures = {name: float(np.mean(values)) for name, values in known.items() if values}
    having = {name: len(values) for name, values in known.items() if values}
    unmeasured = frozenset(name for name in of_seeds if any(name not in v.get("measures", {}) for v in valued))
    if not matrix.learns:
        return Result(cell, seeds, None, None, (), measures, having, unmeasured=unmeasured)
    clusters = scale * np.array([values["clusters"] for values in valued], float)  # None is nan
    average, spread = matrix.content.average, matrix.content.spread
    means = np.nanmean(clusters, 1) if average == "clusters" else scale * np.array([v["all"] for v in valued])
    std = None
    if spread == "clusters":  # as published: of the clusters' means over seeds
        std = float(np.nanstd(clusters.mean(0)))
    elif spread == "nodes":
        std = float(scale * np.mean([values["std"] for values in valued]))
    elif len(seeds) > 1:
        std = float(means.std())
    of_clusters = tuple(None if np.isnan(mean) else mean for mean in clusters.mean(0).tolist())
    partly = tuple(seed for seed, values in own if values.get("diverged"))
    return Result(cell, seeds, float(means.mean()), std, of_clusters, measures, having, partly, unmeasured)


def _is_whole(values: Mapping[str, Any]) -> bool:
    """Whether a run has a finite value and at least one node that has not diverged."""
    return values["all"] is not None and bool(np.isfinite(values["all"])) and values.get("diverged", 0) < 1


STANDINGS = ("reproduced", "outside", "no verdict", "no number", "not run")
"""Columns of the overview."""


def standing(result: Result, matrix: Matrix) -> str:
    """Return the column of the overview that counts this cell.

    Args:
        result: results of the cell's runs.
        matrix: the matrix of the cell. Published deviations over clusters or nodes of a run do not say how far means
            over seeds may differ, so a fixed distance of `FAR` points replaces them.
    """
    if not result.seeds:
        return "not run"
    if not matrix.learns:
        errors = [error for name in matrix.content.measures if (error := result.relative_error(name)) is not None]
        return "no number" if not errors else "reproduced" if abs(errors[0]) <= CLOSE_PERCENT else "outside"
    if result.cell.published is None or result.cell.published.mean is None:
        return "no number"
    if result.mean is None or result.difference is None:  # training has diverged
        return "outside"
    if result.deviations is not None and matrix.content.spread == "seeds":
        return "reproduced" if abs(result.deviations) <= CLOSE else "outside"
    return "outside" if matrix.judged_by.share and abs(result.difference) > FAR else "no verdict"


@dataclass(frozen=True)
class CommonDistance:
    """The weighted mean of the differences between ours and the published means.

    Args:
        cells: number of compared cells.
        mean: mean of the differences, weighted by their certainty.
        error: its standard error.
        seed_std: sample deviation of one seed, pooled over all published cells.
        chi_squared: chi squared of the differences around the mean, with cells - 1 degrees of freedom.
    """

    cells: int
    mean: float
    error: float
    seed_std: float
    chi_squared: float

    def text(self, digits: int) -> str:
        """Return a sentence for a table's notes."""
        return (
            f"the {self.cells} cells with a published deviation lie {self.mean:+.{digits}f} ± {self.error:.{digits}f} "
            f"from the published means together (a seed deviates by {self.seed_std:.{digits}f}, those published taken "
            f"together), and scatter about it by chi squared {self.chi_squared:.1f} with {self.cells - 1} degrees of "
            "freedom"
        )


def common_distance(found: Sequence["Result"]) -> CommonDistance | None:
    """Return the common distance of the cells with a published mean and deviation; None if there are fewer than two.

    Published deviations count as population deviations of the cell's number of seeds; one deviation of seeds is pooled
    over all cells.

    Args:
        found: results of cells whose deviations are over seeds.
    """
    judged = [one for one in found if one.deviations is not None and len(one.cell.seeds) > 1]
    if len(judged) < 2:
        return None
    ours = np.array([len(one.seeds) for one in judged])
    theirs = np.array([len(one.cell.seeds) for one in judged])
    stds = np.array([one.cell.published.std for one in judged if one.cell.published], float)
    differences = np.array([one.difference for one in judged], float)
    variance = (theirs * stds**2).sum() / (theirs - 1).sum()
    weights = 1 / (variance * (1 / ours + 1 / theirs))
    mean = np.average(differences, weights=weights)
    chi_squared = (weights * (differences - mean) ** 2).sum()
    error = weights.sum() ** -0.5
    return CommonDistance(len(judged), float(mean), float(error), float(variance**0.5), float(chi_squared))
