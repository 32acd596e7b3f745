"""Rows of a run, written as they happen."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from ddlsim.messages.breakdown import Contents
from ddlsim.network.link_use import NodeUse
from ddlsim.network.traffic import Traffic


class Recorder:
    """Writes metrics.jsonl: one JSON object per line, keys time_s, node, round, name, value.

    Args:
        path: file to write; None keeps the rows in memory (`rows`), for tests and for use from Python.

    Attributes:
        wall_s: wall time spent on writing so far, for `--profile`.
    """

    def __init__(self, path: Path | None = None):
        self.rows: list[dict[str, Any]] = []
        self.wall_s = 0.0
        self._file = path.open("w", encoding="utf-8") if path else None

    def row(self, time_s: float, node: int | None, round_num: int, name: str, value: Any) -> None:
        """One row; `round` counts completed rounds."""
        start = time.perf_counter()
        found = {"time_s": float(time_s), "node": node, "round": round_num, "name": name, "value": value}
        if self._file is None:
            self.rows.append(found)
        else:
            self._file.write(json.dumps(found, separators=(",", ":")) + "\n")
        self.wall_s += time.perf_counter() - start

    def flush(self) -> None:
        if self._file is not None:
            start = time.perf_counter()
            self._file.flush()
            self.wall_s += time.perf_counter() - start

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def write_communication(path: Path, traffic: Traffic, detail: Literal["full", "total"] = "full") -> None:
    """Writes communication.jsonl: one object per ordered pair with traffic, sorted by (src, dst).

    With detail `total` it holds one object, the sums over all pairs, whose src and dst are null; `pairs` says how many.
    """
    _write_rows(path, traffic.rows() if detail == "full" else [traffic.total()])


def write_links(path: Path, use: NodeUse, detail: Literal["full", "total"] = "full") -> None:
    """Writes links.jsonl: one object per node, what its links carried; see link_use.py.

    With detail `total` it holds one object for all nodes, whose node is null; `nodes` says how many.
    """
    _write_rows(path, use.rows() if detail == "full" else [use.total()])


def write_contents(path: Path, contents: Contents) -> None:
    """Writes contents.jsonl: one object per round and content of messages; see contents.py."""
    _write_rows(path, contents.rows())


def _write_rows(path: Path, rows: Iterable[dict]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
