"""The pages of all results: one per matrix, and an overview of how much of each published table is reproduced."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ddlsim.report.text import markdown
from ddlsim.reproduce.kept import overrides_in
from ddlsim.reproduce.matrix import Matrix, read_matrix
from ddlsim.reproduce.result import Result, results, standing
from ddlsim.reproduce.running import runs_of
from ddlsim.reproduce.table import markdown_table, verdicts

INTRODUCTION = """\
# Published tables, and how much of them is reproduced

This page and those of the tables are made from the JSON files beside them by `python tools/results_pages.py`; the files
are written by `ddlsim reproduce NAME --results docs/results`. Each holds, per seed, our numbers with the command, the
commit (where it is known), the machine and the date. Pages that no row below links to are written by hand: they hold
results that are not in these files, such as shortened runs, and what explains a result.

*reproduced*: our mean lies within two published standard deviations of the published mean. *outside*: further away,
or more than 2 points away if the paper reports no standard deviation over seeds, or diverged. *no verdict*: within 2
points, and the paper reports no standard deviation over seeds. *no number*: run, and the paper has no number.
*shapes*: claims of figures without numbers, checked on our means: how many hold of those that can be judged. Cells
count with the seeds that have been run; the pages say how many.

Published deviations are population deviations of few seeds. Even an identical method would therefore be counted as
*outside* in 29 % of all cells with one seed of ours and three published ones, in 22 % with one and four, and in 22 %
with two and three (Student's t distribution).
"""


def write_pages(folder: Path, matrices: Sequence[Path | str]) -> list[Path]:
    """Writes README.md and a page per matrix that has results.

    Args:
        folder: of result files; the pages are written into it.
        matrices: files of matrices, or their names.

    Returns:
        The pages.
    """
    rows, outside, missing, pages = [], [], [], []
    for path in matrices:
        matrix = read_matrix(path)
        found = results(matrix, runs_of(matrix, folder / "none"), folder)
        name = matrix.name
        if any(result.seeds for result in found):
            pages.append(folder / f"{name}.md")
            pages[-1].write_text(markdown_table(matrix, found), encoding="utf-8")
            name = f"[{name}]({name}.md)"
        rows.append([name, *_counts(matrix, found)])
        outside += _outside(matrix, found)
        missing += _missing(matrix, found)
    rows += _shortened(folder, matrices, pages)
    header = ["table", "cells", "reproduced", "outside", "no verdict", "no number", "not run", "shapes"]
    parts = [INTRODUCTION, markdown(header, rows, left=1)]
    if outside:
        rows = [[f"{matrix}: {cell}", *distance, reason] for matrix, cell, *distance, reason in outside]
        header = ["cell", "difference", "in std", "reason"]
        parts += ["", "## Cells outside", "", markdown(header, rows, left=1)]
    if missing:
        parts += ["", "## Cells not run", "", markdown(["table", "cells", "why"], missing, left=3)]
    pages.append(folder / "README.md")
    pages[-1].write_text("\n".join([*parts, ""]), encoding="utf-8")
    return pages


def _counts(matrix: Matrix, found: Sequence[Result]) -> list[str]:
    of = Counter(standing(result, matrix) for result in found)
    counts = [str(of[name]) for name in ("reproduced", "outside", "no verdict", "no number", "not run")]
    judged = [verdict for _, verdict in verdicts(matrix, found) if verdict in ("holds", "does not hold")]
    shapes = f"{judged.count('holds')} of {len(judged)}" if matrix.shapes else "-"
    return [str(len(found)), *counts, shapes]


def _outside(matrix: Matrix, found: Sequence[Result]) -> list[tuple[str, ...]]:
    return [
        (
            matrix.name,
            result.cell.name,
            *_distance(matrix, result),
            result.cell.outside or result.cell.note or _unexplained(result),
        )
        for result in found
        if standing(result, matrix) == "outside"
    ]


def _distance(matrix: Matrix, result: Result) -> tuple[str, str]:
    """The distance from the published mean, in points (or the metric's unit) and in published standard deviations."""
    if result.difference is None:
        return "diverged", "-"
    over_seeds = matrix.spread == "seeds" and result.deviations is not None
    digits = 1 if matrix.judged_by.share else matrix.judged_by.digits
    return f"{result.difference:+.{digits}f}", f"{result.deviations:+.1f}" if over_seeds else "-"


def _missing(matrix: Matrix, found: Sequence[Result]) -> list[list[str]]:
    count = sum(not result.seeds for result in found)
    return [[matrix.name, f"{count} of {len(found)}", matrix.not_run]] if count and matrix.not_run else []


def _unexplained(result: Result) -> str:
    """A mean over few seeds may lie outside by itself: published deviations are of single seeds, and all share data."""
    run, wanted = len(result.seeds), len(result.cell.seeds)
    return "not known" if run == wanted else f"not known; {run} of {wanted} seeds so far"


def _shortened(folder: Path, matrices: Sequence[Path | str], pages: list[Path]) -> list[list[str]]:
    """Rows of matrices that have been run with other settings than published: they count for nothing."""
    rows = []
    for path in matrices:
        plain = read_matrix(path)
        for held in sorted(folder.glob(f"{plain.name}+*")):
            if not held.is_dir():  # a page that was made of one
                continue
            overrides = overrides_in(held)
            matrix = read_matrix(path, overrides)
            found = [r for r in results(matrix, runs_of(matrix, folder / "none"), folder) if r.seeds]
            if found:
                pages.append(folder / f"{held.name}.md")
                pages[-1].write_text(markdown_table(matrix, found), encoding="utf-8")
                text = f"[{plain.name}, with {' '.join(overrides)}]({held.name}.md)"
                rows.append([text, str(len(found)), *["-"] * 6])
    return rows
