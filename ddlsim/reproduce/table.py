"""Ours beside the published numbers: per cell mean and standard deviation, and how far apart they are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.report.text import columns, markdown, number_text
from ddlsim.reproduce.distance import common_distance
from ddlsim.reproduce.kept import kept, values_of
from ddlsim.reproduce.matrix import Cell, Matrix
from ddlsim.reproduce.matrix_file import PublishedMeasure
from ddlsim.reproduce.measures import MEASURES
from ddlsim.reproduce.running import Run
from ddlsim.reproduce.shapes import Shape, Verdict

CLOSE = 2.0
"""Published standard deviations within which a cell counts as reproduced."""


@dataclass(frozen=True)
class Result:
    """What our runs of one cell gave; accuracies in percent, like the published ones.

    Args:
        cell: which cell.
        seeds: those that have been run; without any, the numbers are None.
        mean: over seeds.
        std: population standard deviation over seeds (or over clusters, or over nodes and then the mean over seeds, as
            the matrix says); None with one seed.
        clusters: mean of each cluster over seeds; None of one without honest nodes.
        measures: measure -> mean over the seeds that have it.
        having: measure -> how many seeds have it: not all of them reach a target.
        partly: seeds in which some nodes have diverged; if all have in one of them, there are no numbers.
        unmeasured: measures that a result file does not hold, as the matrix did not ask for them yet.
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
        """That difference in published standard deviations."""
        published, difference = self.cell.published, self.difference
        if difference is None or published is None or not published.std:
            return None
        return difference / published.std

    def value(self, of: int | str | None) -> float | None:
        """What a shape compares: the mean (None), a cluster or a measure."""
        if isinstance(of, int):
            return self.clusters[of] if of < len(self.clusters) else None
        return self.mean if of is None else self.measures.get(of)


def results(matrix: Matrix, runs: Sequence[Run], folder: Path | None = None) -> list[Result]:
    """One result per cell that has runs, in the matrix's order, from the summaries and the result files there are.

    Args:
        matrix: the one that has the cells.
        runs: see `runs_of`.
        folder: of result files; a run that is there counts before its file. None: only runs count.
    """
    found = []
    for cell in matrix.cells:
        own = [run for run in runs if run.cell is cell]
        if not own:
            continue
        values = {} if folder is None else kept(matrix, cell, folder)
        wanted = {run.scenario.seed for run in own}
        values = {seed: value for seed, value in values.items() if seed in wanted}
        values |= {
            run.scenario.seed: values_of(matrix, run, summary) for run in own if (summary := run.summary()) is not None
        }
        found.append(_result(matrix, cell, sorted(values.items())))
    return found


def _result(matrix: Matrix, cell: Cell, own: list[tuple[int, dict[str, Any]]]) -> Result:
    scale = matrix.judged_by.scale
    valued = [values for _, values in own if _is_whole(values)]
    seeds = tuple(seed for seed, _ in own)
    if not valued or len(valued) < len(own):
        return Result(cell, seeds, None, None, ())
    clusters = scale * np.array([values["clusters"] for values in valued], float)  # None is nan
    means = np.nanmean(clusters, 1) if matrix.average == "clusters" else scale * np.array([v["all"] for v in valued])
    std = None
    if matrix.spread == "clusters":  # as published: of the clusters' means over seeds
        std = float(np.nanstd(clusters.mean(0)))
    elif matrix.spread == "nodes":
        std = float(scale * np.mean([values["std"] for values in valued]))
    elif len(seeds) > 1:
        std = float(means.std())
    of_seeds = {name: [values.get("measures", {}).get(name) for values in valued] for name in matrix.measures}
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
        frozenset(name for name in matrix.measures if any(name not in values.get("measures", {}) for values in valued)),
    )


def _is_whole(values: Mapping[str, Any]) -> bool:
    """Whether nodes have a value: where training has diverged they have none, or an infinite one, or one by chance."""
    return values["all"] is not None and bool(np.isfinite(values["all"])) and values.get("diverged", 0) < 1


def standing(result: Result, spread: str = "seeds") -> str:
    """Where a cell stands: one of the columns of the overview of all tables.

    Args:
        result: of the cell.
        spread: what published deviations are over; one over clusters or nodes of a run says nothing of how far means
            over seeds may lie apart.
    """
    if not result.seeds:
        return "not run"
    if result.cell.published is None or result.cell.published.mean is None:
        return "no number"
    if result.mean is None:  # it has diverged
        return "outside" if spread == "seeds" else "beside"
    if result.deviations is None or spread != "seeds":
        return "beside"
    return "reproduced" if abs(result.deviations) <= CLOSE else "outside"


def verdicts(matrix: Matrix, found: Sequence[Result]) -> list[tuple[Shape, Verdict]]:
    """Every shape of the matrix with whether it holds."""
    run = [one for one in found if one.seeds]
    return [(shape, shape.judge({one.cell.name: one.value(shape.of) for one in run})) for shape in matrix.shapes]


def console_table(matrix: Matrix, found: Sequence[Result]) -> str:
    """The tables as aligned text, with their notes."""
    parts = [columns(*_cells(matrix, found), left=1)]
    if matrix.measures:
        parts.append(columns(*_measures(matrix, found), left=1))
    if matrix.shapes:
        parts.append(columns(*_shapes(matrix, found), left=2))
    return "\n\n".join([*parts, "\n".join(_notes(matrix, found))])


def markdown_table(matrix: Matrix, found: Sequence[Result]) -> str:
    """The tables as a GitHub markdown page, with their notes as a list."""
    title = f"# {matrix.name}" + (f": {matrix.description}" if matrix.description else "")
    parts = [title, markdown(*_cells(matrix, found), left=1)]
    if matrix.measures:
        parts.append(markdown(*_measures(matrix, found), left=1))
    if matrix.shapes:
        parts.append(markdown(*_shapes(matrix, found), left=2))
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in _notes(matrix, found))]) + "\n"


def _cells(matrix: Matrix, found: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    in_deviations, digits = matrix.spread == "seeds", _digits(matrix)
    header = ["cell", "seeds", "ours", "published", "difference"]
    header += (["in std"] if in_deviations else []) + ["clusters ours", "clusters published"]
    rows = []
    for result in found:
        published = result.cell.published
        row = [result.cell.name, f"{len(result.seeds)}/{len(result.cell.seeds)}", _ours(result, digits)]
        row.append(_mean_and_std(published.mean, published.std, digits) if published else "-")
        row.append("-" if result.difference is None else f"{result.difference:+.{digits}f}")
        if in_deviations:
            row.append("-" if result.deviations is None else f"{result.deviations:+.1f}")
        row.append(_each(result.clusters, digits))
        row.append(_each(published.clusters or (), digits) if published else "-")
        rows.append(row)
    return header, rows


def _measures(matrix: Matrix, found: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    """Each measure as `ours | published`; where nothing is published, ours alone."""
    header = ["cell", *(MEASURES[name].title for name in matrix.measures)]
    rows = []
    for result in found:
        row = [result.cell.name]
        for name in matrix.measures:
            published = result.cell.published.measure(name) if result.cell.published else None
            row.append(_beside(result.measures.get(name), published, MEASURES[name].digits) + _some(result, name))
        rows.append(row)
    return header, rows


def _beside(ours: float | None, published: PublishedMeasure | None, digits: int) -> str:
    text = number_text(ours, digits)
    return text if published is None else f"{text} ({_mean_and_std(published.mean, published.std, digits)})"


def _some(result: Result, measure: str) -> str:
    """How many seeds have a measure, if some have not."""
    count, seeds = result.having.get(measure, 0), len(result.seeds)
    return f" [{count}/{seeds}]" if 0 < count < seeds else ""


def _shapes(matrix: Matrix, found: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    return ["what the paper shows", "ours"], [[shape.claim, verdict] for shape, verdict in verdicts(matrix, found)]


def _digits(matrix: Matrix) -> int:
    """Decimals of what nodes are judged by."""
    return 2 if matrix.judged_by.share else matrix.judged_by.digits


def _ours(result: Result, digits: int) -> str:
    if result.mean is None:
        return "diverged" if result.seeds else "-"
    return _mean_and_std(result.mean, result.std, digits)


def _mean_and_std(mean: float | None, std: float | None, digits: int) -> str:
    text = number_text(mean, digits)
    return text if std is None else f"{text} ± {number_text(std, digits)}"


def _each(values: Sequence[float | None], digits: int) -> str:
    return " ".join(number_text(value, digits) for value in values) or "-"


def _notes(matrix: Matrix, found: Sequence[Result]) -> list[str]:
    metric = matrix.judged_by
    unit = f"{metric.words} in percent" if metric.share else metric.words
    over = "all nodes" if matrix.average == "nodes" else "the clusters, each weighing the same"
    over += f"; ± population standard deviation over {matrix.spread}"
    notes = [f"published: {matrix.source}", f"{unit}, mean over {over}"]
    if matrix.spread == "seeds":
        notes.append("in std: the difference in published standard deviations")
    if matrix.common_distance and matrix.spread == "seeds" and (distance := common_distance(found)) is not None:
        notes.append(distance.text(_digits(matrix)))
    if any(result.cell.published and result.cell.published.measures for result in found):
        notes.append("measures: ours, and in brackets the published value")
    partly = [(result, name) for result in found for name in matrix.measures if _some(result, name)]
    if partly:
        late = any(name in result.unmeasured for result, name in partly)
        others = "did not come to it, or were kept before this measure was asked for" if late else "did not come to it"
        notes.append(f"[k/n]: the mean over k of n seeds; the others {others}")
    if matrix.note:
        notes.append(matrix.note)
    if matrix.changes:
        notes.append(f"NOT AS PUBLISHED: run with {' '.join(matrix.changes)}")
    notes += [
        f"{result.cell.name}: some nodes have diverged with the seeds {', '.join(map(str, result.partly))}"
        for result in found
        if result.partly and result.mean is not None
    ]
    notes += [f"{result.cell.name}: {result.cell.note}" for result in found if result.cell.note]
    outside = [result.cell for result in found if standing(result, matrix.spread) == "outside"]
    notes += [f"{cell.name}: {cell.outside}" for cell in outside if cell.outside]
    return notes
