"""A small file per cell with what our runs of it gave: it outlives the run directories, and tables are made of it.

    <folder>/<matrix>/<cell, slashes as +>.json         <matrix>+<override>+... where settings were overridden

It holds the published numbers, and per seed ours with the command, the commit, the machine and the date. Results of a
cell whose settings have changed since are left alone but not shown: a file says with which it was run.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddlsim.report.summary import honest_part
from ddlsim.reproduce.matrix import Cell, Matrix, settings_of
from ddlsim.reproduce.measures import measured
from ddlsim.reproduce.running import ORIGIN, Run
from ddlsim.runs.directory import write_json
from ddlsim.scenario.problems import Mark
from ddlsim.scenario.tree import from_plain

FROM_MANIFEST = ("device", "cpu", "threads", "started")
RESULTS_FILE = Mark("results file")
FROM_ORIGIN = ("commit",)


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
    return own | {"measures": measured(summary, run.directory, matrix.measures)}


@dataclass(frozen=True)
class Keeper:
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
        before = _read(path) or {}
        seeds = before.get("seeds", {}) if _same_settings(before, run.cell) else {}
        seeds[str(run.scenario.seed)] = {
            **values_of(self.matrix, run, summary),
            "rounds": summary["rounds"],
            "wall_s": summary["wall_s"],
            **_origin(run.directory),
            "command": self._command(run),
        }
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
        )

    def has(self, run: Run) -> bool:
        """Whether the cell's file has this run with the cell's present settings: another machine may have run it."""
        return run.scenario.seed in kept(self.matrix, run.cell, self.folder)

    def _command(self, run: Run) -> list[str]:
        """What runs the cell anywhere: without the folders and the options of the machine where it was run."""
        changes = [word for change in self.matrix.changes for word in ("--set", change)]
        return ["ddlsim", "reproduce", self.matrix.name, "--cells", run.cell.name, *changes]


def kept(matrix: Matrix, cell: Cell, folder: Path) -> dict[int, dict[str, Any]]:
    """Seed -> its values, of a cell's file; those of seeds that the cell has, if its settings are still the same."""
    found = _read(file_of(matrix, cell, folder))
    if found is None or not _same_settings(found, cell):
        return {}
    return {seed: found["seeds"][str(seed)] for seed in cell.seeds if str(seed) in found["seeds"]}


def _same_settings(found: dict[str, Any], cell: Cell) -> bool:
    """Whether a file's results are of the cell as it is now; keys that have been renamed since are the same."""
    settings = found.get("settings")
    return isinstance(settings, dict) and settings_of(from_plain(settings, RESULTS_FILE)) == cell.settings


def overrides_in(held: Path) -> list[str]:
    """With what the cells of a folder were run instead of what was published."""
    found = _read(next(iter(sorted(held.glob("*.json"))), held))
    return [] if found is None else found["overrides"]


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
