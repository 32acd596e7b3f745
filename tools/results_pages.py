"""Write docs/results/README.md and the page of every table from the stored results in that folder."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from ddlsim.report.text import markdown
from ddlsim.runs.reproduce.matrix import Matrix, read_matrix, runs_of
from ddlsim.runs.reproduce.result import STANDINGS, Result, read_table, results, standing
from ddlsim.runs.reproduce.table import markdown_table, verdicts
from ddlsim.scenario.files import is_matrix

ROOT = Path(__file__).parents[1]

INTRODUCTION = """\
# Reproduced tables

{summary}

*reproduced*: ddlsim's mean is within two published standard deviations of the published mean. *outside*: further away,
or more than 2 points away if the paper reports no standard deviation over seeds, or diverged. *no verdict*: within 2
points, and the paper reports no standard deviation over seeds. *no number*: run, and the paper has no number. Tables
of simulated time without learning: *reproduced* within 5 % of the first published measure; their pages list the others.
*shapes*: claims of figures without numbers, checked on ddlsim's means; the table counts those that hold. Cells
count with the finished seeds; the pages give their number.

Published deviations are population deviations of few seeds. Even an identical method would therefore be counted as
*outside* in 29 % of all cells with one simulated and three published seeds, in 22 % with one and four, and in 22 %
with two and three (Student's t distribution).
"""
FILES = """\
## Files

`python tools/results_pages.py` makes this page and those of the tables from one JSON file per table, which
`ddlsim reproduce NAME --results docs/results` writes. It holds, per seed, ddlsim's numbers with command, commit (if
known), machine and date. Pages without a row above are written by hand: they hold results that are not
in these files, such as shortened runs, and explanations of results.
"""


def write_pages(folder: Path, matrices: Sequence[Path | str]) -> list[Path]:
    """Write README.md and a page per matrix with results.

    Args:
        folder: folder of results files; the pages are written into it.
        matrices: files of matrices, or their names.

    Returns:
        The pages.
    """
    rows, outside, missing, pages = [], [], [], []
    total: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}  # whether the table learns
    tables: Counter[bool] = Counter()
    for path in matrices:
        matrix = read_matrix(path)
        found = results(matrix, runs_of(matrix, folder / "none"), folder)
        counts = Counter(standing(result, matrix) for result in found)
        total[matrix.learns] += counts
        tables[matrix.learns] += 1
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
    summary = "\n".join(
        f"{total[learns].total()} cells of {tables[learns]} tables {kind}"
        + ", ".join(f"{total[learns][name]} {name}" for name in STANDINGS if learns or total[learns][name])
        + "."
        for learns, kind in ((True, "with learning: "), (False, "of simulated time: "))
        if tables[learns]
    )
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
        if matrix.learns and standing(result, matrix) == "outside"
    ]


def _distance(matrix: Matrix, result: Result) -> tuple[str, str]:
    """Return the distance from the published mean, in points (or the metric's unit) and published deviations."""
    if result.difference is None:
        return "diverged", "-"
    over_seeds = matrix.content.spread == "seeds" and result.deviations is not None
    digits = 1 if matrix.judged_by.share else matrix.judged_by.digits
    return f"{result.difference:+.{digits}f}", f"{result.deviations:+.1f}" if over_seeds else "-"


def _missing(matrix: Matrix, found: Sequence[Result]) -> list[list[str]]:
    count = sum(not result.seeds for result in found)
    return [[matrix.name, f"{count} of {len(found)}", matrix.content.not_run or "-"]] if count else []


def _unexplained(result: Result) -> str:
    """Return a note: a mean over few seeds may lie outside by chance."""
    run, wanted = len(result.seeds), len(result.cell.seeds)
    return "not known" if run == wanted else f"not known; {run} of {wanted} seeds so far"


def _shortened(folder: Path, matrices: Sequence[Path | str], pages: list[Path]) -> list[list[str]]:
    """Return rows of matrices run with shortened settings, which are not counted."""
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


def main() -> None:
    matrices = sorted(path for path in (ROOT / "scenarios").rglob("*.yaml") if is_matrix(path))
    for page in write_pages(ROOT / "docs" / "results", matrices):
        print(page.relative_to(ROOT), file=sys.stderr)


if __name__ == "__main__":
    main()
