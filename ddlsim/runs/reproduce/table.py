"""Ours beside the published numbers: per cell mean and standard deviation, and how far apart they are.

The pages of all results: one per matrix, and an overview of how much of each published table is reproduced.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ddlsim.report.text import columns, markdown, number_text
from ddlsim.runs.reproduce.matrix import Matrix, PublishedMeasure, Shape, Verdict, read_matrix
from ddlsim.runs.reproduce.measures import MEASURES
from ddlsim.runs.reproduce.result import STANDINGS, Result, common_distance, results, standing
from ddlsim.runs.reproduce.running import runs_of
from ddlsim.runs.reproduce.stored_results import read_table


def verdicts(matrix: Matrix, found: Sequence[Result]) -> list[tuple[Shape, Verdict]]:
    """Every shape of the matrix with whether it holds."""
    run = [one for one in found if one.seeds]
    return [
        (shape, shape.judge({one.cell.name: one.value(shape.of) for one in run})) for shape in matrix.content.shapes
    ]


def console_table(matrix: Matrix, found: Sequence[Result]) -> str:
    """The tables as aligned text, with their notes."""
    parts = [columns(*_cells(matrix, found), left=1)]
    if matrix.content.measures:
        parts.append(columns(*_measures(matrix, found), left=1))
    if matrix.content.shapes:
        parts.append(columns(*_shapes(matrix, found), left=2))
    return "\n\n".join([*parts, "\n".join(_notes(matrix, found))])


def markdown_table(matrix: Matrix, found: Sequence[Result]) -> str:
    """The tables as a GitHub markdown page, with their notes as a list."""
    title = f"# {matrix.name}" + (f": {matrix.content.description}" if matrix.content.description else "")
    parts = [title, markdown(*_cells(matrix, found), left=1)]
    if matrix.content.measures:
        parts.append(markdown(*_measures(matrix, found), left=1))
    if matrix.content.shapes:
        parts.append(markdown(*_shapes(matrix, found), left=2))
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in _notes(matrix, found))]) + "\n"


def _cells(matrix: Matrix, found: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    in_deviations, digits = matrix.content.spread == "seeds", _digits(matrix)
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
    header = ["cell", *(MEASURES[name].title for name in matrix.content.measures)]
    rows = []
    for result in found:
        row = [result.cell.name]
        for name in matrix.content.measures:
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
    over = "all nodes" if matrix.content.average == "nodes" else "the clusters, each weighing the same"
    over += f"; ± population standard deviation over {matrix.content.spread}"
    notes = [f"published: {matrix.content.source}", f"{unit}, mean over {over}"]
    if matrix.content.spread == "seeds":
        notes.append("in std: the difference in published standard deviations")
        if matrix.content.common_distance and (distance := common_distance(found)) is not None:
            notes.append(distance.text(_digits(matrix)))
    if any(result.cell.published and result.cell.published.measures for result in found):
        notes.append("measures: ours, and in brackets the published value")
    partly = [(result, name) for result in found for name in matrix.content.measures if _some(result, name)]
    if partly:
        late = any(name in result.unmeasured for result, name in partly)
        others = "did not come to it, or were kept before this measure was asked for" if late else "did not come to it"
        notes.append(f"[k/n]: the mean over k of n seeds; the others {others}")
    if matrix.content.note:
        notes.append(matrix.content.note)
    if matrix.changes:
        notes.append(f"NOT AS PUBLISHED: run with {' '.join(matrix.changes)}")
    notes += [
        f"{result.cell.name}: some nodes have diverged with the seeds {', '.join(map(str, result.partly))}"
        for result in found
        if result.partly and result.mean is not None
    ]
    notes += [f"{result.cell.name}: {result.cell.content.note}" for result in found if result.cell.content.note]
    outside = [result.cell for result in found if standing(result, matrix) == "outside"]
    notes += [f"{cell.name}: {cell.content.outside}" for cell in outside if cell.content.outside]
    return notes


INTRODUCTION = """\
# Published tables: what is reproduced

{summary}

*reproduced*: our mean lies within two published standard deviations of the published mean. *outside*: further away,
or more than 2 points away if the paper reports no standard deviation over seeds, or diverged. *no verdict*: within 2
points, and the paper reports no standard deviation over seeds. *no number*: run, and the paper has no number.
*shapes*: claims of figures without numbers, checked on our means: how many hold of those that can be judged. Cells
count with the seeds that have been run; the pages say how many.

Published deviations are population deviations of few seeds. Even an identical method would therefore be counted as
*outside* in 29 % of all cells with one seed of ours and three published ones, in 22 % with one and four, and in 22 %
with two and three (Student's t distribution).
"""
FILES = """\
## Files

`python tools/results_pages.py` makes this page and those of the tables from one JSON file per table, which
`ddlsim reproduce NAME --results docs/results` writes. It holds, per seed, our numbers with the command, the commit (if
known), the machine and the date. Pages that no row above links to are written by hand: they hold results that are not
in these files, such as shortened runs, and explanations of results.
"""


def write_pages(folder: Path, matrices: Sequence[Path | str]) -> list[Path]:
    """Writes README.md and a page per matrix that has results.

    Args:
        folder: folder of results files; the pages are written into it.
        matrices: files of matrices, or their names.

    Returns:
        The pages.
    """
    rows, outside, missing, pages = [], [], [], []
    total: Counter[str] = Counter()
    for path in matrices:
        matrix = read_matrix(path)
        found = results(matrix, runs_of(matrix, folder / "none"), folder)
        counts = Counter(standing(result, matrix) for result in found)
        total += counts
        if any(result.seeds for result in found):
            pages.append(folder / f"{matrix.name}.md")
            pages[-1].write_text(markdown_table(matrix, found), encoding="utf-8")
            rows.append(
                [f"[{matrix.name}]({matrix.name}.md)", str(len(found)), *(str(counts[name]) for name in STANDINGS)]
            )
            rows[-1].append(_shapes_count(matrix, found))
        outside += _outside(matrix, found)
        missing += _missing(matrix, found)
    rows.sort(key=lambda row: -int(row[2]))
    rows += _shortened(folder, matrices, pages)
    counted = ", ".join(f"{total[name]} {name}" for name in STANDINGS)
    summary = f"{total.total()} cells of {len(matrices)} tables: {counted}."
    parts = [INTRODUCTION.format(summary=summary), markdown(["table", "cells", *STANDINGS, "shapes"], rows, left=1)]
    if outside:
        rows = [[f"{matrix}: {cell}", *distance, reason] for matrix, cell, *distance, reason in outside]
        header = ["cell", "difference", "in std", "reason"]
        parts += ["", "## Cells outside", "", markdown(header, rows, left=1)]
    if missing:
        parts += ["", "## Cells not run", "", markdown(["table", "cells", "why"], missing, left=3)]
    pages.append(folder / "README.md")
    pages[-1].write_text("\n".join([*parts, "", FILES]), encoding="utf-8")
    return pages


def _shapes_count(matrix: Matrix, found: Sequence[Result]) -> str:
    judged = [verdict for _, verdict in verdicts(matrix, found) if verdict in ("holds", "does not hold")]
    return f"{judged.count('holds')} of {len(judged)}" if matrix.content.shapes else "-"


def _outside(matrix: Matrix, found: Sequence[Result]) -> list[tuple[str, ...]]:
    return [
        (
            matrix.name,
            result.cell.name,
            *_distance(matrix, result),
            result.cell.content.outside or result.cell.content.note or _unexplained(result),
        )
        for result in found
        if standing(result, matrix) == "outside"
    ]


def _distance(matrix: Matrix, result: Result) -> tuple[str, str]:
    """The distance from the published mean, in points (or the metric's unit) and in published standard deviations."""
    if result.difference is None:
        return "diverged", "-"
    over_seeds = matrix.content.spread == "seeds" and result.deviations is not None
    digits = 1 if matrix.judged_by.share else matrix.judged_by.digits
    return f"{result.difference:+.{digits}f}", f"{result.deviations:+.1f}" if over_seeds else "-"


def _missing(matrix: Matrix, found: Sequence[Result]) -> list[list[str]]:
    count = sum(not result.seeds for result in found)
    return [[matrix.name, f"{count} of {len(found)}", matrix.content.not_run or "-"]] if count else []


def _unexplained(result: Result) -> str:
    """A mean over few seeds may lie outside by itself: published deviations are of single seeds, and all share data."""
    run, wanted = len(result.seeds), len(result.cell.seeds)
    return "not known" if run == wanted else f"not known; {run} of {wanted} seeds so far"


def _shortened(folder: Path, matrices: Sequence[Path | str], pages: list[Path]) -> list[list[str]]:
    """Rows of matrices that have been run with other settings than published: they count for nothing."""
    rows = []
    for path in matrices:
        plain = read_matrix(path)
        for stored in sorted(folder.glob(f"{plain.name}+*.json")):
            overrides = read_table(stored)["overrides"]
            matrix = read_matrix(path, overrides)
            found = [r for r in results(matrix, runs_of(matrix, folder / "none"), folder) if r.seeds]
            if found:
                pages.append(folder / f"{stored.stem}.md")
                pages[-1].write_text(markdown_table(matrix, found), encoding="utf-8")
                text = f"[{plain.name}, with {' '.join(overrides)}]({stored.stem}.md)"
                rows.append([text, str(len(found)), *["-"] * 6])
    return rows
