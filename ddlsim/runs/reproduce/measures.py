"""What a table can hold beside the accuracy: measures of a run by name, each a pure function of its summary.

Fairness as in metrics.py. `highest_fair_accuracy` looks at all evaluations of the run, as figure 5 of Biswas et al.,
"Fair Decentralized Learning" (SaTML 2025) does; everything else is of the last one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.report.summary import honest_part
from ddlsim.tasks import metrics

BYTES_PER_GB = 1e9


@dataclass(frozen=True)
class Measure:
    """One measure.

    Args:
        title: of its column, with the unit.
        value: (summary, run directory) -> the number, or None where the run has none.
        digits: decimals shown.
    """

    title: str
    value: Callable[[dict[str, Any], Path], float | None]
    digits: int = 2


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _at(*path: str, scale: float = 1.0, honest: bool = False) -> Callable[[dict[str, Any], Path], float | None]:
    """Return a measure that reads a number at a path of the summary, or of its part on honest nodes."""

    def value(summary: dict[str, Any], directory: Path) -> float | None:
        found: Any = honest_part(summary) if honest else summary
        for key in path:
            found = None if found is None else found.get(key)
        return None if found is None else found * scale

    return value


def _peeking(summary: dict[str, Any], directory: Path) -> float | None:
    """The accuracy with the head of lowest test loss; of a run with one model per node, its accuracy."""
    of = honest_part(summary)
    found = of.get("accuracy_lowest_test_loss") or of.get("accuracy") or {}
    return _percent(found.get("all"))


def _gb_per_node(summary: dict[str, Any], directory: Path) -> float | None:
    sent = summary["target"]["bytes"]
    return None if sent is None else sent / BYTES_PER_GB / summary["nodes"]


def _highest_fair_accuracy(summary: dict[str, Any], directory: Path) -> float | None:
    from ddlsim.report.reading import read

    records = read(directory)
    if not len(records.evaluations) or records.metric != "accuracy":
        return None
    per_cluster = metrics.over_clusters(records.evaluations.quality, records.node_cluster)
    fair = metrics.fair_accuracy(per_cluster[:, records.judged_clusters], records.fair_lambda)
    return None if np.isnan(fair).all() else 100 * float(np.nanmax(fair))


def _between_merges(kind: str) -> Callable[[dict[str, Any], Path], float | None]:
    """What cluster 0 has on its validation samples (its accuracy in percent; or a loss) before or after the merges of
    the last ten rounds in which there were any.
    """

    def value(summary: dict[str, Any], directory: Path) -> float | None:
        from ddlsim.report.reading import read
        from ddlsim.report.sections.peers import measured_at_merges, merge_quality

        records = read(directory)
        found = merge_quality(records)
        last = np.full(1, np.nan) if found is None else found[1][-10:, 0, int(kind == "after")]
        return None if np.isnan(last).all() else measured_at_merges(records).scale * float(np.nanmean(last))

    return value


MEASURES: dict[str, Measure] = {
    "fair_accuracy": Measure("fair accuracy %", _at("fair_accuracy", scale=100, honest=True)),
    "highest_fair_accuracy": Measure("highest fair accuracy %", _highest_fair_accuracy),
    "demographic_parity": Measure("demographic parity", _at("demographic_parity", honest=True), 4),
    "equalized_odds": Measure("equalized odds", _at("equalized_odds", honest=True), 4),
    "accuracy_peeking": Measure("accuracy %, head picked on the test set", _peeking),
    "heads_agreed": Measure("nodes with their cluster's head %", _at("settlement", "agreement", scale=100), 1),
    "heads_apart": Measure("runs whose clusters have different heads %", _at("settlement", "apart", scale=100), 0),
    "gb_per_node_to_target": Measure("GB per node to the target", _gb_per_node, 3),
    "rounds_to_target": Measure("rounds to the target", _at("target", "round"), 0),
    "before_merges": Measure("cluster 0, validation, before the last merges", _between_merges("before")),
    "after_merges": Measure("cluster 0, validation, after the last merges", _between_merges("after")),
}
"""Name in a matrix file -> measure."""


def measured(summary: dict[str, Any], directory: Path, names: tuple[str, ...]) -> dict[str, float | None]:
    """The values of a run.

    Args:
        summary: see report/summary.py.
        directory: the run's.
        names: of MEASURES.
    """
    return {name: MEASURES[name].value(summary, directory) for name in names}
