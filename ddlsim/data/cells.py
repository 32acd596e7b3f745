"""Columns of cells: one rule decides for all data read as text whether a column holds numbers or words.

A column is never read as words because of a few odd cells, nor as numbers that it only resembles: such a cell raises an
error with its column and row.
"""

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from ddlsim.foundation.errors import DataDamaged

FEW_VALUES = 20
"""A column of numbers and words with more different values than this is one of numbers."""
RARE = 0.1
"""A share of cells up to this is odd, not another kind of value."""
NUMBER_LIKE = {
    r"[+-]?\d{1,3},\d{3}": "a number with a decimal comma or a thousands separator",
    r"[+-]?\d*,\d+": "a number with a decimal comma",
    r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?|[+-]?\d{1,3}([ .'_]\d{3})+(,\d+)?": "a number with thousands separators",
    r"[+-]?[\d.,]+ ?%": "a percentage",
    r"[$€£¥] ?[\d.,]+|[\d.,]+ ?[$€£¥]": "an amount of money",
    r"(\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{2,4})([ T].*)?": "a date",
    r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?": "a time",
}
"""Pattern -> description of a cell that matches."""


def numbers_of(cells: Sequence[str], missing: Set[str] = frozenset()) -> np.ndarray | None:
    """A column as float64, nan where empty or `missing`; None if it holds words, such as 18_25, which Python would read
    as 1825.
    """
    found = [np.nan if not cell or cell in missing else _number(cell) for cell in cells]
    if None in found or all(value != value for value in found if value is not None):
        return None
    return np.array(found, np.float64)


def refuse_odd_cells(
    where: str, name: str, cells: Sequence[str], cure: str, missing: Set[str] = frozenset(), always: bool = False
) -> str | None:
    """Check that a column is one of numbers or one of words.

    Args:
        where: the file or data set, for messages.
        name: name of the column.
        cells: as text; empty where missing.
        cure: advice for an intended column of this kind, a sentence.
        missing: further texts of empty cells.
        always: whether any cell that is not a number is odd.
    Returns:
        A note on an accepted column, or None.
    Raises:
        DataDamaged: if a cell is odd.
    """
    known = {row: cell for row, cell in enumerate(cells, 1) if cell and cell not in missing}
    odd = {row: cell for row, cell in known.items() if _number(cell) is None}
    if not odd:
        return None
    kinds = {row: kind for row, cell in odd.items() if (kind := _likeness(cell))}
    numbers, values = len(known) - len(odd), len(set(known.values()))
    rare = len(odd) == 1 or len(odd) <= RARE * len(known) or values > FEW_VALUES
    if always or (2 * (numbers + len(kinds)) > len(known) and (kinds or rare)):
        row = next(iter(odd))
        like = f", {kinds[row]}" if row in kinds else ""
        raise DataDamaged(
            f"{where}: column {name}, row {row}: expected a number, as in {numbers} of {len(known)} cells, got "
            f"{odd[row]!r}{like} ({len(odd)} such cells). Write numbers as 1234.5 and leave a missing one empty. {cure}"
        )
    if numbers:
        return f"column {name} of {where} has numbers and words ({next(iter(odd.values()))!r}); all are taken as words"
    if values >= 10 and 2 * values > len(known):
        return f"column {name} of {where} has {values} different words in {len(known)} rows, each a feature"
    return None


def odd_cell(array: np.ndarray, names: Any = None) -> str:
    """Return the place of the first cell of an array [N, F] or [N] of objects or texts that is not a number; empty if
    none.
    """
    for place, value in np.ndenumerate(array if array.ndim else array[None][:0]):
        if isinstance(value, str) or not isinstance(value, int | float | np.number):
            column = "" if len(place) < 2 else f", column {names[place[1]] if names is not None else place[1]}"
            return f" (row {place[0]}{column}: {str(value)!r:.60})"
    return ""


def as_cells(values: Sequence[Any]) -> list[str]:
    """Return the values of a column as cells; a missing value is empty."""
    return ["" if value is None else str(value).strip() for value in values]


def numbers_in_columns(where: str, columns: Mapping[str, Sequence[Any]], cure: str) -> list[np.ndarray]:
    """Return columns as float64, one number per row.

    Raises:
        DataDamaged: if a cell is not a number; names its place.
    """
    found = []
    for name, values in columns.items():
        cells = as_cells(values)
        refuse_odd_cells(where, name, cells, cure, always=True)
        if "" in cells:
            raise DataDamaged(
                f"{where}: column {name}, row {cells.index('') + 1}: expected a number, got nothing. {cure}"
            )
        found.append(np.array([float(cell) for cell in cells]))
    return found


def _number(cell: str) -> float | None:
    """Return a cell as a number, or None if it is not a number."""
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def _likeness(cell: str) -> str:
    """Return the kind of number that a cell resembles without being one; empty if none."""
    return next((kind for pattern, kind in NUMBER_LIKE.items() if re.fullmatch(pattern, cell)), "")
