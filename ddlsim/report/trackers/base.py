"""Interface of trackers of experiments: a tracker takes the description of a run, each evaluation, and the run's
end.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ddlsim.report.columns import rounds
from ddlsim.report.comparing.groups import settings_of
from ddlsim.report.summary import honest_part

if TYPE_CHECKING:
    from ddlsim.report.records import Records

Scalar = str | int | float | bool


@dataclass(frozen=True)
class About:
    """Description of a run.

    Args:
        directory: of the run.
        project: name under which runs are collected.
        group: runs of one scenario.
        name: of this run: algorithm and seed.
        config: dotted key of the scenario -> value; lists and null are JSON text.
    """

    directory: Path
    project: str
    group: str
    name: str
    config: dict[str, Scalar]


@dataclass(frozen=True)
class Point:
    """Measurements of an evaluation.

    Args:
        round: rounds completed.
        values: time_s (simulated), bytes (of all nodes); per metric its mean over nodes (accuracy), the standard
            deviation over nodes (accuracy_std) and the mean of each cluster (accuracy_0, ...); fair_accuracy. Only
            finite ones.
    """

    round: int
    values: dict[str, float]


class Tracker(Protocol):
    """Writes one run to one tool; its exceptions end the tracker and not the run."""

    def begin(self, about: About) -> None:
        """Before the first point."""

    def point(self, point: Point) -> None:
        """After an evaluation; rounds grow."""

    def end(self, summary: dict[str, Any]) -> None:
        """After the last point; the summary as in summary.json."""


def about_run(directory: Path, scenario: dict[str, Any], project: str | None = None) -> About:
    """Return the description of a run from its resolved scenario."""
    algorithm = str((scenario.get("algorithm") or {}).get("name"))
    label = algorithm.rpartition(":")[2] or algorithm
    name = str(scenario.get("name"))
    return About(directory, project or "ddlsim", name, f"{label}-s{scenario.get('seed', 0)}", settings_of(scenario))


def points(records: "Records") -> Iterator[Point]:
    """The evaluations of a run; of a network-only run its rounds."""
    columns = rounds(records)
    for index, completed in enumerate(columns["round"].tolist()):
        found = {name: float(column[index]) for name, column in columns.items() if name != "round"}
        yield Point(completed, {name: value for name, value in found.items() if math.isfinite(value)})


def ended_with(summary: dict[str, Any]) -> dict[str, float]:
    """The numbers of a summary that a table of runs shows: final values (of honest nodes), costs, cost to target."""
    target = summary.get("target") or {}
    metric = summary["metric"]
    found = {
        f"final_{metric}": (honest_part(summary).get(metric) or {}).get("all"),
        "total_bytes": summary["bytes"]["total"],
        "sim_time_s": summary["sim_time_s"],
        "wall_s": summary["wall_s"],
        "total_joules": (summary.get("energy") or {}).get("joules"),
        **{f"target_{name}": target.get(name) for name in ("round", "bytes", "sim_time_s", "joules")},
    }
    return {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}
