"""Write docs/results/README.md and the page of every table from the stored results in that folder."""

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from ddlsim.report.text import markdown
from ddlsim.runs.reproduce.matrix import Cell, Matrix, read_matrix, runs_of
from ddlsim.runs.reproduce.result import STANDINGS, Result, ResultStore, read_table, results, standing
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
LEFT = """\
## Runs that are left

Core hours are computed: nodes x rounds x runs x the mean core seconds of a node's round in the stored runs of *as in*
(wall time x threads, on machines shared with other work), whatever the sizes of data sets and numbers of heads.
"""
SIMILAR = {
    "dac_tau": "dac_cifar10_rotations",
    "dac_train_size": "dac_cifar10_rotations",
    "facade_number_of_heads": "facade_table_cifar10",
    "similarity_monitored": "similarity_cifar10_vehicles_animals",
    "similarity_sampled_peers": "similarity_cifar10_vehicles_animals",
    "tau_cifar10_five_clusters": "similarity_cifar10_five_clusters",
    "tau_cifar10_vehicles_animals": "similarity_cifar10_vehicles_animals",
    "tau_fashion_rotations": "similarity_fashion_rotations",
    "tau_mnist_fashion_cnn": "similarity_mnist_fashion_cnn",
    "tau_mnist_fashion_mlp": "similarity_mnist_fashion_mlp",
    "mapl_10_nodes": "mapl_heterogeneous_short",
    "mapl_graph": "mapl_heterogeneous_short",
    "mapl_heterogeneous": "mapl_heterogeneous_short",
    "mapl_homogeneous": "mapl_heterogeneous_short",
    "mapl_losses": "mapl_heterogeneous_short",
}
"""Tables without runs: tables with runs of the same networks and images, or of similar ones."""
MAPL = """
### MAPL's tables

{cells} cells of 1,000 rounds with one seed each. Run so far: four methods, 30 rounds, Fashion-MNIST
([records](mapl_short.md), [distance from the published numbers](mapl_heterogeneous_short.md)). A round of MAPL with 20
nodes and four architectures takes 6.94 TFLOP by PyTorch's FlopCounter, forward and backward. ResNet-18 on all nodes
takes 4.4 TFLOP, 10 nodes 3.5, and methods without MAPL's two views less, so the hours of all cells are upper bounds.

{costs}

A loss that is stacked has not been timed on a GPU. The cells that decide MAPL's claims are the four methods of
mapl_heterogeneous at disjoint/cifar10; `benches/on_gpu.sh` runs them first."""
MAPL_ROUNDS = (
    ("two AVX2 cores", 6.94e12 / 140e9, "computed: arithmetic alone, at 70 GFLOP/s per core"),
    ("one H200", 3.8, "measured 26 November 2026, node by node, before MAPL's loss was stacked"),
    ("one H200", 6.94e12 / 51e12, "computed: arithmetic alone, at 51 TFLOP/s in float32"),
)
"""Machine, seconds of a round, and their basis."""
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
    rows, outside, pages = [], [], []
    left: list[tuple[Matrix, Sequence[Result]]] = []
    core_s: dict[str, float] = {}  # of a node's round
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
        left.append((matrix, found))
        core_s |= _core_seconds(matrix, folder)
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
    missing = [row for each in left if (row := _left(*each, core_s))]
    if missing:
        header = ["table", "cells", "runs", "core hours", "as in", "why"]
        parts += ["", LEFT, markdown(header, missing, left=6)]
    cells = sum(len(found) for matrix, found in left if SIMILAR.get(matrix.name) == "mapl_heterogeneous_short")
    if cells:
        parts += [_mapl(cells, core_s["mapl_heterogeneous_short"])]
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


def _core_seconds(matrix: Matrix, folder: Path) -> dict[str, float]:
    """Return the core seconds of a node's round by the matrix's name; nothing without runs on CPUs."""
    stored = ResultStore(matrix, folder).read()
    nodes = {cell.name: _nodes(cell) for cell in matrix.cells}
    found = [
        values["wall_s"] * (values.get("threads") or 1) / (values["rounds"] * nodes[cell])
        for cell, seeds in stored.items()
        for values in seeds.values()
        if values.get("device") == "cpu"
    ]
    return {matrix.name: mean(found)} if found else {}


def _nodes(cell: Cell) -> int:
    return sum(cell.scenario.nodes.clusters)


def _left(matrix: Matrix, found: Sequence[Result], core_s: Mapping[str, float]) -> list[str]:
    """Return the row of a table with missing runs, or nothing."""
    missing = [(result.cell, len(result.cell.seeds) - len(result.seeds)) for result in found]
    runs = sum(count for _, count in missing)
    if not runs:
        return []
    similar = SIMILAR.get(matrix.name, matrix.name)
    hours = "-"
    if similar in core_s:
        rounds = sum(count * _nodes(cell) * cell.scenario.rounds for cell, count in missing)
        hours = f"{rounds * core_s[similar] / 3600:,.1f}"
    cells = sum(not result.seeds for result in found)
    more = (
        ["further seeds"]
        if any(count and result.seeds for result, (_, count) in zip(found, missing, strict=True))
        else []
    )
    why = "; ".join([*filter(None, [matrix.content.not_run]), *more]) or "-"
    return [matrix.name, f"{cells} of {len(found)}", str(runs), hours, similar if hours != "-" else "-", why]


def _mapl(cells: int, core_s: float) -> str:
    """Return what MAPL's tables would take.

    Args:
        cells: of all its tables.
        core_s: core seconds of a node's round in the stored runs.
    """
    measured = "one core", 20 * core_s, "measured: stored runs of 30 rounds, machine shared with other work"
    costs = [
        [machine, f"{round_s:.3g}", f"{round_s * 1000 / 3600:.2g}", f"{cells * round_s * 1000 / 3600:,.0f}", basis]
        for machine, round_s, basis in (measured, *MAPL_ROUNDS)
    ]
    header = ["machine", "seconds of a round", "hours of a cell", "hours of all cells", "basis"]
    return MAPL.format(cells=cells, costs=markdown(header, costs, left=5))


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
