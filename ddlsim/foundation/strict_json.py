"""Write JSON as in RFC 8259, without infinities and NaN, for every file and output of ddlsim.

Rows of a run keep such numbers as texts, as Protocol Buffers do ("Infinity", "-Infinity", "NaN"), so that a reader
recognizes a run that has diverged. Summaries and tables, where null already means "no number", have null.

Also the writing of whole files.
"""

import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

NOT_FINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
"""Text in a row -> its number."""

_ROW = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


def row_text(value: Any) -> str:
    """Return one line of a JSON-lines file, without its newline; numbers that are not finite are texts."""
    try:
        return _ROW.encode(value)
    except ValueError:
        return _ROW.encode(mapped(value, _finite_or_text))


def table_text(value: Any, indent: int | None = None, separators: tuple[str, str] | None = None) -> str:
    """Return the text of a summary, manifest or table; numbers that are not finite are null.

    Args:
        value: plain values.
        indent, separators: as of json.dumps.
    """
    return json.dumps(strict(value), indent=indent, separators=separators, allow_nan=False)


def strict(value: Any) -> Any:
    """Replace numbers that are not finite by null."""
    return mapped(value, lambda leaf: leaf if _is_finite(leaf) else None)


def row_number(value: Any) -> Any:
    """Return a value of a row, with texts such as "Infinity" replaced by their number."""
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _is_finite(leaf: Any) -> bool:
    return not isinstance(leaf, float) or math.isfinite(leaf)


def _finite_or_text(leaf: Any) -> Any:
    if _is_finite(leaf):
        return leaf
    return "NaN" if math.isnan(leaf) else "Infinity" if leaf > 0 else "-Infinity"


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return plain values with every value that is no mapping, list or tuple changed; tuples become lists."""
    if isinstance(value, dict):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, change) for item in value]
    return change(value)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file to a draft and rename it, so that no reader sees half a file.

    Args:
        path: the file; its draft has .draft appended.
        content: of the file.
    Raises:
        OSError: if it cannot be written; no draft is left.
    """
    draft = path.with_name(f"{path.name}.draft")
    try:
        draft.write_bytes(content)
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
