"""Sections of the page of several runs: the table of settings, a line per setting over its cost, bytes, common and
different settings, and the list of runs with their commands.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ddlsim.report.comparing import curves
from ddlsim.report.comparing.cells import words_and_columns
from ddlsim.report.comparing.curves import Curve, Drawn, mean_curve, metric_of_measure
from ddlsim.report.comparing.groups import APART, Group, group, settings_of_run
from ddlsim.report.comparing.rows import Row
from ddlsim.report.comparing.tables import cells, heading, notes_of
from ddlsim.report.records import Records
from ddlsim.report.section import Axis, Bars, Lines, Mark, Section, Series, Table, Unit
from ddlsim.report.sections.about import REPEATS, VERSIONS
from ddlsim.report.summary import honest_part, summary_of
from ddlsim.report.text import bytes_text, json_text, seconds_text
from ddlsim.tasks.base import ACCURACY, Metric

ABOUT = "The runs"
MADE_WITH = (*VERSIONS, "device", "cpu", "threads")
Runs = list[tuple[Group, Records]]
ABSENT = "–"


def about_runs(groups: Sequence[Group]) -> list[Section]:
    """The sections, which every comparison has."""
    differing, common = _settings(groups)
    runs = [(setting, records) for setting in groups for records in setting.runs]
    names = _names(runs)
    about, table = "Nothing: the runs differ in their seeds alone.", None
    if differing:
        about = "Keys of the scenario as resolved, and what runs were made with, that are not the same in all runs."
        table = _oriented(Table(["key", *(setting.label for setting in groups)], differing, left=1 + len(groups)))
    shared = Table(["key", "value"], common, left=2)
    about_shared = "Every other key of the scenario as resolved, and what all runs were made with."
    return [
        Section("differences", "Differences between the settings", ABOUT, about, table),
        Section("common", "Common settings of all runs", ABOUT, about_shared, shared, open=False),
        run_list(groups),
        commands(runs, names),
    ]


def _settings(groups: Sequence[Group]) -> tuple[list[list[str]], list[list[str]]]:
    """Return rows of the facts that differ, a cell per group, and rows of the common facts."""
    whole = {id(records): _facts(records) for setting in groups for records in setting.runs}
    differing, common = [], []
    for key in dict.fromkeys(key for facts in whole.values() for key in facts):
        texts = {name: facts.get(key, ABSENT) for name, facts in whole.items()}
        if len(set(texts.values())) == 1:
            common.append([key, next(iter(texts.values()))])
        else:
            each = (dict.fromkeys(texts[id(records)] for records in setting.runs) for setting in groups)
            differing.append([key, *(" | ".join(one) for one in each)])
    return differing, common


def _oriented(table: Table) -> Table:
    """Return a table with a column per setting, or a row per setting if there are more settings than keys."""
    if len(table.rows) >= len(table.header) - 1:
        return table
    _, *settings = table.header
    rows = [[label, *(row[index] for row in table.rows)] for index, label in enumerate(settings, 1)]
    header = ["setting", *(row[0] for row in table.rows)]
    return Table(header, rows, left=len(header))


def _facts(records: Records) -> dict[str, str]:
    """Return everything that determines a run's result except the seed: key -> value as text."""
    hidden = [key for key in APART if key != "name"]
    settings = {key: value for key, value in settings_of_run(records).items() if key.partition(".")[0] not in hidden}
    made = {name: records.manifest.get(name) for name in MADE_WITH}
    made |= {f"data {name}": value for name, value in (records.manifest.get("data") or {}).items() if name != "dealt"}
    facts = settings | {f"(made with) {name}": value for name, value in made.items() if value is not None}
    return {key: json_text(value) for key, value in facts.items()}


def _names(runs: Runs) -> dict[int, str]:
    """Return the paths of the runs below their common folder."""
    top = os.path.commonpath([records.directory.resolve().parent for _, records in runs])
    return {id(records): Path(os.path.relpath(records.directory.resolve(), top)).as_posix() for _, records in runs}


def run_list(groups: Sequence[Group]) -> Section:
    """A row per run."""
    runs = [(setting, records) for setting in groups for records in setting.runs]
    rows, names, heads = [], _names(runs), dict.fromkeys(records.judged_by.head for _, records in runs)
    for setting, records in runs:
        summary = summary_of(records)
        quality = records.judged_by.text(honest_part(summary)[records.metric]["all"])
        costs = bytes_text(summary["bytes"]["total"]), seconds_text(summary["sim_time_s"])
        completed = ABSENT if summary["evaluated_round"] is None else str(summary["evaluated_round"])
        state = [summary["status"], str(summary["seed"]), completed]
        rows.append([names[id(records)], setting.label, *state, quality, *costs, seconds_text(summary["wall_s"])])
    header = ["run", "setting", "status", "seed", "round", " or ".join(heads), "bytes", "sim time", "wall time"]
    return Section("runs", "Runs", ABOUT, "Numbers of each run.", Table(header, rows, left=3))


def commands(runs: Runs, names: dict[int, str]) -> Section:
    """The exact command of every run, quoted for a shell."""
    lines = []
    for setting, records in runs:
        title = " ".join(f"{names[id(records)]}: {setting.label}, seed {records.scenario.get('seed', 0)}".split())
        lines += [f"# {title}", records.command or "# (not recorded)"]
    return Section("commands", "Commands", ABOUT, REPEATS, code="\n".join(lines))


GROUP, LEARNING, COMMUNICATION = "Settings side by side", "Learning", "Communication"
AXES: dict[curves.Axis, tuple[str, Unit]] = {
    "rounds": ("round", "count"),
    "time": ("simulated time", "seconds"),
    "bytes": ("bytes sent by all nodes", "bytes"),
    "joules": ("energy of all nodes", "joules"),
}
BANDS: dict[curves.Band, str] = {
    "std": "; bands are one population standard deviation over the runs of a setting",
    "ci": "; bands are the 95 % confidence interval of the mean over the runs of a setting, by Student's t",
    "none": "",
}
TO_TARGET: tuple[tuple[str, str, Unit], ...] = (
    ("sim_time_s", "Time", "seconds"),
    ("bytes", "Bytes", "bytes"),
    ("round", "Rounds", "count"),
)
CAUSES = {"payload": "payload", "header": "header", "wasted": "wasted", "in_flight": "in flight at the end"}


def sections(runs: Sequence[Records], rows: Sequence[Row], drawn: Drawn) -> list[Section]:
    """Return all sections of a comparison, in order.

    Args:
        runs: at least one; all judged by the same metric.
        rows: of their comparison.
        drawn: the keys that separate settings, the contents of the lines, and the value whose cost is compared.
    Raises:
        ScenarioError: if the runs do not share a metric, have no such values, or none of the keys.
    """
    curves.check_alike(runs)
    groups = group(runs, drawn.group_by)
    return [
        table(rows, drawn),
        *costs_to_target(rows),
        *charts(groups, drawn),
        *timetable(groups),
        *traffic(groups),
        *about_runs(groups),
    ]


def table(rows: Sequence[Row], drawn: Drawn) -> Section:
    """A row per setting: quality, fairness, costs, and costs of the target, as `ddlsim compare` prints them."""
    words, numbers = words_and_columns(rows, True)
    shown = cells(rows, words, numbers)
    remarks = [note for note in notes_of(rows, words) if not note.startswith("!!")]
    about = "A row per setting: means over its runs, with the population standard deviation where there are several."
    about = " ".join([*(f"{line.removeprefix('!! ')}." for line in heading(rows, drawn.group_by)), about])
    about = about[:1].upper() + about[1:]
    shown = replace(shown, rows=[[_unbroken(cell) for cell in row] for row in shown.rows])
    return Section("settings", "Settings", GROUP, about, shown, notes=remarks)


def costs_to_target(rows: Sequence[Row]) -> Iterator[Section]:
    """Yield bars of the seconds, bytes and rounds that settings took to their target; none if no run reached it."""
    for name, words, unit in TO_TARGET:
        numbers = [row.numbers.get(f"target_{name}") for row in rows]
        if not any(numbers):
            continue
        labels = []
        for row in rows:
            some = f", {row.reached} of {len(row.seeds)} runs" if row.reached else ", not reached"
            labels.append((row.setting or row.algorithm) + some * (row.reached < len(row.seeds)))
        means, spreads = ([number[part] if number else np.nan for number in numbers] for part in ("mean", "std"))
        if unit == "count":
            means, spreads = np.round(means, 1).tolist(), np.round(spreads, 1).tolist()
        spread = spreads if np.nansum(spreads) else ()
        aims = dict.fromkeys(f"{row.target_metric.text(row.target)}{' %' * row.target_metric.share}" for row in rows)
        note = (
            f"To {' or '.join(aims)}, on the line between evaluations{'; whiskers: one deviation' if spread else ''}."
        )
        figure = Bars(labels, [words], np.array(means)[:, None], unit, spread, note)
        about = "Mean over the runs that reached the target, with one population standard deviation over them."
        yield Section(f"to-target-{name.replace('_', '-')}", f"{words} to target", GROUP, about, figure=figure)


def _unbroken(cell: str) -> str:
    """Return a cell that breaks into lines before a deviation, not within it, nor between a number and its unit."""
    return cell.replace(" ", "\u00a0").replace("\u00a0±", " ±") if " ± " in cell else cell


def charts(groups: Sequence[Group], drawn: Drawn) -> Iterator[Section]:
    """Yield a chart of each measure, as far as runs were evaluated and it is defined for them."""
    judged_by = groups[0].runs[0].judged_by
    evaluated = [setting for setting in groups if all(len(records.evaluations) for records in setting.runs)]
    if not evaluated:
        return
    first = judged_by.name if drawn.y is None else drawn.y
    yield chart(evaluated, first, drawn, [records for setting in groups for records in setting.runs])
    for measure in dict.fromkeys((judged_by.name, "minority", "fair_accuracy")):
        defined = [setting for setting in evaluated if all(_is_defined(records, measure) for records in setting.runs)]
        if measure != first and defined:
            yield chart(defined, measure, drawn)


def chart(groups: Sequence[Group], measure: str, drawn: Drawn, noted: Sequence[Records] = ()) -> Section:
    """Return a line per setting over rounds, simulated time and bytes.

    Args:
        groups: of runs that have the measure.
        measure: see curves.py.
        drawn: the first axis, the band, and the marked value.
        noted: runs on whose averaging notes are made.
    """
    counted = all(records.evaluations.joules is not None for setting in groups for records in setting.runs)
    order = [drawn.x, *(name for name in AXES if name != drawn.x and (name != "joules" or counted))]
    series = []
    for index, setting in enumerate(groups):
        of_axes = [mean_curve(setting, name, measure, drawn.band) for name in order]
        series.append(_line(setting.legend, of_axes, index, metric_of_measure(measure, groups[0].runs[0])))
    judged_by = groups[0].runs[0].judged_by
    shown = metric_of_measure(measure, groups[0].runs[0])
    words = shown.words if measure in (judged_by.name, shown.name) else f"{shown.words}, {measure}".replace("_", " ")
    values = np.concatenate([values for one in series for values in (one.values, one.low) if values is not None])
    bands = BANDS[drawn.band] if any(one.low is not None for one in series) else ""
    about = f"{_describe(groups, measure, judged_by.name)}: mean over the runs of a setting{bands}."
    axes = [Axis(AXES[name][0], np.empty(0), AXES[name][1]) for name in order]
    log = shown.falling and bool((values[np.isfinite(values)] > 0).all())
    figure = Lines(axes, words, series, shown.unit, _marks(groups, measure, drawn), log=log, note=_note(groups, drawn))
    remarks = curves.notes(noted, drawn.group_by, None if measure == judged_by.name else measure) if noted else ()
    key = "curve-" + "".join(char if char.isascii() and char.isalnum() else "-" for char in measure)
    return Section(key, words[:1].upper() + words[1:], LEARNING, about, figure=figure, notes=remarks)


def _line(label: str, of_axes: Sequence[Curve], index: int, metric: Metric) -> Series:
    """A setting's line; its curves differ in the axis alone, and its band ends where the metric does."""
    one = of_axes[0]
    band = bool(one.spread.any())
    least, most = 0.0 if metric.share or metric.falling else -np.inf, 1.0 if metric.share else np.inf
    low, high = (one.y - one.spread, one.y + one.spread) if band else (None, None)
    low, high = (None if each is None else np.clip(each, least, most) for each in (low, high))
    return Series(label, one.y, index, low, high, dash=index, x=[curve.x for curve in of_axes])


def _note(groups: Sequence[Group], drawn: Drawn) -> str:
    """Return what a reader of the lines must know: averaged costs, and bands that are not shown."""
    several = any(len(setting.runs) > 1 for setting in groups)
    notes = ["Simulated time and bytes are means over seeds at equal rounds."] if several else []
    few = [setting.label for setting in groups if len(setting.runs) < curves.LEAST_RUNS]
    if drawn.band == "ci" and few:
        whose = "" if len(few) == len(groups) else f" of {', '.join(few)}"
        notes.append(f"No confidence band{whose}: fewer than {curves.LEAST_RUNS} seeds.")
    return " ".join(notes)


def _is_defined(records: Records, measure: str) -> bool:
    """Whether a run has this measure, and it differs from the mean over all nodes."""
    if measure == records.metric:
        return True
    of_clusters = int(records.node_cluster.max()) > 0
    return of_clusters and (measure != "fair_accuracy" or records.judged_by == ACCURACY)


def _describe(groups: Sequence[Group], measure: str, metric: str) -> str:
    """Return a description of the lines of a chart."""
    if measure == metric:
        nodes = "honest" if any(records.attacked.any() for setting in groups for records in setting.runs) else "all"
        return f"Mean over {nodes} nodes, each on its own test data"
    if measure == "fair_accuracy":
        lambdas = {records.fair_lambda for setting in groups for records in setting.runs}
        share, rest = "λ", "(1 − λ)"
        if len(lambdas) == 1:
            (only,) = lambdas
            share, rest = f"{only:.3g}", f"{1 - only:.3g}"
        return f"Fair accuracy = {share} × mean accuracy of the clusters + {rest} × (1 − gap from best to worst)"
    view = curves.VIEWS.get(measure)
    if view:
        return view[:1].upper() + view[1:]
    return f"Mean of {measure.replace('_', ' ')}" if measure.startswith("cluster_") else "Mean over all nodes"


def _marks(groups: Sequence[Group], measure: str, drawn: Drawn) -> list[Mark]:
    """Return a mark at the value whose cost is compared: the user's, or the targets of the scenarios."""
    metric = groups[0].runs[0].judged_by
    if drawn.at is not None:
        return [Mark("target", drawn.at)] if measure == (drawn.y or metric.name) else []
    targets = {records.target for setting in groups for records in setting.runs if records.target is not None}
    return [Mark("target", value) for value in sorted(targets)] if measure == metric.name else []


def timetable(groups: Sequence[Group]) -> Iterator[Section]:
    """Yield the times at which the last node of network-only runs had completed each round; none without such runs."""
    series: list[Series] = []
    for setting in groups:
        tables = [summary_of(records)["timetable"] for records in setting.runs]
        if not all(tables):
            continue
        last = [{row["round"]: row["last_s"] for row in rows} for rows in tables]
        rounds = sorted(set.intersection(*map(set, last)))
        values = np.array([[each[number] for number in rounds] for each in last], dtype=float).mean(0)
        index = len(series)
        series.append(Series(setting.legend, values, index, dash=index, x=[np.array(rounds)]))
    if not series:
        return
    about = "Simulated time at which the last node had completed each round: mean over the runs of a setting."
    figure = Lines([Axis("round", np.empty(0))], "simulated time", series, "seconds")
    yield Section("timetable", "Time of rounds", COMMUNICATION, about, figure=figure)


def traffic(groups: Sequence[Group]) -> Iterator[Section]:
    """Bytes of all nodes by cause, a bar per setting; none if nothing was sent."""
    labels, values = [], []
    for setting in groups:
        sent = [summary_of(records)["bytes"] for records in setting.runs]
        parts = [[each[cause] for cause in CAUSES] for each in sent if each["payload"] is not None]
        if parts:
            ended = f"{setting.legend}, {len(parts)} of them" if len(parts) < len(sent) else setting.legend
            labels.append(ended)
            values.append(np.array(parts, dtype=float).mean(0))
    found = np.array(values)
    if not found.any():
        return
    shown, names = np.flatnonzero(found.any(0)), list(CAUSES.values())
    about = "Of all nodes, until the end of a run: mean over the runs of a setting that have ended."
    figure = Bars(labels, [names[index] for index in shown], found[:, shown])
    yield Section("traffic", "Bytes by cause", COMMUNICATION, about, figure=figure)
