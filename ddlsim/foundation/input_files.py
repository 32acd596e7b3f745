"""Read input files of users: CSV files of numbers, with all bad rows in one error, and pickles of plain data."""

import csv
import math
import pickle
import reprlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from annotated_types import MinLen
from pydantic import TypeAdapter, ValidationError

from ddlsim.foundation.errors import ScenarioError

MAX_PROBLEMS = 20


@dataclass(frozen=True)
class Column:
    """A column of numbers not below zero.

    Args:
        whole: only whole numbers.
        below: values must be less than this.
    """

    whole: bool = False
    below: float = math.inf

    def read(self, text: str) -> float | int | None:
        """Return the number, or None if the column does not allow the text."""
        if not text.isascii() or "_" in text:  # Python would take them
            return None
        try:
            value = int(text) if self.whole else float(text)
        except ValueError:
            return None
        return value if 0 <= value < self.below else None

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a finite number"
        return f"{kind} from 0" + (f" to below {self.below:g}" if self.below < math.inf else "")


NODE = Column(whole=True, below=2**31)
"""Ids of nodes."""

Row = dict[str, Any]
"""Column -> number: an int where the column is whole, else a float."""


def read_rows(path: Path | str, columns: Mapping[str, Column], others: bool = False) -> list[tuple[int, Row]]:
    """Read all rows of a CSV file whose first line names its columns.

    Args:
        path: the file; empty lines and lines that begin with # are skipped.
        columns: required columns, in any order.
        others: whether the file may have other columns, which are ignored.

    Returns:
        (line number, column -> number) for each row.

    Raises:
        ScenarioError: the file cannot be read or has wrong rows; the text names the first 20.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, f"expected a CSV file with columns {','.join(columns)}", error) from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip() and line[0] != "#"]
    try:
        cells = [(number, [cell.strip() for cell in next(csv.reader([line]))]) for number, line in lines]
    except csv.Error as error:
        raise ScenarioError(f"{path}: expected a CSV file with columns {','.join(columns)}, got: {error}") from error
    header = cells[0][1] if cells else []
    named = [name for name in header if name in columns] if others else header
    if sorted(named) != sorted(columns):
        where, got = (cells[0][0], ",".join(header)) if cells else (1, "an empty file")
        raise ScenarioError(f"{path}:{where}: expected the columns {','.join(columns)}, got {shortened(got)}")
    rows, problems = [], []
    for number, row in cells[1:]:
        found, wrong = _read_row(header, row, columns)
        rows.append((number, found))
        problems += [f"{path}:{number}: {what}" for what in wrong]
    refuse(problems)
    return rows


def rows_by_node(
    path: Path | str, columns: Mapping[str, Column], num_nodes: int = 0, others: bool = False
) -> dict[int, Row]:
    """Read one row for each node of a CSV file; the column `node` is added, and nodes 0 .. num_nodes-1 must be there.

    Raises:
        ScenarioError: the file cannot be read, has wrong rows or a node twice, or lacks a node.
    """
    found: dict[int, Row] = {}
    for line, row in read_rows(path, {"node": NODE, **columns}, others):
        if row["node"] in found:
            raise ScenarioError(f"{path}:{line}: node: expected one row per node, got node {row['node']} again")
        found[row["node"]] = row
    require_nodes(path, found, num_nodes)
    return found


def require_nodes(path: Path | str, found: Collection[int], num_nodes: int, what: str = "a row") -> None:
    """Raise ScenarioError unless all nodes 0 .. num_nodes-1 are found in a file."""
    missing = next((node for node in range(num_nodes) if node not in found), None)
    if missing is not None:
        raise ScenarioError(f"{path}: expected {what} for each of {num_nodes} nodes, got none for node {missing}")


def unreadable(path: Path | str, expected: str, error: Exception) -> ScenarioError:
    """Return the error of a file that cannot be opened or read."""
    got = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return ScenarioError(f"{path}: {expected}, got: {got}")


def refuse(problems: list[str]) -> None:
    """Raise ScenarioError with the first problems, if there are any."""
    more = len(problems) - MAX_PROBLEMS
    if problems:
        raise ScenarioError("\n".join(problems[:MAX_PROBLEMS] + ([f"and {more} more like these"] if more > 0 else [])))


def shortened(text: str) -> str:
    """Return text of a file, shortened for a message."""
    return text if len(text) <= 60 else text[:57] + "..."


def _read_row(names: list[str], cells: list[str], columns: Mapping[str, Column]) -> tuple[Row, list[str]]:
    if len(cells) != len(names):
        return {}, [f"expected {len(names)} values ({','.join(names)}), got {len(cells)}"]
    row, wrong = {}, []
    for name, cell in zip(names, cells, strict=True):
        if name not in columns:
            continue
        value = columns[name].read(cell)
        if value is None:
            wrong.append(f"{name}: expected {columns[name]}, got {shortened(repr(cell))}")
        else:
            row[name] = value
    return row, wrong


class _DataOnly(pickle.Unpickler):
    """Reads numbers, texts and builtin containers, which need no name looked up; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}, which is code and not data")


def read_data_only(path: str, expected: str) -> Any:
    """Read a pickle of builtin containers, numbers and texts.

    Raises:
        ScenarioError: the file cannot be read or contains more than data.
    """
    try:
        with Path(path).open("rb") as file:
            return _DataOnly(file).load()
    except Exception as error:  # a damaged pickle raises nearly anything
        raise unreadable(path, expected, error) from error


def read_devices(path: str, expected: str, kind: Any) -> dict[Any, Any]:
    """Read a pickled dictionary from devices to values of a kind that pydantic can check.

    Raises:
        ScenarioError: the file cannot be read, contains more than data, or has another form; names the first problems.
    """
    try:
        return TypeAdapter(Annotated[dict[Any, kind], MinLen(1)]).validate_python(read_data_only(path, expected))
    except ValidationError as error:
        problems = []
        for found in error.errors(include_url=False):
            where = [f"device {found['loc'][0]!r}", *map(str, found["loc"][1:])] if found["loc"] else [expected]
            text = found["msg"].replace("Input should be", "expected")
            problems.append(f"{path}: {': '.join(where)}: {text}, got {shortened(reprlib.repr(found['input']))}")
        refuse(problems)
        raise


def state_of(path: str) -> tuple[int, int, int] | None:
    """Return the modification time, size and inode of a file, the key of its contents in caches; None if missing."""
    try:
        about = Path(path).expanduser().stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size, about.st_ino
