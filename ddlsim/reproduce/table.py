"""Ours beside the published numbers: per cell mean and standard deviation, and how far apart they are."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddlsim.report.text import columns, markdown, number_text
from ddlsim.reproduce.matrix import Cell, Matrix
from ddlsim.reproduce.running import Run


@dataclass(frozen=True)
class Result:
    """What our runs of one cell gave; accuracies in percent, like the published ones.

    Args:
        cell: which cell.
        seeds: those that have been run; without any, the numbers are None.
        mean: over seeds.
        std: population standard deviation over seeds (or over clusters, mean over seeds, as the matrix says); None with
            one seed.
        clusters: mean of each cluster over seeds.
    """

    cell: Cell
    seeds: tuple[int, ...]
    mean: float | None
    std: float | None
    clusters: tuple[float, ...]

    @property
    def difference(self) -> float | None:
        """Ours minus the published mean."""
        if self.mean is None or self.cell.published is None:
            return None
        return self.mean - self.cell.published.mean

    @property
    def deviations(self) -> float | None:
        """That difference in published standard deviations."""
        if self.difference is None or not self.cell.published.std:
            return None
        return self.difference / self.cell.published.std


def results(matrix: Matrix, runs: Sequence[Run]) -> list[Result]:
    """One result per cell that has runs, in the matrix's order, from the summaries that are there.

    Args:
        matrix: whose cells.
        runs: see `runs_of`.
    """
    found = []
    for cell in matrix.cells:
        own = [(run.scenario.seed, run.summary()) for run in runs if run.cell is cell]
        if own:
            found.append(_result(matrix, cell, [(seed, summary) for seed, summary in own if summary is not None]))
    return found


def _result(matrix: Matrix, cell: Cell, own: list[tuple[int, dict]]) -> Result:
    scale = 1 if matrix.metric == "mse" else 100
    measured = [(seed, summary[matrix.metric]) for seed, summary in own]
    valued = [(seed, values) for seed, values in measured if values["all"] is not None]  # nan: it has diverged
    seeds = tuple(seed for seed, _ in own)
    if not valued or len(valued) < len(measured):
        return Result(cell, seeds, None, None, ())
    clusters = scale * np.array([values["clusters"] for _, values in valued])
    means = clusters.mean(1) if matrix.average == "clusters" else scale * np.array([v["all"] for _, v in valued])
    std = None
    if matrix.spread == "clusters":
        std = float(clusters.std(1).mean())
    elif matrix.spread == "nodes":
        std = float(scale * np.mean([values["std"] for _, values in valued]))
    elif len(seeds) > 1:
        std = float(means.std())
    return Result(cell, seeds, float(means.mean()), std, tuple(clusters.mean(0).tolist()))


def console_table(matrix: Matrix, found: Sequence[Result]) -> str:
    """The table as aligned text, with its notes."""
    return "\n".join([columns(*_cells(matrix, found), left=1), "", *_notes(matrix, found)])


def markdown_table(matrix: Matrix, found: Sequence[Result]) -> str:
    """The table as a GitHub markdown page, with its notes as a list."""
    title = f"# {matrix.name}" + (f": {matrix.description}" if matrix.description else "")
    notes = [f"- {note}" for note in _notes(matrix, found)]
    return "\n".join([title, "", markdown(*_cells(matrix, found), left=1), "", *notes, ""])


def _cells(matrix: Matrix, found: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    in_deviations = matrix.spread == "seeds"
    header = ["cell", "seeds", "ours", "published", "difference"]
    header += (["in std"] if in_deviations else []) + ["clusters ours", "clusters published"]
    rows = []
    for result in found:
        published = result.cell.published
        row = [result.cell.name, f"{len(result.seeds)}/{len(result.cell.seeds)}", _ours(result)]
        row.append(_mean_and_std(published.mean, published.std) if published else "-")
        row.append("-" if result.difference is None else f"{result.difference:+.2f}")
        if in_deviations:
            row.append("-" if result.deviations is None else f"{result.deviations:+.1f}")
        row.append(_each(result.clusters))
        row.append(_each(published.clusters or ()) if published else "-")
        rows.append(row)
    return header, rows


def _ours(result: Result) -> str:
    if result.mean is None:
        return "diverged" if result.seeds else "-"
    return _mean_and_std(result.mean, result.std)


def _mean_and_std(mean: float, std: float | None) -> str:
    return number_text(mean, 2) if std is None else f"{number_text(mean, 2)} ± {number_text(std, 2)}"


def _each(values: Sequence[float]) -> str:
    return " ".join(number_text(value, 2) for value in values) or "-"


def _notes(matrix: Matrix, found: Sequence[Result]) -> list[str]:
    unit = "mean squared error" if matrix.metric == "mse" else "accuracy in percent"
    over = "all nodes" if matrix.average == "nodes" else "the clusters, each weighing the same"
    over += f"; ± population standard deviation over {matrix.spread}"
    notes = [f"published: {matrix.source}", f"{unit}, mean over {over}"]
    if matrix.spread == "seeds":
        notes.append("in std: the difference in published standard deviations")
    if matrix.note:
        notes.append(matrix.note)
    changes = [override for override in matrix.overrides if not override.startswith("records.")]
    if changes:
        notes.append(f"NOT AS PUBLISHED: run with {' '.join(changes)}")
    notes += [f"{result.cell.name}: {result.cell.note}" for result in found if result.cell.note]
    return notes
