"""What settings have in common and what they do not, and the list of runs with the commands that made them."""

import os
from collections.abc import Sequence
from pathlib import Path

from ddlsim.report.comparing.groups import APART, Group, settings_of_run
from ddlsim.report.records import Records
from ddlsim.report.section import Section, Table
from ddlsim.report.sections.about import REPEATS
from ddlsim.report.summary import honest_part
from ddlsim.report.text import bytes_text, json_text, seconds_text
from ddlsim.tasks.metric import Metric

GROUP = "The runs"
MADE_WITH = ("ddlsim", "python", "torch", "torchvision", "numpy", "simpy", "networkx", "device", "cpu", "threads")
ABSENT = "–"


def about_runs(groups: Sequence[Group], summaries: dict[int, dict]) -> list[Section]:
    """The sections, which every comparison has."""
    differing, common = _settings(groups)
    names = _names([records for own in groups for records in own.runs])
    return [
        Section(
            "differences",
            "What differs between the settings",
            GROUP,
            "Keys of the scenario as resolved, and what runs were made with, that are not the same in all runs."
            if differing
            else "Nothing: the runs differ in their seeds alone.",
            _lying(Table(["key", *(own.label for own in groups)], differing, left=1 + len(groups)))
            if differing
            else None,
        ),
        Section(
            "common",
            "What all runs have in common",
            GROUP,
            "Every other key of the scenario as resolved, and what all runs were made with.",
            Table(["key", "value"], common, left=2),
            open=False,
        ),
        _list(groups, summaries, names),
        commands(groups, names),
    ]


def _settings(groups: Sequence[Group]) -> tuple[list[list[str]], list[list[str]]]:
    """Rows of what differs, a cell per group, and rows of what does not."""
    whole = {id(records): _facts(records) for own in groups for records in own.runs}
    differing, common = [], []
    for key in dict.fromkeys(key for facts in whole.values() for key in facts):
        texts = {name: facts.get(key, ABSENT) for name, facts in whole.items()}
        if len(set(texts.values())) == 1:
            common.append([key, next(iter(texts.values()))])
        else:
            each = (dict.fromkeys(texts[id(records)] for records in own.runs) for own in groups)
            differing.append([key, *(" | ".join(own) for own in each)])
    return differing, common


def _lying(table: Table) -> Table:
    """A table whose rows are not fewer than its columns: a column per setting, or a row if there are more settings."""
    if len(table.rows) >= len(table.header) - 1:
        return table
    _, *settings = table.header
    rows = [[label, *(row[index] for row in table.rows)] for index, label in enumerate(settings, 1)]
    header = ["setting", *(row[0] for row in table.rows)]
    return Table(header, rows, left=len(header))


def _facts(records: Records) -> dict[str, str]:
    """Everything that decides a run's result but the seed: key -> value as text."""
    hidden = [key for key in APART if key != "name"]
    facts = {
        key: json_text(value) for key, value in settings_of_run(records).items() if key.partition(".")[0] not in hidden
    }
    made = {name: records.manifest[name] for name in MADE_WITH if records.manifest.get(name) is not None}
    data = {f"data {name}": value for name, value in (records.manifest.get("data") or {}).items() if value is not None}
    return facts | {f"(made with) {name}": json_text(value) for name, value in (made | data).items()}


def _names(runs: Sequence[Records]) -> dict[int, str]:
    """A run's directory, below the one that holds all of them."""
    places = {id(records): Path(records.directory).resolve() for records in runs}
    try:
        top = os.path.commonpath([place.parent for place in places.values()])
    except ValueError:  # on several drives
        return {key: str(place) for key, place in places.items()}
    return {key: place.relative_to(top).as_posix() for key, place in places.items()}


def _list(groups: Sequence[Group], summaries: dict[int, dict], names: dict[int, str]) -> Section:
    """A row per run."""
    metric = Metric(**summaries[id(groups[0].runs[0])]["judged_by"])
    rows = []
    for own in groups:
        for records in own.runs:
            summary = summaries[id(records)]
            round_num = summary["evaluated_round"]
            rows.append(
                [
                    names[id(records)],
                    own.label,
                    summary["status"],
                    str(summary["seed"]),
                    ABSENT if round_num is None else str(round_num),
                    metric.text(honest_part(summary)[metric.name]["all"]),
                    bytes_text(summary["bytes"]["total"]),
                    seconds_text(summary["sim_time_s"]),
                    seconds_text(summary["wall_s"]),
                ]
            )
    header = ["run", "setting", "status", "seed", "round", metric.head, "bytes", "sim time", "wall time"]
    return Section("runs", "Runs", GROUP, "Each with its own numbers.", Table(header, rows, left=3))


def commands(groups: Sequence[Group], names: dict[int, str]) -> Section:
    """The exact command of every run, quoted for a shell."""
    lines = []
    for own in groups:
        for records in own.runs:
            told = " ".join(f"{names[id(records)]}: {own.label}, seed {records.scenario.get('seed', 0)}".split())
            lines += [f"# {told}", records.command or "# (not recorded)"]
    return Section("commands", "Commands", GROUP, REPEATS, code="\n".join(lines))
