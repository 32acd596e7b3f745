"""Figures as small JSON for the page's scripts: rounded, thinned by a stated rule, heat maps as packed whole numbers.

Rules of thinning, stated below each figure that they change:

- curves keep at most `Budget.points` evenly spaced points, the first and the last among them, and the lowest and the
    highest point of every line;
- heat maps keep at most `Budget.columns` columns and `Budget.cells` cells over all pictures: evenly spaced columns and
  pictures, the first and the last always.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddlsim.report.section import Figure, Heat, Lines, Series
from ddlsim.report.text import evenly_spaced

LEVELS = 65_534
"""Steps of a packed value between the least and the largest of its heat map."""


@dataclass(frozen=True)
class Budget:
    """Limits of the numbers of a figure.

    Args:
        points: most points of curves.
        numbers: most numbers of all curves of a figure, bands included.
        columns: most columns of a heat map.
        cells: most cells of all pictures of a heat map.
    """

    points: int = 400
    numbers: int = 12_000
    columns: int = 300
    cells: int = 120_000

    def smaller(self) -> "Budget":
        """Half of everything."""
        return Budget(*(max(8, number // 2) for number in (self.points, self.numbers, self.columns, self.cells)))


def encoded(figure: Figure, budget: Budget) -> tuple[dict[str, Any], list[str]]:
    """Return the figure for the page as plain JSON types, and a sentence on each omission."""
    if isinstance(figure, Heat):
        return _heat(figure, budget)
    remarks = [figure.note] if figure.note else []
    if isinstance(figure, Lines):
        found, notes = _lines(figure, budget)
        return found, remarks + notes
    values = [_numbers(row) for row in np.asarray(figure.values, dtype=float)]
    return vars(figure) | {"kind": "bars", "values": values, "spread": _numbers(np.asarray(figure.spread))}, remarks


def _lines(figure: Lines, budget: Budget) -> tuple[dict[str, Any], list[str]]:
    drawn = sum(1 if one.low is None else 3 for one in figure.series)
    most = max(8, min(budget.points, budget.numbers // max(1, drawn)))
    count, shared = len(figure.x[0].values), _shown_points(figure.series, len(figure.x[0].values), most)
    chosen_of = [shared if one.x is None else _shown_points([one], len(one.values), most) for one in figure.series]
    series = [_series(one, chosen) for one, chosen in zip(figure.series, chosen_of, strict=True)]
    found = vars(figure) | {
        "kind": "lines",
        "x": [{"name": axis.name, "unit": axis.unit, "values": _numbers(axis.values[shared], 7)} for axis in figure.x],
        "series": series,
        "marks": [vars(mark) for mark in figure.marks],
    }
    lengths = [(len(one.values), len(chosen)) for one, chosen in zip(figure.series, chosen_of, strict=True)]
    longest = max([(count, len(shared)), *lengths])
    if longest[0] == longest[1]:
        return found, []
    what = "points" if any(one.x is None for one in figure.series) else "points of the longest line"
    rule = "evenly spaced ones, and the lowest and the highest of every line"
    return found, [f"Shown are {longest[1]} of {longest[0]:,} {what}: {rule}."]


def _series(one: Series, chosen: np.ndarray) -> dict[str, Any]:
    arrays = {"values": one.values, "low": one.low, "high": one.high}
    numbers = {name: None if values is None else _numbers(values[chosen]) for name, values in arrays.items()}
    return vars(one) | numbers | {"x": None if one.x is None else [_numbers(values[chosen], 7) for values in one.x]}


def _shown_points(series: Sequence[Series], count: int, most: int) -> np.ndarray:
    if count <= most:
        return np.arange(count)
    chosen = set(evenly_spaced(count, most).tolist())
    for one in series:
        known = np.flatnonzero(np.isfinite(one.values))
        if len(known):
            chosen |= {int(known[one.values[known].argmin()]), int(known[one.values[known].argmax()])}
    return np.array(sorted(chosen))


def _numbers(values: np.ndarray, digits: int = 5) -> list[float | int | None]:
    """Round numbers to `digits` digits, and to whole numbers if these are exact; None for values that are not
    finite.
    """

    def rounded(value: float) -> float | int:
        return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.{digits}g}")

    return [rounded(value) if np.isfinite(value) else None for value in np.asarray(values, dtype=float).tolist()]


def _heat(figure: Heat, budget: Budget) -> tuple[dict[str, Any], list[str]]:
    rows, notes = len(figure.rows), []
    columns = np.arange(len(figure.columns))
    if not figure.square:
        most = min(budget.columns, max(8, budget.cells // max(1, rows * len(figure.frames))))
        columns = evenly_spaced(len(columns), most)
        if len(columns) < len(figure.columns):
            notes.append(f"Shown are {len(columns)} of {len(figure.columns):,} columns, evenly spaced.")
    frames = list(figure.frames)
    if figure.choose == "slider":
        chosen = evenly_spaced(len(frames), max(2, budget.cells // max(1, rows * len(columns))))
        if len(chosen) < len(frames):
            notes.append(f"The slider has {len(chosen)} of {len(frames):,} pictures, evenly spaced.")
        frames = [frames[i] for i in chosen]
    shared = _extent([frame.values for frame in frames]) if figure.choose == "slider" else None
    packed = [{"label": one.label, "unit": one.unit, **_packed(one.values[:, columns], shared)} for one in frames]
    names = [figure.columns[i] for i in columns.tolist()]
    return vars(figure) | {"kind": "heat", "frames": packed, "columns": names}, notes


def _extent(arrays: Sequence[np.ndarray]) -> tuple[float, float]:
    known = np.concatenate([values[np.isfinite(values)] for values in arrays])
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)


def _packed(values: np.ndarray, extent: tuple[float, float] | None) -> dict[str, Any]:
    """Values as whole numbers from 1 on, 0 for nothing, little-endian, base64; value = low + (number - 1) * step."""
    values = np.asarray(values, dtype=float)
    low, high = extent or _extent([values])
    known = np.isfinite(values)
    whole = high - low <= 253 and np.array_equal(values[known], np.round(values[known])) and low == round(low)
    step = 1.0 if whole else (high - low) / LEVELS or 1.0
    codes = np.zeros(values.shape, dtype="u1" if whole else "<u2")
    codes[known] = np.round((values[known] - low) / step) + 1
    data = base64.b64encode(codes.tobytes()).decode()
    return {"bits": 8 if whole else 16, "low": low, "step": step, "least": low, "most": high, "data": data}
