"""Results of the runs of each cell, their distance from the published numbers, and the distance common to all cells.

The difference of one cell is uncertain if few seeds were published and fewer have been run. An effect on all cells
(other images, another version of a library) appears in their weighted mean; the scatter around the mean shows whether
there are others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.runs.reproduce.matrix import Cell, Matrix
from ddlsim.runs.reproduce.running import Run
from ddlsim.runs.reproduce.stored_results import ResultStore, run_values

CLOSE = 2.0
"""Published standard deviations within which a cell counts as reproduced."""
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
    valued = [values for _, values in own if _is_whole(values)]
    seeds = tuple(seed for seed, _ in own)
    if not valued or len(valued) < len(own):
        return Result(cell, seeds, None, None, ())
    clusters = scale * np.array([values["clusters"] for values in valued], float)  # None is nan
    average, spread, measures = matrix.content.average, matrix.content.spread, matrix.content.measures
    means = np.nanmean(clusters, 1) if average == "clusters" else scale * np.array([v["all"] for v in valued])
    std = None
    if spread == "clusters":  # as published: of the clusters' means over seeds
        std = float(np.nanstd(clusters.mean(0)))
    elif spread == "nodes":
        std = float(scale * np.mean([values["std"] for values in valued]))
    elif len(seeds) > 1:
        std = float(means.std())
    of_seeds = {name: [values.get("measures", {}).get(name) for values in valued] for name in measures}
    known = {name: [value for value in own if value is not None] for name, own in of_seeds.items()}
    return Result(
        cell,
        seeds,
        float(means.mean()),
        std,
        tuple(None if np.isnan(mean) else mean for mean in clusters.mean(0).tolist()),
        {name: float(np.mean(own)) for name, own in known.items() if own},
        {name: len(own) for name, own in known.items() if own},
        tuple(seed for seed, values in own if values.get("diverged")),
        frozenset(name for name in measures if any(name not in values.get("measures", {}) for values in valued)),
    )


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
    stds = np.array([_std(one) for one in judged])
    differences = np.array([one.difference for one in judged], float)
    variance = (theirs * stds**2).sum() / (theirs - 1).sum()
    weights = 1 / (variance * (1 / ours + 1 / theirs))
    mean = np.average(differences, weights=weights)
    chi_squared = (weights * (differences - mean) ** 2).sum()
    error = weights.sum() ** -0.5
    return CommonDistance(len(judged), float(mean), float(error), float(variance**0.5), float(chi_squared))


def _std(one: "Result") -> float:
    assert one.cell.published is not None and one.cell.published.std
    return one.cell.published.std
