"""Rows of a comparison: one per scenario, algorithm and setting, with mean and spread over seeds, and published
numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.comparing.curves import Target, measure_of, metric_of_measure
from ddlsim.report.comparing.groups import Settings, compared_settings, group, parts_without_digest, records_digest
from ddlsim.report.published import published
from ddlsim.report.records import Records
from ddlsim.report.summary import costs_of, quality, sampled, summary_of
from ddlsim.report.summary_table import exchange_text
from ddlsim.report.text import sampled_text
from ddlsim.tasks import metrics
from ddlsim.tasks.base import Metric

FALLBACK = " (fallback)"
COSTS = ("bytes", "sim_time_s", "joules", "gco2", "epsilon")
ENERGY = ("joules", "gco2")
ESTIMATES = {"sim_time_s": "simulated time", "joules": "energy", "gco2": "emissions"}


@dataclass(frozen=True)
class Row:
    """Runs that differ only in their seed, or in keys that do not separate rows.

    `numbers` holds per metric the mean and the population standard deviation over runs (None where no run has it), and
    as `runs` the number of runs with a value, if some have none; accuracies are fractions. Costs to the target are over
    the runs that reached it, `reached` of `len(seeds)`.
    """

    scenario: str
    algorithm: str
    settings: str  # differences from other rows of its scenario and algorithm, e.g. "heads=3"
    data: str
    status: str
    evaluated_round: int | None
    seeds: list[int]
    num_clusters: int
    judged_by: Metric
    target_metric: Metric  # metric of the target
    numbers: dict[str, dict | None]
    published: dict[str, float]
    target: float | None
    reached: int
    labels: list[str]  # warnings, without that of sampling
    setting: str = ""  # differences from all other rows
    measure: str = ""  # measure of the target
    mixed: list[str] = field(default_factory=list)  # keys in which its runs differ
    attacked: int = 0  # largest number of attackers of a run; the row describes honest nodes
    estimated: list[str] = field(default_factory=list)  # estimated figures, in words
    as_published: list[str] = field(default_factory=list)  # options that follow a paper's code
    final_exchange: str = ""  # its cost and effect in the first run
    values: Settings = field(default_factory=dict)  # every setting of the first run
    digests: dict[int, str] = field(default_factory=dict)  # seed -> digest of the records, empty if unknown
    sampled: list[tuple[int, int, float | None]] = field(default_factory=list)  # of its runs, see summary.py
    ended: str = ""  # the last evaluated round, or the range over its runs

    @property
    def metric(self) -> str:
        """Name of the metric by which its nodes are judged."""
        return self.judged_by.name

    @property
    def has_fairness(self) -> bool:
        """Whether fairness over classes is defined, if there are several clusters."""
        return "demographic_parity" in self.numbers

    @property
    def partial(self) -> list[str]:
        """Sentences on values that are not over all runs; `reached` reports costs to the target."""
        found: dict[int, list[str]] = {}
        for name, number in self.numbers.items():
            if number is not None and "runs" in number and not name.startswith("target_"):
                found.setdefault(number["runs"], []).append(name)
        count = len(self.seeds)
        return [f"{', '.join(names)}: over {k} of {count} runs, others have none" for k, names in found.items()]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        hidden = ("judged_by", "target_metric", "ended", "values", "digests")
        found = {key: value for key, value in vars(self).items() if key not in hidden}
        return found | {"metric": self.metric}


def compared(runs: Sequence[Records], by: Sequence[str] | None = None, target: Target | None = None) -> list[Row]:
    """Return the rows of a comparison, in the order of the runs.

    Runs that ended differently (status, of unfinished ones the last evaluated round, data used), that are judged by
    different metrics or targets, or have different numbers of clusters, never share a row.

    Args:
        runs: their records.
        by: dotted keys that separate rows; None for all but the seed.
        target: None for the target of each scenario.
    """
    found: list[tuple[str, list[str], list[Records]]] = []
    for setting in group(runs, by):
        ends: dict[tuple, list[Records]] = {}
        for records in setting.runs:
            summary = summary_of(records)
            names = ("status", "metric") if by is not None else ("status", "metric", "scenario", "algorithm")
            ended = None if summary["status"] == "done" else summary["evaluated_round"]
            aim = summary["target"][summary["metric"]] if target is None else None
            key = (*(summary[name] for name in names), ended, aim, len(summary["cluster_sizes"]))
            key += (*summary["data"].values(),)
            ends.setdefault(key, []).append(records)
        found += [(setting.label, list(setting.mixed) if by is not None else [], members) for members in ends.values()]
    members = [setting for _, _, setting in found]
    return [_row(label, mixed, setting, members, target) for label, mixed, setting in found]


def _row(
    label: str, mixed: list[str], members: list[Records], groups: list[list[Records]], target: Target | None
) -> Row:
    records, summaries = members[0], [summary_of(one) for one in members]
    summary, names = summaries[0], ("scenario", "algorithm")
    firsts = [first for first, *_ in groups if all(summary_of(first)[name] == summary[name] for name in names)]
    siblings = [compared_settings(first) for first in firsts]
    data, metric = summary["data"], summary["metric"]
    measure = (target.measure if target else None) or metric
    rounds = sorted({one["evaluated_round"] for one in summaries if one["evaluated_round"] is not None})
    reaching = [_target_costs(one, target) for one in members]
    return Row(
        scenario=", ".join(dict.fromkeys(str(one["scenario"]) for one in summaries)),
        algorithm=", ".join(dict.fromkeys(str(one["algorithm"]) for one in summaries)),
        settings=_differences(compared_settings(records), siblings),
        data=f"{data['name']}{FALLBACK if data['fallback'] else ''}",
        status=summary["status"],
        evaluated_round=rounds[0] if len(rounds) == 1 else None,
        seeds=[one["seed"] for one in summaries],
        num_clusters=len(summary["cluster_sizes"]),
        judged_by=Metric(**summary["judged_by"]),
        numbers=_numbers([{**_flat(one), **cost} for one, cost in zip(summaries, reaching, strict=True)]),
        published=_published_of_all([published(one.scenario) for one in members]),
        target=summary["target"][metric] if target is None else target.value,
        reached=sum(cost["target_round"] is not None for cost in reaching),
        labels=[*dict.fromkeys(text for one in members for text in _labels(one)), *_digest_notes(members)],
        sampled=[found for one in members if (found := sampled(one))],
        setting=label,
        measure=measure,
        mixed=mixed,
        attacked=max(int(one.attacked.sum()) for one in members),
        target_metric=metric_of_measure(measure, records),
        estimated=[ESTIMATES[name] for name in summary.get("estimated", ()) if name in ESTIMATES],
        as_published=list(summary.get("as_published", ())),
        values=compared_settings(records),
        digests={} if mixed else {summary_of(one)["seed"]: records_digest(one) for one in members},
        final_exchange=exchange_text(summary) if "final_exchange" in summary else "",
        ended=" to ".join(map(str, dict.fromkeys(rounds[:1] + rounds[-1:]))),
    )


def _published_of_all(each: list[dict[str, float]]) -> dict[str, float]:
    """Return the published numbers on which all runs agree; a mean over several settings has none."""
    return {name: value for name, value in each[0].items() if all(one.get(name) == value for one in each)}


def _labels(records: Records) -> list[str]:
    """Return the warnings of a run, without that of sampling."""
    found = sampled(records)
    labels = summary_of(records)["labels"]
    return [text for text in labels if found is None or text != f"SAMPLED: {sampled_text([found])}"]


def _digest_notes(members: list[Records]) -> list[str]:
    """Return a sentence on user-defined parts whose code may differ between the runs of a row."""
    names = sorted({name for records in members for name in parts_without_digest(records)})
    several = bool(names) and len(members) > 1
    return [f"the code of {', '.join(names)} has no source file and may differ between runs"] * several


def _flat(summary: dict) -> dict[str, float | None]:
    costs = {"bytes": summary["bytes"]["total"], "sim_time_s": summary["sim_time_s"]}
    energy = summary.get("energy")
    if energy is not None:
        costs |= {name: energy[name] for name in ENERGY}
    if "privacy" in summary:
        costs["epsilon"] = summary["privacy"]["epsilon"]["max"]
    return {**quality(summary), **costs}


def _target_costs(records: Records, target: Target | None) -> dict[str, float | None]:
    """Costs where the straight line between evaluations reaches the target; None: the scenario's target."""
    summary = summary_of(records)
    names = ("round", "bytes", "sim_time_s", *(ENERGY if "energy" in summary else ()))
    if target is None:
        return {f"target_{name}": summary["target"]["interpolated"].get(name) for name in names}
    metric = metric_of_measure(target.measure or records.metric, records)
    if metric.share and target.value > 1:
        cure = f"Write {target.value / 100:g} for {target.value:g} %."
        raise ScenarioError(f"compare: at {target.value:g}: expected a share, 0 to 1, of {metric.words}. {cure}")
    curve, costs = measure_of(records, target.measure), costs_of(records)
    cost_of = metrics.interpolated_cost_to_target
    return {
        f"target_{name}": cost_of(curve, costs[name], target.value, metric.falling) if name in costs else None
        for name in names
    }


def _numbers(runs: list[dict[str, float | None]]) -> dict[str, dict | None]:
    numbers: dict[str, dict | None] = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [value for run in runs if (value := run.get(name)) is not None]
        some = {} if len(values) == len(runs) else {"runs": len(values)}
        with np.errstate(invalid="ignore"):  # infinite ones, of runs that have diverged
            numbers[name] = {"mean": float(np.mean(values)), "std": _deviation(values), **some} if values else None
    return numbers


def _deviation(values: list[float]) -> float:
    """Return the population standard deviation; for equal values it is exactly 0, whatever the rounding of their
    sum.
    """
    return 0.0 if min(values) == max(values) else float(np.std(values))


def _differences(settings: Settings, siblings: list[Settings]) -> str:
    paths = [path for path in settings if any(other.get(path) != settings[path] for other in siblings)]
    return " ".join(f"{path.removeprefix('algorithm.')}={settings[path]}" for path in paths)
