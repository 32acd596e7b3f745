"""Runs side by side: a row per scenario, algorithm and setting, mean and spread over seeds, published beside."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from ddlsim.errors import DdlsimError, ScenarioError
from ddlsim.report.published import published
from ddlsim.report.records import Records
from ddlsim.report.summary import quality, raise_it, read_all
from ddlsim.report.text import (
    bytes_text,
    columns,
    comma_separated,
    markdown,
    number_text,
    percent_text,
    quality_text,
    seconds_text,
)

Format = Literal["table", "md", "csv", "json"]

FALLBACK = " (fallback)"
COSTS = ("bytes", "sim_time_s", "target_round", "target_bytes", "target_sim_time_s")


@dataclass(frozen=True)
class Row:
    """Runs that differ in nothing but their seed.

    `numbers` holds per metric the mean and the population standard deviation over seeds (None where no run has it);
    accuracies are fractions. Costs to the target are over the runs that reached it, `reached` of `len(seeds)`.
    """

    scenario: str
    algorithm: str
    settings: str  # what sets this row apart from others of its scenario and algorithm, e.g. "heads=3"
    data: str
    status: str
    evaluated_round: int | None
    seeds: list[int]
    num_clusters: int
    metric: str  # accuracy or mse
    numbers: dict[str, dict | None]
    published: dict[str, float]
    target: float | None
    reached: int
    labels: list[str]


def compare(
    run_dirs: Iterable[str | Path], format: Format = "table", on_damaged: Callable[[DdlsimError], None] = raise_it
) -> str:
    """A table of runs, those that differ only in their seed in one row as mean and population standard deviation.

    Runs that ended differently (status, last evaluated round, data used) never share a row.

    Args:
        run_dirs: run directories, or folders with runs below them.
        format: table (plain text), md (GitHub markdown), csv or json (both with every number on its own).
        on_damaged: takes the error of a run that cannot be read, which is then left out; by default it is raised.
    Raises:
        ScenarioError: if a path is no run and holds none, or the format is not known.
        RecordsDamaged: see `on_damaged`.
    """
    rows = compared(read_all(run_dirs, on_damaged))
    if format == "json":
        return json.dumps({"schema_version": 1, "rows": [vars(row) for row in rows]}, indent=2)
    if format == "csv":
        return comma_separated(*_csv(rows))
    if format not in ("table", "md"):
        raise ScenarioError(f"compare: unknown format {format!r}. Known: table, md, csv, json.")
    if not rows:
        return ""
    header, cells = _cells(rows)
    text = (columns if format == "table" else markdown)(header, cells, left=3)
    notes = _notes(rows)
    return "\n".join([text, *([""] if notes else []), *notes])


def compared(runs: Iterable[tuple[Records, dict]]) -> list[Row]:
    """The rows of a comparison, in the order in which the runs come with their summaries."""
    groups: dict[str, list[tuple[dict, Records]]] = {}
    for records, summary in runs:
        key = {name: summary[name] for name in ("scenario", "algorithm", "status", "evaluated_round", "data")}
        groups.setdefault(json.dumps([key, _settings(records.scenario)], sort_keys=True), []).append((summary, records))
    members = list(groups.values())
    return [_row(group, members) for group in members]


def _row(group: list[tuple[dict, Records]], groups: list[list[tuple[dict, Records]]]) -> Row:
    summary, records = group[0]
    siblings = [
        _settings(other[0][1].scenario)
        for other in groups
        if all(other[0][0][name] == summary[name] for name in ("scenario", "algorithm"))
    ]
    data = summary["data"]
    return Row(
        scenario=summary["scenario"],
        algorithm=summary["algorithm"],
        settings=_what_differs(_settings(records.scenario), siblings),
        data=f"{data['name']}{FALLBACK if data['fallback'] else ''}",
        status=summary["status"],
        evaluated_round=summary["evaluated_round"],
        seeds=[summary["seed"] for summary, _ in group],
        num_clusters=len(summary["cluster_sizes"]),
        metric=summary["metric"],
        numbers=_numbers([_flat(summary) for summary, _ in group]),
        published=published(records.scenario, len(summary["cluster_sizes"])),
        target=summary["target"][summary["metric"]],
        reached=sum(bool(summary["target"]["reached"]) for summary, _ in group),
        labels=list(dict.fromkeys(label for summary, _ in group for label in summary["labels"])),
    )


def _flat(summary: dict) -> dict[str, float | None]:
    target = {f"target_{name}": summary["target"][name] for name in ("round", "bytes", "sim_time_s")}
    costs = {"bytes": summary["bytes"]["total"], "sim_time_s": summary["sim_time_s"]}
    return {**quality(summary), **costs, **target}


def _numbers(runs: list[dict[str, float | None]]) -> dict[str, dict | None]:
    numbers: dict[str, dict | None] = {}
    for name in runs[0]:
        values = [run[name] for run in runs if run[name] is not None]
        numbers[name] = {"mean": float(np.mean(values)), "std": float(np.std(values))} if values else None
    return numbers


def _settings(scenario: dict) -> dict[str, str]:
    """Every setting of a scenario by dotted path, without what does not change a run's meaning."""
    apart = ("name", "description", "paper", "seed", "fallback")
    found: dict[str, str] = {}

    def walk(value, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}" if path else str(key))
        else:
            found[path] = json.dumps(value)

    walk({key: value for key, value in scenario.items() if key not in apart}, "")
    return found


def _what_differs(own: dict[str, str], siblings: list[dict[str, str]]) -> str:
    paths = [path for path in own if any(other.get(path) != own[path] for other in siblings)]
    return " ".join(f"{path.removeprefix('algorithm.')}={own[path]}" for path in paths)


def _cells(rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    most = max(row.num_clusters for row in rows)
    texts: dict[str, tuple[str, Callable]] = {}
    for metric, short in (("accuracy", "acc"), ("mse", "mse")):
        if any(row.metric == metric for row in rows):
            as_text = partial(quality_text, metric)
            texts[f"{metric}_all"] = f"{short} all", as_text
            named = "cluster {}" if len({row.metric for row in rows}) == 1 else short + " {}"
            texts |= {f"{metric}_{c}": (named.format(c), as_text) for c in range(most)}
        if metric == "accuracy" and "accuracy_all" in texts:
            texts["fair_accuracy"] = "fair acc", percent_text
            texts |= {"demographic_parity": ("DP", number_text), "equalized_odds": ("EO", number_text)}
    as_texts = bytes_text, seconds_text, _round_text, bytes_text, seconds_text
    titles = "bytes", "sim time", "round to target", "bytes to target", "time to target"
    texts |= dict(zip(COSTS, zip(titles, as_texts, strict=True), strict=True))
    header = ["scenario", "algorithm", "data", "seeds", "round", *(title for title, _ in texts.values())]
    with_settings = any(row.settings for row in rows)
    cells = []
    for row in rows:
        name = f"{row.algorithm} {row.settings}" if with_settings and row.settings else row.algorithm
        state = "" if row.status == "done" else f" {row.status}"
        line = [row.scenario, name, row.data, str(len(row.seeds)), f"{_or_dash(row.evaluated_round)}{state}"]
        cells.append(line + [_cell(row, metric, as_text) for metric, (_, as_text) in texts.items()])
    return header, cells


def _cell(row: Row, metric: str, as_text) -> str:
    number = row.numbers.get(metric)
    text = as_text(number["mean"] if number else None)
    if number and len(row.seeds) > 1 and as_text is not bytes_text and as_text is not seconds_text:
        text += f" ± {as_text(number['std'])}"
    if metric in row.published and not row.data.endswith(FALLBACK):
        text += f" [{as_text(row.published[metric])}]"
    if metric.startswith("target") and 0 < row.reached < len(row.seeds):
        text += f" ({row.reached}/{len(row.seeds)})"
    return text


def _notes(rows: list[Row]) -> list[str]:
    notes = []
    if any(row.published for row in rows):
        notes.append("[ ] published number; ± population standard deviation over seeds; accuracies in percent")
    for metric, where in (("accuracy", "accuracy over all nodes at or above {} %"), ("mse", "mse at or below {}")):
        targets = sorted({row.target for row in rows if row.target is not None and row.metric == metric})
        if targets:
            values = ", ".join(quality_text(metric, target) for target in targets)
            notes.append(f"to target: first evaluation with {where.format(values)}")
    for row in rows:
        run = f"{row.scenario} {row.algorithm} {row.settings}".strip()
        if row.data.endswith(FALLBACK):
            notes.append(f"!! {run}: FALLBACK DATA ({row.data.removesuffix(FALLBACK)}), not comparable with other data")
        if len(set(row.seeds)) < len(row.seeds):
            notes.append(f"!! {run}: one seed is there more than once: {sorted(row.seeds)}")
        notes += [f"!! {run}: {label}" for label in row.labels]
        if row.status != "done":
            notes.append(f"!! {run}: NOT FINISHED ({row.status})")
    return list(dict.fromkeys(notes))


def _csv(rows: list[Row]) -> tuple[list[str], list[list]]:
    plain = ["scenario", "algorithm", "settings", "data", "status", "evaluated_round"]
    metrics = list(dict.fromkeys(name for row in rows for name in row.numbers))
    header = [*plain, "seeds", "metric", "target", "reached"]
    header += [f"{metric}_{part}" for metric in metrics for part in ("mean", "std", "published")]
    lines = []
    for row in rows:
        line = [getattr(row, name) for name in plain]
        line += [" ".join(map(str, row.seeds)), row.metric, row.target, row.reached]
        for metric in metrics:
            number = row.numbers.get(metric) or {"mean": None, "std": None}
            line += [number["mean"], number["std"], row.published.get(metric)]
        lines.append([*line, "; ".join(row.labels)])
    return [*header, "labels"], lines


def _round_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)
