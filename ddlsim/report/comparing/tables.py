"""Rows of a comparison as text, Markdown, CSV, LaTeX or JSON; accuracies are percent in text and 0 to 1 in CSV and
JSON.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.strict_json import table_text
from ddlsim.report import text as formats
from ddlsim.report.comparing.cells import LEFT, WORDS, Column, common_words, words_and_columns
from ddlsim.report.comparing.groups import Settings, part_of
from ddlsim.report.comparing.rows import FALLBACK, Row
from ddlsim.report.section import Table
from ddlsim.report.text import sampled_text

Format = Literal["text", "csv", "markdown", "latex", "siunitx", "json"]
MOST_VALUES, MOST_CHARACTERS = 3, 30
"""Values of a key in a heading, and characters of each."""
FORMATS = get_args(Format)
PLAIN = (
    *("scenario", "algorithm", "settings", "setting", "data", "status", "evaluated_round"),
    *("metric", "measure", "target", "reached"),
)
"""Values of a row that are columns of CSV and data frames as they are."""


def table_of(
    rows: list[Row],
    format: str = "text",
    by_keys: bool = False,
    studied: Sequence[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    units: Sequence[str] = (),
    width: int | None = None,
) -> str:
    """Return rows in a format.

    Args:
        rows: of one comparison.
        format: text; markdown (GitHub's); csv or json (both with every number in its own field); latex
            (booktabs) and siunitx (booktabs with S columns) for papers.
        by_keys: whether the user chose the keys that separate rows; their values then replace scenario and algorithm.
        studied: see `heading`.
        columns, units: see `words_and_columns`.
        width: characters of a line of text; None: any.
    Raises:
        ScenarioError: if a column or a unit is unknown, or the format does not have them.
    """
    if format in ("csv", "json") and (columns is not None or units):
        raise ScenarioError(f"compare: {format} has all numbers in base units. Omit --columns and --units.")
    above = heading(rows, studied)
    if format == "json":
        return table_text({"schema_version": 1, "heading": above, "rows": [row.plain() for row in rows]}, indent=2)
    if format == "csv":
        every = all_columns(rows)
        return formats.comma_separated(list(every), list(zip(*every.values(), strict=True)))
    if format not in FORMATS:
        raise ScenarioError(f"compare: unknown format {format!r}. Known: {', '.join(FORMATS)}.")
    if not rows:
        return ""
    words, numbers = words_and_columns(rows, by_keys, columns, units)
    notes = notes_of(rows, words)
    found, left = cells(rows, words, numbers, FORMS.get(format, _plain)), sum(name in LEFT for name in words)
    if format in LATEX:
        lines = [[*map(formats.latex_text, row[: len(words)]), *row[len(words) :]] for row in found.rows]
        text = formats.latex(found.header, lines, left)
        return "\n".join([*(f"% {line}" for line in (*above, LATEX[format])), text, *(f"% {note}" for note in notes)])
    if format == "markdown":
        text = formats.markdown(found.header, found.rows, left)
    else:
        text = formats.columns(found.header, found.rows, left, width)
    return "\n".join([*above, *([""] if above else []), text, *([""] if notes else []), *notes])


def _plain(mean: str, spread: str, remark: str, best: bool) -> str:
    return f"{mean} ± {spread}{remark}" if spread else f"{mean}{remark}"


def _math(mean: str, spread: str, remark: str, best: bool) -> str:
    text = rf"{mean} \pm {spread}" if spread else mean
    return (rf"$\mathbf{{{text}}}$" if best else f"${text}$" if mean[-1].isdigit() else mean) + remark


def _siunitx(mean: str, spread: str, remark: str, best: bool) -> str:
    text = rf"\num{{{mean} +- {spread}}}" if spread else rf"\num{{{mean}}}" if mean[-1].isdigit() else mean
    return (rf"{{\bfseries {text}}}" if best else text) + remark


FORMS = {"latex": _math, "siunitx": _siunitx}
LATEX = {
    "latex": r"\usepackage{booktabs}; bold: the best mean",
    "siunitx": r"\usepackage{booktabs,siunitx} \sisetup{separate-uncertainty, detect-weight}; bold: the best mean",
}
"""Line above a table in LaTeX, as a comment."""
BOLD = "bold: the best mean as shown, not a test; costs to the target only if all runs reached it"


def cells(rows: Sequence[Row], words: Sequence[str], numbers: Sequence[Column], form: Callable = _plain) -> Table:
    """Return the table of these columns, with the best values; `form` joins mean, deviation and remark."""
    lines, places = [], []
    for i, row in enumerate(rows):
        lines.append([WORDS[name](row) for name in words])
        for column in numbers:
            best = column.is_best(row, rows)
            places += [(i, len(lines[i]))] * best
            lines[i].append(form(*column.of(row), best))
    header, left = [*words, *(column.title for column in numbers)], sum(name in LEFT for name in words)
    return Table(header, lines, left, note=BOLD if places else "", best=places)


def notes_of(rows: Sequence[Row], words: Sequence[str] = ()) -> list[str]:
    """Return the notes below that table; lines that start with `!!` must be read before any number.

    Args:
        rows: of one comparison.
        words: columns of words that the table has; others that all rows have in common are a note.
    """
    notes = []
    if common := [f"{name} {text}" for name, text in common_words(rows).items() if name not in words]:
        notes.append(f"all rows: {', '.join(common)}")
    if any(row.published for row in rows):
        notes.append("[ ] published number; ± population standard deviation over seeds; accuracies in percent")
    elif any(len(row.seeds) > 1 for row in rows):
        share = "; accuracies in percent" if any(row.judged_by.share for row in rows) else ""
        notes.append(f"± population standard deviation over runs{share}")
    targets = {(row.measure, row.metric, row.target): row.target_metric for row in rows if row.target is not None}
    whose = "honest" if any(row.attacked for row in rows) else "all"
    for (measure, metric, value), shown in sorted(targets.items(), key=lambda item: item[0]):
        side = "at or below" if shown.falling else "at or above"
        over = f" over {whose} nodes" if measure == metric and metric == "accuracy" else ""
        unit = " %" if shown.share else ""
        notes.append(f"to target: {measure}{over} {side} {shown.text(value)}{unit}, on the line between evaluations")
    if any(0 < row.reached < len(row.seeds) for row in rows):
        notes.append("(k/n): k of n runs reached the target; mean and deviation are over these")
    estimated = list(dict.fromkeys(text for row in rows for text in row.estimated))
    if estimated:
        some = "" if all(row.estimated for row in rows) else " of some settings"
        notes.append(f"estimated{some}: {', '.join(estimated)}")
    for row in rows:
        run = f"{row.scenario} {row.algorithm} {row.settings}".strip()
        if row.attacked:
            notes.append(f"{row.setting or run}: honest nodes only; {row.attacked} nodes attack them")
        if row.as_published:
            notes.append(f"{row.setting or run}: as published: {', '.join(row.as_published)}")
        if row.final_exchange:
            text = f"measured after a final exchange ({row.final_exchange}), which is in no curve and no cost to target"
            notes.append(f"{row.setting or run}: {text}")
        notes += [f"{row.setting or run}: {text}" for text in row.partial]
        if row.mixed:
            notes.append(f"{row.setting}: averaged over runs that differ in {', '.join(row.mixed)}")
        if row.data.endswith(FALLBACK):
            notes.append(f"!! {run}: FALLBACK DATA ({row.data.removesuffix(FALLBACK)}), not comparable with other data")
        if len(set(row.seeds)) < len(row.seeds) and not row.mixed:
            notes.append(f"!! {run}: one seed occurs more than once: {sorted(row.seeds)}")
        if row.status != "done":
            notes.append(f"!! {run}: NOT FINISHED ({row.status})")
    return [*dict.fromkeys(notes), *(f"!! {text}" for text in _warnings(rows))]


def _warnings(rows: Sequence[Row]) -> list[str]:
    """Return one line per warning of runs, with the settings that have it if not all have."""
    having: dict[str, list[str]] = {}
    for row in rows:
        for label in row.labels:
            having.setdefault(label, []).append(f"{row.scenario} {row.algorithm} {row.settings}".strip())
    found = [
        f"{'all settings' if len(names) == len(rows) > 1 else ', '.join(names)}: {label}"
        for label, names in having.items()
    ]
    pairs = [pair for row in rows for pair in row.sampled]
    return [*found, *([f"{len(pairs)} run{'s' * (len(pairs) > 1)}: {sampled_text(pairs)}"] if pairs else [])]


def all_columns(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return all numbers of rows in base units, for CSV and data frames: name -> a value per row, None if missing."""
    columns: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in PLAIN}
    columns |= {"seeds": [" ".join(map(str, row.seeds)) for row in rows], "runs": [len(row.seeds) for row in rows]}
    for name in dict.fromkeys(name for row in rows for name in row.numbers):
        numbers = [row.numbers.get(name) or {} for row in rows]
        columns |= {f"{name}_{part}": [number.get(part) for number in numbers] for part in ("mean", "std")}
        columns[f"{name}_published"] = [row.published.get(name) for row in rows]
        if not name.startswith("target_") and any("runs" in number for number in numbers):
            each = zip(numbers, columns["runs"], strict=True)
            columns[f"{name}_runs"] = [number.get("runs", runs) if number else 0 for number, runs in each]
    labels = [[*_warnings([replace(row, labels=[])]), *row.labels, *row.partial] for row in rows]
    return columns | {"labels": ["; ".join(each) for each in labels]}


def heading(rows: Sequence[Row], studied: Sequence[str] | None = None) -> list[str]:
    """Return the lines above a table of rows.

    Args:
        rows: of one comparison.
        studied: dotted keys that the comparison is about; None: the algorithm if it differs, else all that differs.
    """
    if len(rows) < 2:
        return []
    return [differences(rows, studied), *(f"!! {text}" for text in identical(rows))]


def differences(rows: Sequence[Row], studied: Sequence[str] | None = None) -> str:
    """Return a sentence on the keys in which rows differ; keys that are not studied are shown with their values."""
    found = _differing([row.values for row in rows])
    if len({tuple(sorted(row.seeds)) for row in rows}) > 1:
        found["seed"] = [" ".join(map(str, sorted(row.seeds))) for row in rows]
    if len({row.data for row in rows}) > 1 and "data.name" not in found:
        found["data used"] = [row.data for row in rows]
    if studied is None:
        studied = ["algorithm.name"] if "algorithm.name" in found else list(found)
    about = [key for key in found if key in studied or key.removesuffix(".name") in studied]
    others = [key for key in found if key not in about]
    if not found:
        return "the settings differ in nothing that is recorded"
    text = f"compared: {', '.join(about)}; " if about else ""
    if not others:
        return f"{text}everything else is the same"
    return f"{text}the settings also differ in {', '.join(f'{key} ({_values_text(found[key])})' for key in others)}"


def identical(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each set of rows whose runs of equal seeds wrote the same bytes."""
    sets: list[list[Row]] = []
    for row in rows:
        found = next((same for same in sets if _same(same[0], row)), None)
        sets.append([row]) if found is None else found.append(row)
    reason = "their records are byte-identical, so their differences have no effect here"
    return [f"{_names(same, rows)} computed the same: {reason}" for same in sets if len(same) > 1]


def _same(one: Row, other: Row) -> bool:
    common = one.digests.keys() & other.digests.keys()
    return bool(common) and all(one.digests[seed] and one.digests[seed] == other.digests[seed] for seed in common)


def _names(same: Sequence[Row], rows: Sequence[Row]) -> str:
    names = [row.setting or f"{row.algorithm} {row.settings}".strip() for row in same]
    several_scenarios = len({row.scenario for row in rows}) > 1
    names = [f"{row.scenario} {name}" for row, name in zip(same, names, strict=True)] if several_scenarios else names
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _differing(whole: Sequence[Settings]) -> dict[str, list[str | None]]:
    """Key -> the value of each row (None if the row lacks the key), of the keys whose values differ.

    A key that only some parts of one kind have (the heads of FACADE, compared with EL) is treated like the name of the
    part.
    """
    found: dict[str, list[str | None]] = {}
    for key in dict.fromkeys(key for own in whole for key in own):
        values = [formats.json_text(own[key]) if key in own else None for own in whole]
        part = part_of(key)
        other_part = part and len({own.get(part) for own in whole}) > 1
        if len(set(values)) > 1 and not (other_part and None in values):
            found[key] = values
    return {key: values for key, values in found.items() if not any(other.startswith(f"{key}.") for other in found)}


def _values_text(values: Sequence[str | None]) -> str:
    texts = ["not set" if value is None else value for value in values]
    texts = [text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..." for text in texts]
    texts = list(dict.fromkeys(texts))
    return " | ".join([*texts[:MOST_VALUES], *(["..."] if len(texts) > MOST_VALUES else [])])
