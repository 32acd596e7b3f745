"""Reading of run directories, also of unfinished runs; errors name the place of damage."""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.foundation.errors import RecordsDamaged, ScenarioError
from ddlsim.foundation.strict_json import row_number
from ddlsim.report.record_files import MAYBE_NODE, NUMBER, Energy, Kinds, Links, damage_of, json_lines, read_contacts
from ddlsim.report.records import Communication, Records, Rows
from ddlsim.tasks import metrics

MANIFEST = "manifest.json"
RECORD_SUFFIXES = (".json", ".jsonl", ".yaml", ".safetensors")
"""File names in a run directory that are read."""


def read(run_dir: str | Path) -> Records:
    """Read a run directory, also of an unfinished or killed run.

    Raises:
        ScenarioError: if the directory is not a run.
        RecordsDamaged: if one of its files is damaged (a cut last line of a JSON-lines file is not damage, see
            `Records.lost_rows`).
    """
    directory = Path(run_dir)
    check_run(directory)
    manifest = _read_manifest(directory / MANIFEST)
    attacked = sorted({node for attack in manifest.get("attacks") or () for node in attack["nodes"]})
    clusters = np.asarray(manifest["node_cluster"])
    found = _read_metrics(directory / "metrics.jsonl", clusters, attacked)
    found.rows |= _read_metrics(directory / "training.jsonl", clusters).rows
    with damage_of(directory):
        return Records(
            directory=directory,
            manifest=manifest,
            scenario=read_scenario(directory, manifest),
            rows=found.rows,
            communication=_read_communication(directory / "communication.jsonl", len(manifest["node_cluster"])),
            links=Links.read(directory / "links.jsonl"),
            contacts=read_contacts(directory / "contacts.jsonl", len(manifest["node_cluster"])),
            confusions=[entry for pair in found.newest.values() for entry in pair],
            parities=found.parities,
            learns_graph=found.learns_graph,
            energy=Energy.read(directory / "energy.jsonl"),
        )


def check_run(directory: Path) -> None:
    """Check that a directory is a run, and that its records are regular files.

    Raises:
        ScenarioError: if the directory is not a run.
        RecordsDamaged: if a record is a link, which may lead out of the directory, or a pipe, which never ends.
    """
    missing = [name for name in (MANIFEST, "scenario.yaml") if not (directory / name).is_file()]
    if missing:
        what = f"has no {' and no '.join(missing)}" if directory.is_dir() else "is not a directory"
        default = "runs/<scenario>/<algorithm>-s<seed>-<hash>"
        raise ScenarioError(f"{directory} is not a run: it {what}. Name a folder of `ddlsim run`, as {default}.")
    for entry in os.scandir(directory):
        if Path(entry.name).suffix in RECORD_SUFFIXES and not entry.is_file(follow_symlinks=False):
            kind = "link" if entry.is_symlink() else "folder" if entry.is_dir() else "device or pipe"
            raise RecordsDamaged(f"{entry.path}: expected a regular file, found a {kind}. Copy the file itself there.")


def find_runs(paths: Iterable[str | Path]) -> list[Path]:
    """The run directories named by paths: a run itself, or all runs below a folder, sorted; each once.

    Below a folder, runs that were moved aside (`<run>.earlier-<number>`) are left out.

    Raises:
        ScenarioError: if a path is not a run and holds none.
    """
    found: dict[Path, Path] = {}
    for path in map(Path, paths):
        below = [path] if (path / MANIFEST).is_file() else sorted(run.parent for run in path.rglob(MANIFEST))
        runs = [run for run in below if run == path or ".earlier-" not in run.name]
        if not runs:
            raise ScenarioError(f"{path} is not a run and holds none: no {MANIFEST} in it or below it.")
        for run in runs:
            found.setdefault(run.resolve(), run)
    return list(found.values())


@dataclass
class _Metrics:
    """Values collected in one pass over metrics.jsonl.

    Args:
        node_cluster: the cluster of each node, int [N].
        rows: metric -> its rows.
        newest: node -> the last two confusion matrices of it, as (round, node, matrix).
        parities: round -> demographic parity and equalized odds, of rounds in which every node was evaluated.
        attacked: nodes that are excluded from parities.
        learns_graph: whether nodes recorded rows `collaboration`.
    """

    node_cluster: np.ndarray
    attacked: Sequence[int] = ()
    rows: dict[str, Rows] = field(default_factory=dict)
    newest: dict[int, list] = field(default_factory=dict)
    parities: dict[int, tuple[float, float]] = field(default_factory=dict)
    learns_graph: bool = False
    _open: dict[int, dict[int, np.ndarray]] = field(default_factory=dict)

    def confusion(self, completed: int, node: int, matrix: np.ndarray) -> None:
        """Keep only the newest matrices, since all of them would be by far the largest part of a run."""
        self.newest[node] = [*self.newest.get(node, [])[-1:], (completed, node, matrix)]
        of_round = self._open.setdefault(completed, {})
        of_round[node] = matrix
        if len(of_round) == len(self.node_cluster):
            whole = self._open.pop(completed)
            honest = np.setdiff1d(np.arange(len(whole)), self.attacked)
            if len(whole) - 1 in whole and len(honest):
                stacked = np.stack([whole[node] for node in honest.tolist()])
                clusters = np.unique(self.node_cluster[honest], return_inverse=True)[1]
                parity, odds = (f(stacked, clusters) for f in (metrics.demographic_parity, metrics.equalized_odds))
                self.parities[completed] = parity, odds
        while len(self._open) > _OPEN_ROUNDS:
            del self._open[min(self._open)]


MAX_HEADS = 10_000
"""Heads are numbered from 0, and tables have a column for each."""
_OPEN_ROUNDS = 8
"""Number of incomplete evaluations whose confusion matrices are stored; older ones get no parity."""


def _read_metrics(path: Path, node_cluster: np.ndarray, attacked: Sequence[int] = ()) -> _Metrics:
    columns: dict[str, list[tuple]] = {}
    found = _Metrics(node_cluster, attacked)
    kinds: Kinds = {"time_s": NUMBER, "node": MAYBE_NODE, "round": int, "name": str}
    for row in json_lines(path, kinds):
        node = -1 if row["node"] is None else _node(path, row["node"], len(node_cluster))
        if row["name"] == "confusion":
            with damage_of(path):
                found.confusion(row["round"], node, np.asarray(row["value"], dtype=int))
        elif isinstance(value := row_number(row.get("value")), int | float):
            columns.setdefault(row["name"], []).append((row["time_s"], node, row["round"], value))
        elif row["name"] == "collaboration":
            found.learns_graph = True
    with damage_of(path):
        found.rows = {name: _columns(rows) for name, rows in columns.items()}
    for name, bound in {"head": MAX_HEADS, "pulled_from": len(node_cluster) + 1}.items():
        if name in found.rows and not ((values := found.rows[name].value) < bound).all():
            raise RecordsDamaged(f"{path}: {name}: expected numbers below {bound}, found {values.max():g}.")
    return found


def _node(path: Path, node: int, num_nodes: int) -> int:
    """Return the node of a row; a server's number follows the last node's."""
    if not 0 <= node <= num_nodes:
        raise RecordsDamaged(f"{path}: a row is of node {node}, but the run has {num_nodes} nodes.")
    return node


def _columns(rows: list[tuple]) -> Rows:
    time_s, node, round_num, value = zip(*rows, strict=True)
    return Rows(np.array(time_s, float), np.array(node, int), np.array(round_num, int), np.array(value, float))


def _read_communication(path: Path, num_nodes: int) -> Communication | None:
    if not path.is_file():
        return None
    names = ("src", "dst", "messages", "payload_bytes", "header_bytes", "wasted_bytes", "in_flight_bytes")
    kinds: Kinds = {name: MAYBE_NODE if name in ("src", "dst") else int for name in names}
    rows = list(json_lines(path, kinds))
    for row in rows:
        _node(path, row["src"] or 0, num_nodes)
        _node(path, row["dst"] or 0, num_nodes)
    table = [[-1 if row[name] is None else row[name] for name in names] for row in rows]
    num_pairs = sum(row.get("pairs", 1) for row in rows)
    columns: list[Any] = [*np.array(table, dtype=np.int64).reshape(-1, len(names)).T, num_pairs]
    return Communication(*columns)


def _read_manifest(path: Path) -> dict:
    """Return the manifest, whose clusters of nodes are checked; other damage is reported by `damage_of`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordsDamaged(f"{path}:{getattr(error, 'lineno', 1)}: not JSON: {error}.") from error
    clusters = found.get("node_cluster") if isinstance(found, dict) else None
    numbered = isinstance(clusters, list) and all(type(one) is int and 0 <= one < len(clusters) for one in clusters)
    if not clusters or not numbered:
        raise RecordsDamaged(f"{path}: node_cluster: expected the cluster of each node, got {clusters!r:.60}.")
    return found


def read_scenario(directory: Path, manifest: dict) -> dict:
    """Return the resolved scenario of a run.

    The manifest holds it as JSON as well, with the digest of the YAML text, since YAML takes ten times as long to read.
    """
    text = (directory / "scenario.yaml").read_bytes()
    copy = manifest.get("resolved")
    if isinstance(copy, dict) and copy.get("sha256") == hashlib.sha256(text).hexdigest():
        return copy["scenario"] if isinstance(copy.get("scenario"), dict) else {}
    return read_yaml(directory / "scenario.yaml")


def read_yaml(path: Path) -> dict:
    """Return the mapping in a YAML file of a run.

    Raises:
        RecordsDamaged: if it is not valid YAML or not a mapping; or if it has aliases, which ddlsim never writes, and
            by which a few bytes expand to any number of values.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import AliasEvent

    yaml = YAML(typ="safe", pure=True)
    try:
        text = path.read_text(encoding="utf-8")
        if "*" in text and any(isinstance(event, AliasEvent) for event in yaml.parse(text)):
            raise RecordsDamaged(f"{path}: expected a scenario as ddlsim writes it, found an alias (*name).")
        found = yaml.load(text) or {}
    except (YAMLError, ValueError, LookupError, RecursionError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise RecordsDamaged(f"{path}: not valid YAML: {reason}.") from error
    if not isinstance(found, dict):
        raise RecordsDamaged(f"{path}: expected a mapping (key: value) at the top level, found {found!r:.60}.")
    return found
