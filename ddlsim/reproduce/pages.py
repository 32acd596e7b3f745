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

*reproduced*: our mean lies within two published standard deviations of the published mean. *outside*: further away.
*beside*: run, where no deviation is published, or none over seeds, so that there is nothing to judge by but the
difference. *no number*: run, and the paper has no number. *shapes*: what a figure shows without numbers, checked on our
means: how many hold of those that can be judged. Cells count with whatever seeds have been run; the pages say how many.

Published deviations are population deviations of few seeds, so that seeds like the published ones would themselves lie
*outside* now and then: by Student's distribution one seed of ours beside three published ones in 29 % of all cells,
beside four in 22 %, two beside three in 22 %.
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
    header = ["table", "cells", "reproduced", "outside", "beside", "no number", "not run", "shapes"]
    parts = [INTRODUCTION, markdown(header, rows, left=1)]
    if outside:
        rows = [[f"{matrix}: {cell}", deviations, reason] for matrix, cell, deviations, reason in outside]
        parts += ["", "## Cells outside", "", markdown(["cell", "in std", "reason"], rows, left=1)]
    if missing:
        parts += ["", "## Cells not run", "", markdown(["table", "cells", "why"], missing, left=3)]
    pages.append(folder / "README.md")
    pages[-1].write_text("\n".join([*parts, ""]), encoding="utf-8")
    return pages


def _counts(matrix: Matrix, found: Sequence[Result]) -> list[str]:
    of = Counter(standing(result, matrix.spread) for result in found)
    counts = [str(of[name]) for name in ("reproduced", "outside", "beside", "no number", "not run")]
    judged = [verdict for _, verdict in verdicts(matrix, found) if verdict in ("holds", "does not hold")]
    shapes = f"{judged.count('holds')} of {len(judged)}" if matrix.shapes else "-"
    return [str(len(found)), *counts, shapes]


def _outside(matrix: Matrix, found: Sequence[Result]) -> list[tuple[str, str, str, str]]:
    return [
        (
            matrix.name,
            result.cell.name,
            "diverged" if result.deviations is None else f"{result.deviations:+.1f}",
            result.cell.outside or _unexplained(result),
        )
        for result in found
        if standing(result, matrix.spread) == "outside"
    ]


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
