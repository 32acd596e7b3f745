"""A small file per cell with what our runs of it gave: it outlives the run directories, and tables are made of it.

    <folder>/<matrix>/<cell, slashes as +>.json         <matrix>+<override>+... where settings were overridden

It holds the published numbers, and per seed ours with the command, the commit, the machine and the date. Results of a
cell whose settings have changed since are not shown: a file says with which it was run, and the first new run moves it
aside. Nor are those of seeds that were run with other code of one's own than is there now, or other files.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ddlsim.foundation.errors import ScenarioError
from ddlsim.report.summary import honest_part
from ddlsim.runs.directory import write_json
from ddlsim.runs.manifest import file_digests
from ddlsim.runs.reproduce.matrix import Cell, Matrix
from ddlsim.runs.reproduce.measures import measured
from ddlsim.runs.reproduce.running import ORIGIN, Run
from ddlsim.scenario.own_parts import origins
from ddlsim.scenario.tree import Mark

FROM_MANIFEST = ("device", "cpu", "threads", "started")
RESULTS_FILE = Mark("results file")
FROM_ORIGIN = ("commit",)
OF_CODE = ("kind", "sha256", "distribution", "version")
"""What tells one state of a part from outside from another, on whatever machine it lies."""


def folder_of(matrix: Matrix, folder: Path) -> Path:
    """Where the files of a matrix lie; one that is run with other settings has another place."""
    changes = "+".join(change.replace("/", "|") for change in matrix.changes)
    return folder / (matrix.name + (f"+{changes}" if changes else ""))


def file_of(matrix: Matrix, cell: Cell, folder: Path) -> Path:
    """The file of a cell."""
    return folder_of(matrix, folder) / f"{cell.name.replace('/', '+')}.json"


def values_of(matrix: Matrix, run: Run, summary: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one run: of the matrix's metric over all nodes and per cluster, and its measures."""
    found = honest_part(summary)[matrix.metric]
    own = {key: found.get(key) for key in ("all", "clusters", "std")}
    if summary.get("diverged"):
        own["diverged"] = len(summary["diverged"]["nodes"]) / summary["nodes"]
    return own | {"measures": measured(summary, run.directory, matrix.measures)}


@dataclass(frozen=True)
class ResultStore:
    """Writes the files of a matrix.

    Args:
        matrix: the one that has the cells.
        folder: of all result files.
    """

    matrix: Matrix
    folder: Path

    def keep(self, run: Run, summary: dict[str, Any]) -> None:
        """Adds one run to its cell's file."""
        path = file_of(self.matrix, run.cell, self.folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        before = _results_in(path)
        if before is not None and not _same_settings(before, run.cell):
            path.rename(_free(path))
            before = None
        seeds = {} if before is None else before["seeds"]
        seeds[str(run.scenario.seed)] = {
            **values_of(self.matrix, run, summary),
            "rounds": summary["rounds"],
            "wall_s": summary["wall_s"],
            **_origin(run.directory),
            "command": self._command(run),
        }
        if (inputs := _inputs_of_run(run.directory)) != NO_INPUTS:
            seeds[str(run.scenario.seed)]["inputs"] = inputs
        published = run.cell.published
        write_json(
            path,
            {
                "matrix": self.matrix.name,
                "cell": run.cell.name,
                "settings": run.cell.settings,
                "overrides": list(self.matrix.changes),
                "metric": self.matrix.metric,
                "published": None if published is None else published.model_dump(exclude_none=True, mode="json"),
                "seeds": dict(sorted(seeds.items(), key=lambda item: int(item[0]))),
            },
            path.with_suffix(f".{os.getpid()}.draft"),
        )

    def has(self, run: Run) -> bool:
        """Whether the cell's file has this run with the cell's present settings: another machine may have run it."""
        return run.scenario.seed in kept(self.matrix, run.cell, self.folder)

    def _command(self, run: Run) -> list[str]:
        """What runs the cell anywhere: without the folders and the options of the machine where it was run."""
        changes = [word for change in self.matrix.changes for word in ("--set", change)]
        return ["ddlsim", "reproduce", self.matrix.name, "--cells", run.cell.name, *changes]


def kept(matrix: Matrix, cell: Cell, folder: Path) -> dict[int, dict[str, Any]]:
    """Seed -> its values, of a cell's file; those of seeds that the cell has, if its settings, code of one's own and
    files are still the same.

    Raises:
        ScenarioError: if there is such a file, and it cannot be read.
    """
    found = _results_in(file_of(matrix, cell, folder))
    if found is None or not _same_settings(found, cell):
        return {}
    own = {seed: found["seeds"][str(seed)] for seed in cell.seeds if str(seed) in found["seeds"]}
    now = _inputs(origins(cell.scenario), file_digests(cell.scenario))
    return {seed: values for seed, values in own.items() if _same_inputs(values.get("inputs", NO_INPUTS), now)}


def _same_settings(found: dict[str, Any], cell: Cell) -> bool:
    """Whether a file's results have the cell's current settings."""
    return found.get("settings") == cell.settings


NO_INPUTS: dict[str, Any] = {"code": [], "files": {}}


def _inputs(plugins: Iterable[Mapping[str, Any]], files: Mapping[str, str]) -> dict[str, Any]:
    """What a run goes by beside settings: the digests of parts from outside, and of files."""
    return {"code": [[each.get(key) for key in OF_CODE] for each in plugins], "files": dict(files)}


def _inputs_of_run(directory: Path) -> dict[str, Any]:
    manifest = _read(directory / "manifest.json") or {}
    return _inputs(manifest.get("plugins") or (), manifest.get("files_read") or {})


def _same_inputs(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return then["code"] == now["code"] and all(
        then["files"].get(name, was) == was for name, was in now["files"].items()
    )


def overrides_in(held: Path) -> list[str]:
    """With what the cells of a folder were run instead of what was published."""
    found = _results_in(next(iter(sorted(held.glob("*.json"))), held))
    return [] if found is None else found["overrides"]


def _results_in(path: Path) -> dict[str, Any] | None:
    """A results file; None: there is none.

    Raises:
        ScenarioError: if it cannot be read, or is another file: its numbers would be lost by the next run.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: cannot be read ({error}). Mend it, or move it away.") from error
    if not isinstance(found, dict) or not isinstance(found.get("seeds"), dict):
        raise ScenarioError(f"{path}: is no results file, which has `seeds`. Move it away, or name another --results.")
    return found


def _free(path: Path) -> Path:
    """A name beside it that nothing has yet."""
    names = (path.with_name(f"{path.stem}.earlier-{number}{path.suffix}") for number in count(1))
    return next(name for name in names if not name.exists())


def _read(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _origin(directory: Path) -> dict[str, Any]:
    """Which code, on which machine, and when."""
    manifest = _read(directory / "manifest.json") or {}
    source = _read(directory / ORIGIN) or {}
    return {key: source.get(key) for key in FROM_ORIGIN} | {key: manifest.get(key) for key in FROM_MANIFEST}
