"""Rows of a comparison as text, Markdown, CSV, LaTeX or JSON; accuracies are percent in text and 0 to 1 in CSV and
JSON.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.foundation.strict_json import table_text
from ddlsim.report import text as formats
from ddlsim.report.comparing.groups import Settings, part_of
from ddlsim.report.comparing.rows import COSTS, ENERGY, FALLBACK, Row, Target, compared
from ddlsim.report.summary import read_all
from ddlsim.tasks.base import ACCURACY

Format = Literal["text", "csv", "markdown", "latex", "json"]
MOST_VALUES, MOST_CHARACTERS = 3, 30
"""Values of a key in a heading, and characters of each."""
FORMATS = ("text", "csv", "markdown", "latex", "json")


def compare(
    run_dirs: Iterable[str | Path],
    format: str = "text",
    on_damaged: Callable[[DdlsimError], None] | None = None,
    by: Sequence[str] | None = None,
    target: Target | None = None,
    studied: Sequence[str] | None = None,
) -> str:
    """Return a table of runs; runs that differ only in their seed share a row with mean and population standard
    deviation.

    Runs that ended differently, or are judged by different metrics or targets, never share a row, see `compared`.

    Args:
        run_dirs: run directories, or folders with runs below them.
        format: text; markdown (GitHub's); csv or json (both with every number in its own field); latex (booktabs).
        on_damaged: called with the error of a run that cannot be read, which is then left out; by default it is raised.
        by: dotted keys that separate rows; None for all but the seed.
        target: the value whose cost is shown; None for the target of each scenario.
        studied: see `heading`.
    Raises:
        ScenarioError: if a path is not a run and holds none, or the format is unknown.
        RecordsDamaged: see `on_damaged`.
    """
    return table_of(compared(read_all(run_dirs, on_damaged), by, target), format, by is not None, studied or by)


def table_of(rows: list[Row], format: str = "text", by_keys: bool = False, studied: Sequence[str] | None = None) -> str:
    """Return rows in a format.

    Args:
        rows: of one comparison.
        format: see `compare`.
        by_keys: whether the user chose the keys that separate rows; their values then replace scenario and algorithm.
        studied: see `heading`.
    """
    above = heading(rows, studied)
    if format == "json":
        return table_text({"schema_version": 1, "heading": above, "rows": [row.plain() for row in rows]}, indent=2)
    if format == "csv":
        return formats.comma_separated(*_csv(rows))
    if format not in FORMATS:
        raise ScenarioError(f"compare: unknown format {format!r}. Known: {', '.join(FORMATS)}.")
    if not rows:
        return ""
    header, cells = cells_of(rows, by_keys)
    notes = notes_of(rows)
    if format == "latex":
        table = formats.latex(header, cells, left=2 if by_keys else 3)
        return "\n".join([*(f"% {line}" for line in above), table, *(f"% {note}" for note in notes)])
    text = (formats.columns if format == "text" else formats.markdown)(header, cells, left=2 if by_keys else 3)
    return "\n".join([*above, *([""] if above else []), text, *([""] if notes else []), *notes])


def cells_of(rows: list[Row], by_keys: bool) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the table for people; see `table_of`."""
    most = max(row.num_clusters for row in rows)
    texts: dict[str, tuple[str, Callable]] = {}
    judged = sorted(dict.fromkeys(row.judged_by for row in rows), key=lambda metric: metric != ACCURACY)
    for metric in judged:
        texts[f"{metric.name}_all"] = f"{metric.column} all", metric.text
        named = "cluster {}" if len(judged) == 1 else metric.column + " {}"
        if most < 2:
            continue
        texts |= {f"{metric.name}_{c}": (named.format(c), metric.text) for c in range(most)}
        if any(row.judged_by == metric and row.has_fairness for row in rows):
            texts["fair_accuracy"] = "fair acc", formats.percent_text
            texts |= {"demographic_parity": ("DP", formats.number_text), "equalized_odds": ("EO", formats.number_text)}
    texts |= {name: cost for name, cost in _COST_TEXTS.items() if _is_shown(name, rows)}
    titles = ["setting"] if by_keys else ["scenario", "algorithm"]
    header = [*titles, "data", "seeds", "round", *(title for title, _ in texts.values())]
    with_settings = any(row.settings for row in rows)
    cells = []
    for row in rows:
        name = f"{row.algorithm} {row.settings}" if with_settings and row.settings else row.algorithm
        state = "" if row.status == "done" else f" {row.status}"
        line = [*([row.setting] if by_keys else [row.scenario, name]), row.data, str(len(row.seeds))]
        line.append(f"{row.ended or '-'}{state}")
        cells.append(line + [_cell(row, metric, as_text) for metric, (_, as_text) in texts.items()])
    return header, cells


def _is_shown(cost: str, rows: Sequence[Row]) -> bool:
    """Whether a cost has a column: energy only if a run has counted it."""
    counted = cost.removeprefix("target_")
    return counted not in (*ENERGY, "epsilon") or any(row.numbers.get(counted) for row in rows)


def _cell(row: Row, metric: str, as_text: Callable) -> str:
    number, to_target = row.numbers.get(metric), metric.startswith("target")
    counted = metric.removeprefix("target_")
    if to_target and row.target is not None and not row.reached and row.ended:
        return "not reached" if counted not in ENERGY or row.numbers.get(counted) else "-"
    text = as_text(number["mean"] if number else None)
    if number and number.get("runs", len(row.seeds)) > 1 and (number["std"] or counted not in (*COSTS, "round")):
        text += f" ± {as_text(number['std'])}"
    if metric in row.published and not row.data.endswith(FALLBACK):
        text += f" [{as_text(row.published[metric])}]"
    if number and "runs" in number:
        text += f" ({number['runs']}/{len(row.seeds)})"
    return text


def notes_of(rows: list[Row]) -> list[str]:
    """Return the notes below that table; lines that start with `!!` must be read before any number."""
    notes = []
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
        notes.append(f"to target: first evaluation with {measure}{over} {side} {shown.text(value)}{unit}")
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
        notes += [f"!! {run}: {label}" for label in row.labels]
        if row.status != "done":
            notes.append(f"!! {run}: NOT FINISHED ({row.status})")
    return list(dict.fromkeys(notes))


def _csv(rows: list[Row]) -> tuple[list[str], list[list]]:
    plain = ["scenario", "algorithm", "settings", "setting", "data", "status", "evaluated_round"]
    metrics = list(dict.fromkeys(name for row in rows for name in row.numbers))
    header = [*plain, "seeds", "metric", "measure", "target", "reached"]
    header += [f"{metric}_{part}" for metric in metrics for part in ("mean", "std", "published")]
    lines = []
    for row in rows:
        line = [getattr(row, name) for name in plain]
        line += [" ".join(map(str, row.seeds)), row.metric, row.measure, row.target, row.reached]
        for metric in metrics:
            number = row.numbers.get(metric) or {"mean": None, "std": None}
            line += [number["mean"], number["std"], row.published.get(metric)]
        lines.append([*line, "; ".join([*row.labels, *row.partial])])
    return [*header, "labels"], lines


def _round_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value == round(value) else f"{value:.1f}"


_COST_TEXTS: dict[str, tuple[str, Callable]] = {
    "bytes": ("bytes", formats.bytes_text),
    "sim_time_s": ("sim time", formats.seconds_text),
    "joules": ("energy", formats.joules_text),
    "gco2": ("CO2e", formats.grams_text),
    "epsilon": ("epsilon", partial(formats.number_text, digits=2)),
    "target_round": ("round to target", _round_text),
    "target_bytes": ("bytes to target", formats.bytes_text),
    "target_sim_time_s": ("time to target", formats.seconds_text),
    "target_joules": ("energy to target", formats.joules_text),
    "target_gco2": ("CO2e to target", formats.grams_text),
}
"""Cost -> the title of its column, and how it is written."""


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
