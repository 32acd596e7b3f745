"""Sections on the run itself: summary, scenario with differences from its defaults, command, host and device.

Elements shared by sections: axes of time, nodes by cluster, large runs in blocks of nodes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ddlsim.report.comparing.groups import settings_of
from ddlsim.report.records import Records
from ddlsim.report.section import Axis, Frame, Heat, Section, Series, Table
from ddlsim.report.summary_table import rows
from ddlsim.report.text import json_text, seconds_text

GROUP = "The run"
REPEATS = "The same scenario, seed and versions write the same records again on the same device."
NO_SETTINGS = ("paper", "description", "fallback")
"""Keys of a scenario that are shown elsewhere or have no defaults."""


def about_run(records: Records, summary: dict, defaults: Mapping[str, Any] | None) -> list[Section]:
    """The sections, which every run has."""
    in_numbers = Section("summary", "Summary", GROUP, table=Table((), list(rows(summary)), left=2))  # as on the console
    return [in_numbers, scenario(records, defaults), command(records), environment(records)]


def scenario(records: Records, defaults: Mapping[str, Any] | None) -> Section:
    """Every key of the scenario as resolved; keys that differ from the default are marked."""
    shown = settings_of({key: value for key, value in records.scenario.items() if key not in NO_SETTINGS})
    lines = [(key, json_text(value)) for key, value in shown.items()]
    about = "As it was resolved, with every default written out"
    if defaults is None:
        return Section("scenario", "Scenario", GROUP, f"{about}.", Table(("key", "value"), lines, 2), open=False)
    usual = {key: json_text(defaults[key]) if key in defaults else "(no default)" for key in shown}
    strong = [number for number, (key, text) in enumerate(lines) if key in defaults and usual[key] != text]
    cells = [(key, text, "" if usual[key] == text else usual[key]) for key, text in lines]
    table = Table(("key", "value", "default, where it differs"), cells, 3, strong)
    about = f"{about}; {len(strong)} keys differ from their defaults."
    return Section("scenario", "Scenario", GROUP, about, table, open=False)


def command(records: Records) -> Section:
    """The words of the command, quoted for a shell."""
    return Section("command", "Command", GROUP, REPEATS, code=records.command or "(not recorded)")


def environment(records: Records) -> Section:
    """Versions, machine, data, times."""
    manifest, data = records.manifest, records.manifest.get("data") or {}
    facts = {name: manifest.get(name) for name in MADE_WITH}
    facts["wall time"] = None if manifest.get("wall_s") is None else seconds_text(manifest["wall_s"])
    peak = manifest.get("peak_rss_mib")
    facts |= {"largest memory": None if peak is None else f"{peak} MiB"}
    facts |= {f"data: {name}": value for name, value in data.items()}
    lines = [(name, json_text(value)) for name, value in facts.items() if value is not None]
    lines += [("code from outside", json_text(plugin)) for plugin in manifest.get("plugins") or ()]
    return Section("environment", "Made with", GROUP, table=Table((), lines, left=2), open=False)


VERSIONS = ("ddlsim", "python", "torch", "torchvision", "numpy", "simpy", "networkx", "pydantic")
MADE_WITH = (*VERSIONS, "device", "cpu", "threads", "started")


MOST_ROWS = 64
"""Nodes that are drawn one by one; of larger runs each row is a block of nodes with neighboring numbers."""


@dataclass(frozen=True)
class Blocks:
    """Nodes as rows of a figure, ordered by cluster; no block holds nodes of two clusters.

    Args:
        nodes: the nodes of each row, int arrays.
        labels: a row's name.
        clusters: a row's cluster.
    """

    nodes: list[np.ndarray]
    labels: list[str]
    clusters: list[int]

    @property
    def borders(self) -> list[int]:
        """Rows before which another cluster starts."""
        return (np.flatnonzero(np.diff(self.clusters)) + 1).tolist()

    @property
    def single(self) -> bool:
        """Whether every row is one node."""
        return all(len(block) == 1 for block in self.nodes)

    @property
    def row_title(self) -> str:
        """Title of the rows."""
        return "node (by cluster)" if self.single else "nodes (in blocks, by cluster)"

    @property
    def notes(self) -> list[str]:
        """A sentence on blocks, if there are any."""
        return [] if self.single else [f"{sum(map(len, self.nodes)):,} nodes are shown in {len(self.nodes)} blocks."]

    def heat(self, frames: Sequence[Frame], columns: Sequence[str], column_title: str, **options: Any) -> Heat:
        """A heat map with a row per block; options as in `Heat`."""
        return Heat(frames, self.labels, columns, self.row_title, column_title, borders=self.borders, **options)

    def pair_heat(self, frames: Sequence[Frame], row_word: str, column_title: str, **options: Any) -> Heat:
        """A heat map of pairs of blocks; options as in `Heat`."""
        title = f"{row_word}, {self.row_title}" if row_word else self.row_title
        sides: dict[str, Any] = {"borders": self.borders, "square": True, "clusters": self.clusters}
        return Heat(frames, self.labels, self.labels, title, column_title, **sides, **options)

    def means(self, values: np.ndarray) -> np.ndarray:
        """Mean over the known values of each block; [..., N] -> [..., B], nan where none is known."""
        return self._each(values, _mean_of_known)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sum over each block, [..., N] -> [..., B]."""
        return self._each(values, lambda of_block: np.nansum(of_block, axis=-1))

    def most_common(self, values: np.ndarray) -> np.ndarray:
        """The most common value of each block, whole numbers with -1 for none; [..., N] -> [..., B]."""
        most = int(values.max(initial=-1))

        def common(of_block: np.ndarray) -> np.ndarray:
            counts = np.stack([(of_block == value).sum(-1) for value in range(most + 1)], axis=-1)
            return np.where(counts.any(-1), counts.argmax(-1), -1)

        return self._each(values, common) if most >= 0 else self.means(values)

    def pairs(self, matrix: np.ndarray) -> np.ndarray:
        """Sums over pairs of blocks, [N, N] -> [B, B]."""
        return self.sums(self.sums(matrix).swapaxes(-1, -2)).swapaxes(-1, -2)

    def of_node(self) -> np.ndarray:
        """The row of each node, int [N]."""
        rows = np.zeros(sum(map(len, self.nodes)), dtype=int)
        for row, block in enumerate(self.nodes):
            rows[block] = row
        return rows

    def _each(self, values: np.ndarray, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        if self.single:
            return values[..., np.concatenate(self.nodes)]
        return np.stack([function(values[..., block]) for block in self.nodes], axis=-1)


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    known = np.isfinite(values)
    count = known.sum(-1)
    return np.where(count > 0, np.where(known, values, 0).sum(-1) / np.maximum(count, 1), np.nan)


def blocks_of(node_cluster: np.ndarray, most: int = MOST_ROWS) -> Blocks:
    """Return rows for `count` nodes: single nodes, or blocks of as many nodes as keep the number of rows below
    `most`.
    """
    clusters = range(int(node_cluster.max()) + 1)
    members = [np.flatnonzero(node_cluster == cluster) for cluster in clusters]
    size = 1
    while sum(-(-len(of_cluster) // size) for of_cluster in members) > max(most, len(members)):
        size += 1
    nodes = [of_cluster[i : i + size] for of_cluster in members for i in range(0, len(of_cluster), size)]
    labels = [str(block[0]) if len(block) == 1 else f"{block[0]}–{block[-1]}" for block in nodes]
    return Blocks(nodes, labels, [int(node_cluster[block[0]]) for block in nodes])


def axes(records: Records) -> list[Axis]:
    """Rounds, simulated time, bytes and, if counted, energy at the evaluations."""
    evaluations = records.curve
    found = [Axis("round", evaluations.round), Axis("simulated time", evaluations.time_s, "seconds")]
    sent = evaluations.bytes_sent
    if np.isfinite(sent).all():
        found.append(Axis("bytes sent by all nodes", sent, "bytes"))
    if evaluations.joules is not None:
        found.append(Axis("energy of all nodes", evaluations.joules, "joules"))
    return found


def cluster_series(records: Records, values: Iterable[np.ndarray]) -> list[Series]:
    """Return a line per cluster, each with its own color and dashes."""
    sizes = np.bincount(records.node_cluster)
    return [Series(cluster_name(c, sizes), line, c, dash=c) for c, line in enumerate(values)]


def cluster_name(cluster: int, sizes: np.ndarray) -> str:
    """Return a cluster with its number of nodes, or all nodes if there is one cluster."""
    if len(sizes) == 1:
        return f"all {sizes[0]} nodes"
    return f"cluster {cluster} ({sizes[cluster]} node{'s' if sizes[cluster] > 1 else ''})"
