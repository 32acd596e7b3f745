"""Numbers and tables as text: readable units, aligned columns, and selections of numbers if there is no room for
all.
"""

import csv
import io
import json
import math
import re
import shutil
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ddlsim.report.section import Unit

BYTES = (1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB")
JOULES = (1e-3, "mJ"), (1.0, "J"), (1e3, "kJ"), (1e6, "MJ"), (1e9, "GJ"), (1e12, "TJ")
RATES = (1.0, "bit/s"), (1e3, "kbit/s"), (1e6, "Mbit/s"), (1e9, "Gbit/s"), (1e12, "Tbit/s")
GRAMS = (1e-3, "mg"), (1.0, "g"), (1e3, "kg"), (1e6, "t")
FLOPS = (1.0, "FLOP"), (1e3, "kFLOP"), (1e6, "MFLOP"), (1e9, "GFLOP"), (1e12, "TFLOP"), (1e15, "PFLOP")
SHORT_SECONDS = (1e-3, "ms"), (1.0, "s")
SECONDS = *SHORT_SECONDS, (60.0, "min"), (3600.0, "h"), (86400.0, "d")
UNITS = {"bytes": BYTES, "seconds": SECONDS, "joules": JOULES, "grams": GRAMS}
DEFAULT_WIDTH = 100
"""Characters of a line of output that is not a terminal, unless COLUMNS is set."""


def prefixed(value: float | None, units: Sequence[tuple[float, str]]) -> str:
    """Return a value that is not below 0 with three digits, in the largest unit of which it has one whole."""
    if value is None or math.isnan(value):
        return "-"
    size, name = next((unit for unit in reversed(units) if abs(value) >= 0.9995 * unit[0]), units[0])
    if not value:
        size, name = next(unit for unit in units if unit[0] == 1)
    digits = ".3g" if abs(value) < 99.95 * size and (size, name) != BYTES[0] else ".0f"
    return f"{value / size:{digits}} {name}"


def bytes_text(count: float | None) -> str:
    """Bytes in decimal units, e.g. `9.8 GB`."""
    return prefixed(count, BYTES)


def joules_text(joules: float | None) -> str:
    """Joules with a decimal prefix, e.g. `3.6 MJ`; see docs/energy.md for kWh."""
    return prefixed(joules, JOULES)


def grams_text(grams: float | None) -> str:
    """A mass in the unit that is read best, e.g. `4.2 kg`."""
    return prefixed(grams, GRAMS)


def unit_of(unit: Unit | Literal["grams"], values: Sequence[np.ndarray]) -> tuple[str, float]:
    """Return the unit in which an axis of these values is read best, and its size."""
    if unit in ("number", "count"):
        return "", 1.0
    if unit == "percent":
        return "%", 0.01
    known = np.concatenate([np.ravel(each) for each in values] or [np.zeros(0)])
    largest = max(known[np.isfinite(known)], default=0.0)
    units, factor = [each for each in UNITS[unit] if each[0] >= 1], 2 if unit == "seconds" else 1
    size, name = next((each for each in reversed(units) if largest >= factor * each[0]), units[0])
    return name, size


def seconds_text(seconds: float | None) -> str:
    """A duration in its two largest units, e.g. `1h02m`, `6m20s`, `12.3s`, `0.412s`."""
    if seconds is None or math.isnan(seconds):
        return "-"
    if seconds < 0.9995:
        return f"{seconds:.3g}s"
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d{hours % 24:02d}h"


def percent_text(share: float | None) -> str:
    """A share as percent with two decimals, without the sign, e.g. `73.31`."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.2f}"


def number_text(value: float | None, digits: int = 4) -> str:
    """A number with fixed decimals, `-` for none."""
    return "-" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def json_text(value: object) -> str:
    """Return a value of a scenario or a manifest: text unchanged, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def terminal_width() -> int:
    """Return the characters of a line: COLUMNS, else the terminal's, else `DEFAULT_WIDTH`."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, width: int | None = None) -> str:
    """A table as aligned plain text.

    Args:
        header: column titles; an empty list for none.
        rows: cells, as many per row as titles.
        left: number of columns from the left that are aligned left; the others are aligned right.
        width: characters of a line; a wider table is split into blocks of columns, each with the left ones. None: any.
    """
    lines = [*([list(header)] if header else []), *map(list, rows)]
    if not lines:
        return ""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    sides = ["<" if i < left else ">" for i in range(len(widths))]
    cells = [[f"{cell:{side}{w}}" for cell, side, w in zip(line, sides, widths, strict=True)] for line in lines]
    if header:
        cells.insert(1, ["-" * w for w in widths])
    blocks, used = [list(range(left))], sum(widths[:left]) + 2 * left
    for i in range(left, len(widths)):
        if width is not None and used + widths[i] > width and len(blocks[-1]) > left:
            blocks.append(list(range(left)))
            used = sum(widths[:left]) + 2 * left
        blocks[-1].append(i)
        used += widths[i] + 2
    return "\n\n".join("\n".join("  ".join(line[i] for i in block).rstrip() for line in cells) for block in blocks)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table as GitHub markdown; `left` as in `columns`."""
    rule = ["---" if i < left else "---:" for i in range(len(header))]
    lines = [header, rule, *rows]
    return "\n".join(
        "| " + " | ".join(" ".join(cell.split()).replace("|", r"\|") for cell in line) + " |" for line in lines
    )


_LATEX_NAMES = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater"}
_LATEX = str.maketrans(
    {char: f"\\text{name}{{}}" for char, name in _LATEX_NAMES.items()}
    | {char: f"\\{char}" for char in "&%$#_{}"}
    | {"±": r"$\pm$"}
)


def latex_text(text: str) -> str:
    """Text without LaTeX commands, on one line."""
    return " ".join(text.split()).translate(_LATEX)


def latex(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table of LaTeX cells below a header of text, for the package booktabs; `left` as in `columns`."""
    lines = [" & ".join(line) + r" \\" for line in (map(latex_text, header), *rows)]
    begin = rf"\begin{{tabular}}{{{'l' * left + 'r' * (len(header) - left)}}}"
    return "\n".join([begin, r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"])


def comma_separated(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table as CSV; None gives an empty cell. Text that a spreadsheet would run as a formula gets a `'` before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_cell, header))
    writer.writerows(map(_cell, row) for row in rows)
    return out.getvalue().rstrip("\n")


_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Characters that a spreadsheet takes for the start of a formula, or skips before one."""


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return "" if value is None else value
    value = value.replace("\r\n", "\n").replace("\r", "\n")  # csv quotes no lone \r, which would begin a new row
    return f"'{value}" if value.startswith(_FORMULA) else value


def printable(text: str) -> str:
    """Text for a terminal: control characters that it would obey, but for new lines and tabs, as `\\x1b`."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda found: f"\\x{ord(found[0]):02x}", text)


def evenly_spaced(count: int, most: int) -> np.ndarray:
    """Return at most `most` of the numbers 0 .. count-1, evenly spaced, including the first and the last; int,
    ascending.
    """
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def sampled_text(found: Sequence[tuple[int, int, float | None]]) -> str:
    """Return a note on the samples that runs were tested on.

    Args:
        found: tested samples, all samples and error (see summary.py) of each run, at least one.
    """
    few, total = min(pair[:2] for pair in found)
    errors = [error for *_, error in found if error is not None]
    points = " to ".join(dict.fromkeys(f"{100 * of(errors):.1f}" for of in (min, max) if errors))
    error = f"; ±{points} points per node (95 % confidence)" if points else ""
    return f"tested on {few:,} of {total:,} samples{error}"
