"""Tables of our results and the published numbers: mean and standard deviation per cell, and their difference."""

from collections.abc import Callable, Iterator, Sequence

from ddlsim.report.text import columns, markdown, number_text
from ddlsim.runs.reproduce.matrix import Matrix
from ddlsim.runs.reproduce.published import MEASURES, PublishedMeasure, Shape, Verdict
from ddlsim.runs.reproduce.result import Result, common_distance, standing


def verdicts(matrix: Matrix, found: Sequence[Result]) -> list[tuple[Shape, Verdict]]:
    """Return each shape of the matrix with its verdict."""
    run = [one for one in found if one.seeds]
    return [
        (shape, shape.judge({one.cell.name: one.value(shape.of) for one in run})) for shape in matrix.content.shapes
    ]


def console_table(matrix: Matrix, found: Sequence[Result]) -> str:
    """Return the tables as aligned text, with their notes."""
    return "\n\n".join([*_tables(matrix, found, columns), "\n".join(_notes(matrix, found))])


def markdown_table(matrix: Matrix, found: Sequence[Result]) -> str:
    """Return the tables as a GitHub markdown page, with their notes as a list."""
    title = f"# {matrix.name}" + (f": {matrix.content.description}" if matrix.content.description else "")
    notes = "\n".join(f"- {note}" for note in _notes(matrix, found))
    return "\n\n".join([title, *_tables(matrix, found, markdown), notes]) + "\n"


def _tables(matrix: Matrix, found: Sequence[Result], form: Callable[..., str]) -> Iterator[str]:
    """Yield the tables of cells, measures and shapes in a form."""
    if matrix.learns:
        yield form(*_cells(matrix, found), left=1)
    if matrix.content.measures:
        yield form(*_measures(matrix, found), left=1)
    if matrix.content.shapes:
        yield form(*_shapes(matrix, found), left=2)


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
    """Return each measure as `ours (published)`, or ours alone."""
    header = ["cell", *(MEASURES[name].title for name in matrix.content.measures)]
    rows = []
    for result in found:
        row = [result.cell.name]
        for name in matrix.content.measures:
            published = result.cell.published.measure(name) if result.cell.published else None
            text = _with_published(result.measures.get(name), published, MEASURES[name].digits)
            error = None if matrix.learns else result.relative_error(name)
            row.append(text + ("" if error is None else f" {error:+.1f} %") + _seed_share(result, name))
        rows.append(row)
    return header, rows


def _with_published(ours: float | None, published: PublishedMeasure | None, digits: int) -> str:
    text = number_text(ours, digits)
    return text if published is None else f"{text} ({_mean_and_std(published.mean, published.std, digits)})"


def _seed_share(result: Result, measure: str) -> str:
    """Return the number of seeds that have a measure, if some lack it."""
    count, seeds = result.having.get(measure, 0), len(result.seeds)
    return f" [{count}/{seeds}]" if 0 < count < seeds else ""


def _shapes(matrix: Matrix, found: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    return ["what the paper shows", "ours"], [[shape.claim, verdict] for shape, verdict in verdicts(matrix, found)]


def _digits(matrix: Matrix) -> int:
    """Return the decimals of the metric that judges the nodes."""
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


def _notes(matrix: Matrix, found: Sequence[Result]) -> Iterator[str]:
    metric = matrix.judged_by
    unit = f"{metric.words} in percent" if metric.share else metric.words
    over = "all nodes" if matrix.content.average == "nodes" else "the clusters, each weighing the same"
    over += f"; ± population standard deviation over {matrix.content.spread}"
    yield f"published: {matrix.content.source}"
    if matrix.learns:
        yield f"{unit}, mean over {over}"
    if matrix.learns and matrix.content.spread == "seeds":
        yield "in std: the difference in published standard deviations"
        if matrix.content.common_distance and (distance := common_distance(found)) is not None:
            yield distance.text(_digits(matrix))
    if any(result.cell.published and result.cell.published.measures for result in found):
        error = "" if matrix.learns else ", and the difference in percent"
        yield f"measures: ours, and in brackets the published value{error}"
    partly = [(result, name) for result in found for name in matrix.content.measures if _seed_share(result, name)]
    if partly:
        late = any(name in result.unmeasured for result, name in partly)
        others = "did not come to it, or were kept before this measure was asked for" if late else "did not come to it"
        yield f"[k/n]: the mean over k of n seeds; the others {others}"
    if matrix.content.note:
        yield matrix.content.note
    if matrix.changes:
        yield f"NOT AS PUBLISHED: run with {' '.join(matrix.changes)}"
    for result in found:
        if result.partly and result.mean is not None:
            seeds = ", ".join(map(str, result.partly))
            yield f"{result.cell.name}: some nodes have diverged with the seeds {seeds}"
    yield from (f"{result.cell.name}: {result.cell.content.note}" for result in found if result.cell.content.note)
    outside = [result.cell for result in found if standing(result, matrix) == "outside"]
    yield from (f"{cell.name}: {cell.content.outside}" for cell in outside if cell.content.outside)
