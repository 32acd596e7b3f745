"""What an algorithm records, as metrics.jsonl can hold it."""

import sys
from collections.abc import Collection, Mapping
from typing import Any

from ddlsim.errors import DdlsimError
from ddlsim.tasks.metric import KNOWN, ROWS, rows_of

WRITTEN = ROWS | rows_of(KNOWN.values())
"""Names of rows that the simulator writes in one run or another, and reports read."""


LARGEST = sys.float_info.max
"""Readers of metrics.jsonl take numbers as float64."""


def refuse_written(name: str, measured: Collection[str]) -> None:
    """Raises DdlsimError for a name under which reports would take a row for the simulator's.

    Args:
        name: of the row.
        measured: the rows of the run's metrics.
    """
    if type(name) is not str:
        raise DdlsimError(f"node.record: expected a text as the name of the rows, got {name!r}.")
    if name in WRITTEN or name in measured:
        raise DdlsimError(
            f"node.record: {name}: the simulator writes rows of this name, from which reports have their figures. "
            f"Choose another one, such as train_{name}."
        )


def plain(name: str, value: Any) -> Any:
    """A value of JSON: NumPy's and torch's scalars as Python's numbers, arrays and tensors as lists.

    Args:
        name: of the rows, for the error's text.
        value: what is to be recorded.
    Raises:
        DdlsimError: something else.
    """
    if type(value) is int and not -LARGEST <= value <= LARGEST:
        raise DdlsimError(
            f"node.record: {name}: expected a number up to {LARGEST:g}, got an integer of {value.bit_length()} bits."
        )
    if value is None or type(value) in (bool, int, float, str):  # nearly always
        return value
    if hasattr(value, "tolist"):  # arrays and tensors of whatever size
        value = value.tolist()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [plain(name, each) for each in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: plain(name, each) for key, each in value.items()}
    call = "; call it for its value" if callable(value) else ""
    raise DdlsimError(
        f"node.record: {name}: expected a number, a text, a truth value, None, or arrays, lists and mappings (with "
        f"texts as keys) of them, got a {type(value).__name__}{call}."
    )
