"""Stored results: one JSON file per table, from which pages are made when the run directories are gone.

    <folder>/<matrix>.json         <matrix>+<override>+... if settings were overridden

The file holds, per cell, the settings and the values of every seed with the command, the commit, the machine and the
date. Values are used only if the cell's settings, the code of its plug-ins and its files have not changed since; values
of other settings move to the cell's `earlier` when a new run is added.
"""

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.summary import honest_part
from ddlsim.runs.directory import read_json, write_json
from ddlsim.runs.manifest import file_digests
from ddlsim.runs.reproduce.matrix import Cell, Matrix, measured
from ddlsim.runs.reproduce.running import ORIGIN, Run
from ddlsim.scenario.parts import origins

FROM_MANIFEST = ("device", "cpu", "threads", "started")
CODE_KEYS = ("kind", "sha256", "distribution", "version")
"""Entries of a manifest's plug-in that identify its code, on any machine."""

Values = dict[str, Any]
"""Values of one run and their origin."""


def table_name(matrix: Matrix) -> str:
    """Return the name of a matrix with its overrides, for files and folders."""
    return "+".join([matrix.name, *(change.replace("/", "|") for change in matrix.changes)])


def run_values(matrix: Matrix, run: Run, summary: dict[str, Any]) -> Values:
    """Return the numbers of one run: the matrix's metric over all nodes and per cluster, and its measures."""
    found = honest_part(summary)[matrix.metric]
    values = {key: found.get(key) for key in ("all", "clusters", "std")}
    if summary.get("diverged"):
        values["diverged"] = len(summary["diverged"]["nodes"]) / summary["nodes"]
    return values | {"measures": measured(summary, run.directory, matrix.content.measures)}


@dataclass(frozen=True)
class ResultStore:
    """The stored results of one matrix.

    Args:
        matrix: the matrix.
        folder: folder of all results files.
    """

    matrix: Matrix
    folder: Path

    @property
    def path(self) -> Path:
        """The results file."""
        return self.folder / f"{table_name(self.matrix)}.json"

    def read(self) -> dict[str, dict[int, Values]]:
        """Return the valid values by cell and seed.

        Raises:
            ScenarioError: the file cannot be read.
        """
        stored = read_table(self.path)["cells"]
        return {cell.name: _valid(stored[cell.name], cell) for cell in self.matrix.cells if cell.name in stored}

    def add(self, run: Run, summary: dict[str, Any]) -> None:
        """Add the values of a completed run; several processes may add to one file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with _locked(self.folder):
            table = read_table(self.path)
            cell = table["cells"].setdefault(run.cell.name, {"settings": run.cell.settings, "seeds": {}})
            if cell["settings"] != run.cell.settings:
                earlier = [*cell.pop("earlier", []), dict(cell)]
                cell |= {"settings": run.cell.settings, "seeds": {}, "earlier": earlier}
            seeds = cell["seeds"] | {str(run.seed): self._values(run, summary)}
            cell["seeds"] = dict(sorted(seeds.items(), key=lambda item: int(item[0])))
            write_json(self.path, self._head() | {"cells": table["cells"]})

    def _head(self) -> dict[str, Any]:
        return {"matrix": self.matrix.name, "overrides": list(self.matrix.changes), "metric": self.matrix.metric}

    def _values(self, run: Run, summary: dict[str, Any]) -> Values:
        manifest, origin = read_json(run.directory / "manifest.json"), read_json(run.directory / ORIGIN)
        changes = [word for change in self.matrix.changes for word in ("--set", change)]
        values = {
            **run_values(self.matrix, run, summary),
            "rounds": summary["rounds"],
            "wall_s": summary["wall_s"],
            "commit": origin.get("commit"),
            **{key: manifest.get(key) for key in FROM_MANIFEST},
            "command": ["ddlsim", "reproduce", self.matrix.name, "--cells", run.cell.name, *changes],
        }
        inputs = _inputs(manifest.get("plugins") or (), manifest.get("files_read") or {})
        return values if inputs == NO_INPUTS else {**values, "inputs": inputs}


NO_INPUTS: dict[str, Any] = {"code": [], "files": {}}


def _valid(stored: Mapping[str, Any], cell: Cell) -> dict[int, Values]:
    """Return the values of a cell's seeds that were computed with its current settings, plug-ins and files."""
    if stored["settings"] != cell.settings:
        return {}
    now = _inputs(origins(cell.scenario), file_digests(cell.scenario))
    found = {seed: stored["seeds"][str(seed)] for seed in cell.seeds if str(seed) in stored["seeds"]}
    return {seed: values for seed, values in found.items() if _same_inputs(values.get("inputs", NO_INPUTS), now)}


def _inputs(plugins: Iterable[Mapping[str, Any]], files: Mapping[str, str]) -> dict[str, Any]:
    """Return the digests of plug-ins and files that a run depends on."""
    return {"code": [[each.get(key) for key in CODE_KEYS] for each in plugins], "files": dict(files)}


def _same_inputs(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return then["code"] == now["code"] and all(
        then["files"].get(name, digest) == digest for name, digest in now["files"].items()
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Wait for the lock of a folder, so that no process overwrites the results that another one adds."""
    with (folder / ".lock").open("w") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_table(path: Path) -> dict[str, Any]:
    """Return the content of a results file; without cells if the file does not exist.

    Raises:
        ScenarioError: it cannot be read, or is another file: the next run would overwrite its content.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"cells": {}}
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: cannot be read ({error}). Repair the file, or move it away.") from error
    if not isinstance(found, dict) or not isinstance(found.get("cells"), dict):
        raise ScenarioError(f"{path}: expected a results file, which has `cells`. Move it, or set another --results.")
    return found
