"""Columns of a comparison: their choice, units and decimals, and which values are best."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.comparing.curves import LEAST_RUNS, quantile_975
from ddlsim.report.comparing.rows import COSTS, ENERGY, FALLBACK, Row
from ddlsim.report.text import UNITS, unit_of
from ddlsim.tasks.base import ACCURACY

WORDS: dict[str, Callable[[Row], str]] = {
    "scenario": lambda row: row.scenario,
    "algorithm": lambda row: f"{row.algorithm} {row.settings}".strip(),
    "setting": lambda row: row.setting,
    "data": lambda row: row.data,
    "seeds": lambda row: str(len(row.seeds)),
    "round": lambda row: f"{row.ended or '-'}" + ("" if row.status == "done" else f" {row.status}"),
}
"""Columns without numbers, and their text."""
LEFT = ("scenario", "algorithm", "setting", "data")
"""Left-aligned columns."""
COST_NAMES = {"bytes": "bytes", "time": "sim_time_s", "energy": "joules", "co2": "gco2", "epsilon": "epsilon"}
TARGET_NAMES = {"target_round": "target_round"} | {
    f"target_{name}": f"target_{key}" for name, key in COST_NAMES.items()
}
KINDS = {"bytes": "bytes", "sim_time_s": "seconds", "joules": "joules", "gco2": "grams"}
TITLES = {"time": "sim time", "co2": "CO2e", "target_co2": "CO2e to target"}
MOST_DIGITS = 6


@dataclass(frozen=True)
class Column:
    """A number of every row.

    Args:
        key: its name in `Row.numbers`.
        title: with its unit.
        size: the unit, in the number's own.
        digits: decimals.
        best: min or max; None if no value is better than another.
        spread: whether rows of several runs show their deviation.
    """

    key: str
    title: str
    size: float
    digits: int
    best: Callable | None
    spread: bool

    def of(self, row: Row) -> tuple[str, str, str]:
        """Return mean, deviation (empty if not shown) and remark of a row: the published number, and the number of runs
        with a value if some runs have none.
        """
        number, to_target = row.numbers.get(self.key), self.key.startswith("target")
        counted = self.key.removeprefix("target_")
        if to_target and row.target is not None and not row.reached and row.ended:
            return "not reached" if counted not in ENERGY or row.numbers.get(counted) else "-", "", ""
        remark = ""
        if self.key in row.published and not row.data.endswith(FALLBACK):
            remark = f" [{self._text(row.published[self.key])}]"
        if number is None:
            return "-", "", remark
        runs = number.get("runs", len(row.seeds))
        remark += f" ({runs}/{len(row.seeds)})" if "runs" in number else ""
        return self._text(number["mean"]), self._text(number["std"]) if self.spread and runs > 1 else "", remark

    def is_best(self, row: Row, rows: Sequence[Row]) -> bool:
        """Whether no row has a better mean as it is shown."""
        best = self.winner(rows)
        return best is not None and row in self._known(rows) and self.of(row)[0] == self.of(best[0])[0]

    def winner(self, rows: Sequence[Row]) -> tuple[Row, bool] | None:
        """Return the row with the best mean, and whether this mean differs from every other row's by Welch's t-test, at
        5 % (two-sided) and with at least three runs each; None with fewer than two rows.
        """
        known = self._known(rows)
        if self.best is None or len(known) < 2:
            return None
        best = self.best(known, key=lambda row: row.numbers[self.key]["mean"])
        return best, len(known) == len(rows) and all(self._differ(best, row) for row in known if row is not best)

    def _known(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows with a finite mean; of a cost to the target those whose runs all reached it."""
        whole = [row for row in rows if not self.key.startswith("target") or row.reached == len(row.seeds)]
        return [row for row in whole if (number := row.numbers.get(self.key)) and math.isfinite(number["mean"])]

    def _differ(self, *rows: Row) -> bool:
        """Whether two means differ by Welch's t-test, with the degrees of freedom rounded down."""
        numbers = [row.numbers[self.key] or {} for row in rows]
        free = [number.get("runs", len(row.seeds)) - 1 for number, row in zip(numbers, rows, strict=True)]
        if min(free) < LEAST_RUNS - 1:
            return False
        apart = abs(numbers[0]["mean"] - numbers[1]["mean"])
        errors = [number["std"] ** 2 / n for number, n in zip(numbers, free, strict=True)]
        if not sum(errors):
            return apart > 0
        freedom = sum(errors) ** 2 / sum(error**2 / n for error, n in zip(errors, free, strict=True))
        return apart > quantile_975(int(freedom)) * sum(errors) ** 0.5

    def _text(self, value: float) -> str:
        return "-" if math.isnan(value) else f"{value / self.size:.{self.digits}f}"


def words_and_columns(
    rows: Sequence[Row], by_keys: bool, chosen: Sequence[str] | None = None, units: Sequence[str] = ()
) -> tuple[list[str], list[Column]]:
    """Return the columns of words and of numbers.

    Args:
        rows: at least one.
        by_keys: whether the user chose the keys that separate rows; their values then replace scenario and algorithm.
        chosen: names of columns, in their order; the setting always comes first. None: all that rows have and,
            of words, those that differ between rows.
        units: one for each kind of number, such as GB or s; others have the unit of the largest mean.
    Raises:
        ScenarioError: if a column or a unit is unknown.
    """
    known = [name for kind in UNITS.values() for _, name in kind]
    for unit in units:
        if unit not in known:
            raise ScenarioError(f"--units {unit}: unknown unit. Known: {', '.join(known)}.")
    numbers = columns_of(rows, units)
    if chosen is not None:
        by_name = numbers | {column.key: column for column in numbers.values()}
        for name in chosen:
            if name not in by_name and name not in WORDS:
                raise ScenarioError(f"--columns {name}: unknown column. Known: {', '.join([*WORDS, *numbers])}.")
        words = ["setting", *(name for name in chosen if name in WORDS and name != "setting")]
        return words, [by_name[name] for name in chosen if name in by_name]
    words = ["setting"] if by_keys else ["scenario", "algorithm"]
    common = common_words(rows)
    return [name for name in (*words, "data", "seeds", "round") if name not in common], list(numbers.values())


def common_words(rows: Sequence[Row]) -> dict[str, str]:
    """Return scenario, data, number of seeds and last round, as far as several rows have the same."""
    names = ("scenario", "data", "seeds", "round") if len(rows) > 1 else ()
    return {name: WORDS[name](rows[0]) for name in names if len({WORDS[name](row) for row in rows}) == 1}


def columns_of(rows: Sequence[Row], units: Sequence[str] = ()) -> dict[str, Column]:
    """Return the columns that the rows have, by their names."""
    most, found = max(row.num_clusters for row in rows), {}
    judged = sorted(dict.fromkeys(row.judged_by for row in rows), key=lambda metric: metric != ACCURACY)
    for metric in judged:
        form, best = (1 / metric.scale, 2 if metric.share else metric.digits), min if metric.falling else max
        title = metric.name.replace("_", " ") + " (%)" * metric.share
        found[metric.name] = Column(f"{metric.name}_all", title, *form, best, True)
        if most < 2:
            continue
        for cluster in range(most):
            name = f"cluster_{cluster}" if len(judged) == 1 else f"{metric.name}_{cluster}"
            title = f"cluster {cluster}" if len(judged) == 1 else f"{metric.column} {cluster}"
            found[name] = Column(f"{metric.name}_{cluster}", title, *form, best, True)
        if any(row.judged_by == metric and row.has_fairness for row in rows):
            found["fair_accuracy"] = Column("fair_accuracy", "fair acc (%)", 0.01, 2, max, True)
            found["demographic_parity"] = Column("demographic_parity", "DP", 1, 4, min, True)
            found["equalized_odds"] = Column("equalized_odds", "EO", 1, 4, min, True)
    for name, key in (COST_NAMES | TARGET_NAMES).items():
        counted = key.removeprefix("target_")
        if counted not in (*ENERGY, "epsilon") or any(row.numbers.get(counted) for row in rows):
            found[name] = _cost(name, key, rows, units)
    return found


def _cost(name: str, key: str, rows: Sequence[Row], units: Sequence[str]) -> Column:
    """Return the column of a cost, with three digits of its largest mean and two of its smallest."""
    numbers = [number for row in rows if (number := row.numbers.get(key))]
    means = np.array([number["mean"] for number in numbers])
    target, counted = key.startswith("target_"), key.removeprefix("target_")
    title = TITLES.get(name, name.removeprefix("target_") + " to target" * target)
    best, spread = (min if target else None), any(number["std"] for number in numbers)
    if counted not in KINDS:
        digits, spread = (1, spread) if counted == "round" else (2, spread and counted not in COSTS)
        return Column(key, title, 1, digits, best, spread)
    kind = KINDS[counted]
    unit, size = unit_of(kind, [means])  # type: ignore[arg-type]
    unit, size = next(((each, value) for value, each in UNITS[kind] if each in units), (unit, size))
    shown = np.abs(means[np.isfinite(means) & (means != 0)]) / size
    digits = max(2 - math.floor(math.log10(shown.max())), 1 - math.floor(math.log10(shown.min()))) if len(shown) else 0
    return Column(key, f"{title} ({unit})", size, 0 if unit == "B" else min(MOST_DIGITS, max(0, digits)), best, spread)
