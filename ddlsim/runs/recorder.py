"""Files of records, which a run writes."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from mmap import mmap
from pathlib import Path
from typing import Any, Literal, TextIO

from ddlsim.engine.time_use import TimeUse
from ddlsim.foundation.errors import RecordsFailed
from ddlsim.foundation.strict_json import row_text
from ddlsim.network.link_use import NodeUse, Traffic


class Recorder:
    """Writes metrics.jsonl: one JSON object per line, keys time_s, node, round, name, value.

    Args:
        path: of the file; None keeps the rows in memory (`rows`), for tests and for use from Python.
        losses: names of rows that show whether a node's model has diverged, see tasks/base.py: loss_rows.

    Attributes:
        wall_s: wall seconds of writing so far, for `--profile`.
        diverged: node -> completed rounds at the first evaluation with a loss that is not finite.
        training_rows: rows of training.jsonl that have not been written.
    """

    def __init__(self, path: Path | None = None, losses: Sequence[str] = ()):
        self.rows: list[dict[str, Any]] = []
        self.wall_s = 0.0
        self.diverged: dict[int, int] = {}
        self.training_rows: list[dict[str, Any]] = []
        self._losses = frozenset(losses)
        self._path = Path() if path is None else path
        self._file: TextIO | None = None
        if path:
            with _write_errors(path):
                self._file = path.open("w", encoding="utf-8")

    def row(self, time_s: float, node: int | None, round_num: int, name: str, value: Any) -> None:
        """Write a row; `round` counts completed rounds.

        Raises:
            RecordsFailed: if it cannot be written, as the other methods.
        """
        start = time.perf_counter()
        found = {"time_s": float(time_s), "node": node, "round": round_num, "name": name, "value": value}
        if name in self._losses and node is not None and not math.isfinite(value):
            self.diverged.setdefault(node, round_num)
        if self._file is None:
            self.rows.append(found)
        else:
            try:  # without a context manager, which is slower: there are many rows
                self._file.write(row_text(found) + "\n")
            except OSError as error:
                raise unwritten(error, self._path) from error
        self.wall_s += time.perf_counter() - start

    def training_row(self, time_s: float, node: int, round_num: int, name: str, value: float) -> None:
        """Add a row of training.jsonl."""
        row = {"time_s": float(time_s), "node": node, "round": round_num, "name": name, "value": value}
        self.training_rows.append(row)

    def flush(self) -> None:
        """Write buffered rows to the file."""
        if self._file is not None:
            start = time.perf_counter()
            with _write_errors(self._path):
                self._file.flush()
            self.wall_s += time.perf_counter() - start

    def num_bytes(self) -> int:
        """Return the length of the file, with all rows so far."""
        self.flush()
        return self._path.stat().st_size

    def has_moved(self, path: Path) -> None:
        """Note that the file has been renamed."""
        self._path = path

    def close(self) -> None:
        """Close the file; if its last rows cannot be written, it ends with the last whole one."""
        if self._file is None or self._file.closed:
            return
        try:
            with _write_errors(self._path):
                self._file.close()
        finally:
            with suppress(OSError):
                _cut_torn_line(self._path)


class AppendedFile:
    """Writes contacts.jsonl (one object per round with the messages of all pairs, see network/messages/message.py) or
    training.jsonl (training losses and consensus distances, as rows of metrics.jsonl).

    A resumed run replaces the file of the earlier process when it writes its first rows.

    Args:
        path: the file.
    """

    def __init__(self, path: Path):
        self._path = path
        self._held: list[dict] = []
        self._has_written = False

    def add(self, rows: list[dict], hold: bool = False) -> None:
        """Write rows, after the held ones.

        Args:
            rows: see `Contacts.take`.
            hold: hold them back, because a resumed run repeats rounds whose rows are in the file.
        Raises:
            RecordsFailed: if they cannot be written.
        """
        self._held += rows
        if hold or (self._has_written and not self._held):
            return
        with _write_errors(self._path), self._path.open("a" if self._has_written else "w", encoding="utf-8") as file:
            file.writelines(row_text(row) + "\n" for row in self._held)
        self._held, self._has_written = [], True


def write_records(path: Path, counted: Traffic | NodeUse, detail: Literal["full", "total"] = "full") -> None:
    """Write the rows of communication.jsonl (one per ordered pair with traffic) or links.jsonl (one per node).

    With detail `total` the file holds one row with the sums, see Traffic.total and NodeUse.total.
    """
    write_rows(path, counted.rows() if detail == "full" else [counted.total()])


def write_energy(path: Path, rows: list[dict[str, Any]], detail: Literal["full", "total"] = "full") -> None:
    """Write energy.jsonl: one object per node, a server last, with its activities and joules; see energy_meter.py.

    With detail `total` it holds one object for all nodes, whose node is null; `nodes` is their number.
    """
    write_rows(path, rows if detail == "full" else [_total(rows)])


def write_time_use(directory: Path, times: TimeUse, detail: Literal["full", "total"] = "full") -> None:
    """Write timeline.jsonl, and time_use.jsonl: one object per node, see engine/time_use.py.

    With detail `total` it holds one object for all nodes, and one for the node that was waited for the longest.
    """
    rows = times.rows()
    if detail == "total":
        rows = [_total(rows), max(rows, key=lambda row: row["held_up_s"])]
    write_rows(directory / "time_use.jsonl", rows)
    periods = times.periods()
    if periods is not None:
        write_rows(directory / "timeline.jsonl", periods)


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row without a node for rows of all nodes: the sum of each value, and the number of nodes."""
    sums = {name: sum(row[name] for row in rows) for name in rows[0] if name != "node"}
    return {"node": None, **sums, "nodes": len(rows)}


def write_rows(path: Path, rows: Iterable[dict]) -> None:
    """Write all rows, or no file: sums of half the rows would be wrong."""
    try:
        with _write_errors(path), path.open("w", encoding="utf-8") as file:
            for row in rows:
                file.write(row_text(row) + "\n")
    except RecordsFailed:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        raise


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise unwritten(error, path) from error


def unwritten(error: OSError, path: Path) -> RecordsFailed:
    """Return the error for a file that cannot be written."""
    return RecordsFailed(f"{error.filename or path} cannot be written: {error.strerror or error}.")


def _cut_torn_line(path: Path) -> None:
    """Cut off the text after the last newline of a file."""
    if path.stat().st_size:
        with path.open("rb+") as file:
            with mmap(file.fileno(), 0) as content:
                end = content.rfind(b"\n") + 1
            file.truncate(end)
