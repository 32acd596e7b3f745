"""The keys of a matrix file: a sweep whose cells have published numbers; sweeps/axes.py has the grammar.

    source: paper and number of the table
    seeds: [1, 2, 3]
    scenario: {extends: ..., ...}
    axes:
      similarity:
        l2: {algorithm: {similarity: inverse_l2}}
      merge:
        fedavg: {algorithm: {merge: fedavg}}
    cells:
      l2/fedavg: {scenario: {algorithm: {tau: 19}}, published: {mean: 21.10, std: 2.51}}
      oracle: {scenario: {algorithm: {name: oracle}}, published: {mean: 9.43, std: 0.33}}
    measures: [fair_accuracy]                further columns, see MEASURES; published: {measures: ...}
    shapes:                                  claims of a figure without numbers, checked on our means
      - {claim: the oracle is best, order: [oracle, l2/fedavg]}

A cell's scenario overrides the values in its name; a cell whose name is not a combination of values has only its
scenario. Accuracies are in percent, as in published tables.

A table can hold other measures than accuracy by name, each a pure function of a run's summary. Fairness as in
metrics.py. `highest_fair_accuracy` looks at all evaluations of the run, as figure 5 of Biswas et al., "Fair
Decentralized Learning" (SaTML 2025) does; everything else is of the last one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, MinLen
from pydantic import AfterValidator, Field, model_validator

from ddlsim.report.reading import read
from ddlsim.report.summary import honest_part
from ddlsim.runs.sweeps.axes import GridKeys, Seeds
from ddlsim.scenario.sections import Section
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


def _at(*path: str, scale: float = 1.0, honest: bool = False) -> Callable[[dict[str, Any], Path], float | None]:
    """Return a measure that reads a number at a path of the summary, or of its part on honest nodes."""

    def value(summary: dict[str, Any], directory: Path) -> float | None:
        found: Any = honest_part(summary) if honest else summary
        for key in path:
            found = None if found is None else found.get(key)
        return None if found is None else found * scale

    return value


def _seconds_per_round(summary: dict[str, Any], directory: Path) -> float | None:
    """Return the mean duration of rounds in the second half of the run, in which overlapping traffic is steady."""
    table = summary["timetable"] or []
    if len(table) < 2:
        return None
    first, last = table[len(table) // 2 - 1], table[-1]
    return (last["last_s"] - first["last_s"]) / (last["round"] - first["round"])


def _computing_s(summary: dict[str, Any], directory: Path) -> float:
    """Return the seconds of the slowest node's local steps in a round."""

    return read(directory).scenario["training"]["local_steps"] * summary["step_times"]["step_s"][-1]


def _waiting_s(summary: dict[str, Any], directory: Path) -> float | None:
    seconds = _seconds_per_round(summary, directory)
    return None if seconds is None else seconds - _computing_s(summary, directory)


def _compute_utilization(summary: dict[str, Any], directory: Path) -> float | None:
    seconds = _seconds_per_round(summary, directory)
    return None if seconds is None else 100 * _computing_s(summary, directory) / seconds


def _peeking(summary: dict[str, Any], directory: Path) -> float | None:
    """Return the accuracy with the head of lowest test loss, or the accuracy if each node has one model."""
    of = honest_part(summary)
    found = (of.get("accuracy_lowest_test_loss") or of.get("accuracy") or {}).get("all")
    return None if found is None else 100 * found


def _gb_per_node(summary: dict[str, Any], directory: Path) -> float | None:
    sent = summary["target"]["bytes"]
    return None if sent is None else sent / BYTES_PER_GB / summary["nodes"]


def _mb_per_node(summary: dict[str, Any], directory: Path) -> float:
    return summary["bytes"]["total"] / 1e6 / summary["nodes"]


def _highest_fair_accuracy(summary: dict[str, Any], directory: Path) -> float | None:

    records = read(directory)
    if not len(records.evaluations) or records.metric != "accuracy":
        return None
    per_cluster = metrics.over_clusters(records.evaluations.quality, records.node_cluster)
    fair = metrics.fair_accuracy(per_cluster[:, records.judged_clusters], records.fair_lambda)
    return None if np.isnan(fair).all() else 100 * float(np.nanmax(fair))


def _between_merges(kind: str) -> Callable[[dict[str, Any], Path], float | None]:
    """Return a measure: cluster 0's accuracy in percent, or loss, on validation samples before or after merges, in the
    last ten rounds with merges.
    """

    def value(summary: dict[str, Any], directory: Path) -> float | None:
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
    "seconds_to_target": Measure("simulated seconds to the target", _at("target", "interpolated", "sim_time_s"), 0),
    "simulated_s": Measure("simulated seconds", _at("sim_time_s"), 1),
    "mb_per_node": Measure("MB sent per node", _mb_per_node, 1),
    "rounds_to_target": Measure("rounds to the target", _at("target", "round"), 0),
    "waiting_s_per_round": Measure("seconds per round without computation", _waiting_s, 3),
    "compute_utilization": Measure("compute utilization %", _compute_utilization),
    "before_merges": Measure("cluster 0, validation, before the last merges", _between_merges("before")),
    "after_merges": Measure("cluster 0, validation, after the last merges", _between_merges("after")),
}
"""Name in a matrix file -> measure."""


def measured(summary: dict[str, Any], directory: Path, names: tuple[str, ...]) -> dict[str, float | None]:
    """Return the measures of a run.

    Args:
        summary: see report/summary.py.
        directory: the run's.
        names: of MEASURES.
    """
    return {name: MEASURES[name].value(summary, directory) for name in names}


Place = str | Annotated[tuple[str, ...], MinLen(1)]
Verdict = Literal["holds", "does not hold", "no value", "not run"]


def _known_measure(name: str) -> str:
    if name not in MEASURES:
        raise ValueError(f"expected one of {', '.join(MEASURES)}")
    return name


MeasureName = Annotated[str, AfterValidator(_known_measure)]


class Shape(Section):
    """One claim of the paper; exactly one of `order` and `near` is given.

    Args:
        claim: statement of the figure or the text.
        order: cells from the highest value to the lowest; a list of cells in the place of one: these in any order.
        margin: by how much each must be above the next at least; below 0: how far under it it may be.
        near: cells whose values lie within `within` of each other.
        within: see `near`.
        of: compared value. null: the mean; a number: the cluster, from 0; a name: the measure.
    """

    claim: str
    order: Annotated[tuple[Place, ...], MinLen(2)] | None = None
    margin: float = 0.0
    near: Annotated[tuple[str, ...], MinLen(2)] | None = None
    within: Annotated[float, Ge(0)] = 0.0
    of: int | str | None = None

    @model_validator(mode="after")
    def _one_of_two(self) -> "Shape":
        if (self.order is None) == (self.near is None):
            raise ValueError("expected either order or near")
        return self

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells in the claim."""
        return tuple(chain(*map(_listed, self.order or self.near or ())))

    def judge(self, values: Mapping[str, float | None]) -> Verdict:
        """Return whether the values of cells are as claimed.

        Args:
            values: cell that has been run -> the value that is compared; None: it has none (a target never reached,
                a run that diverged).
        """
        if any(cell not in values for cell in self.cells):
            return "not run"
        found = {cell: value for cell in self.cells if (value := values[cell]) is not None}
        if len(found) < len(self.cells):
            return "no value"
        if self.order:
            places = [[found[cell] for cell in _listed(place)] for place in self.order]
            holds = all(min(above) >= max(below) + self.margin for above, below in pairwise(places))
        else:
            holds = max(found.values()) - min(found.values()) <= self.within
        return "holds" if holds else "does not hold"


def _listed(place: Place) -> tuple[str, ...]:
    return (place,) if isinstance(place, str) else place


class PublishedMeasure(Section):
    """A published value with its deviation.

    Args:
        mean: over the seeds.
        std: of that mean; null: not published.
    """

    mean: float
    std: Annotated[float, Ge(0)] | None = None


class Published(Section):
    """Published numbers of one cell; accuracies in percent. Each may be missing.

    Args:
        mean: over the seeds.
        std: of that mean, see `spread`; null: not published.
        clusters: the mean of each cluster; null: of this one it is not published.
        clusters_std: their deviations.
        measures: measure -> its value, or its {mean, std}.
    """

    mean: float | None = None
    std: Annotated[float, Ge(0)] | None = None
    clusters: tuple[float | None, ...] | None = None
    clusters_std: tuple[Annotated[float, Ge(0)] | None, ...] | None = None
    measures: dict[MeasureName, float | PublishedMeasure] = Field(default_factory=dict)

    def measure(self, name: str) -> PublishedMeasure | None:
        """Return the published value of a measure, or None."""
        found = self.measures.get(name)
        return PublishedMeasure(mean=found) if isinstance(found, int | float) else found


class CellFile(Section):
    """Keys of one cell.

    Args:
        scenario: its own settings.
        seeds: in place of the matrix's.
        published: the number to meet; null: none is known.
        note: a remark, shown under the table.
        outside: known reason why our number lies outside two published deviations.
    """

    scenario: dict[str, Any] = Field(default_factory=dict)
    seeds: Seeds | None = None
    published: Published | None = None
    note: str = ""
    outside: str = ""


class MatrixFile(GridKeys):
    """The file; keys of a sweep have the same meaning here.

    Args:
        source: origin of the published numbers.
        seeds: seeds of every cell.
        note: a remark under the table.
        not_run: reason why cells have not been run, for the overview of all tables.
        average: units of a mean: all nodes, or the clusters with equal weights.
        spread: units of the standard deviation: seeds, or the clusters or nodes of one run (mean over seeds).
        cells: name -> cell.
        measures: further columns, see MEASURES.
        shapes: claims of figures.
        common_distance: whether the table states the distance of all cells from the published ones, see result.py.
    """

    source: str
    note: str = ""
    not_run: str = ""
    seeds: Seeds
    average: Literal["nodes", "clusters"] = "nodes"
    spread: Literal["seeds", "clusters", "nodes"] = "seeds"
    cells: Annotated[dict[str, CellFile], MinLen(1)]
    measures: tuple[MeasureName, ...] = ()
    shapes: tuple[Shape, ...] = ()
    common_distance: bool = False
