"""Energy of the nodes in joules, from energy.jsonl and rows `joules` (see engine/meters.py)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ddlsim.devices.energy_presets import KINDS
from ddlsim.devices.joules import PARTS, grams
from ddlsim.report.json_lines import damage_of, json_lines
from ddlsim.report.text import grams_text, joules_text, seconds_text

TITLES = {"compute_j": "computing", "idle_j": "idle", "upload_j": "sending", "download_j": "receiving"}


@dataclass(frozen=True)
class Energy:
    """Columns of energy.jsonl, float [nodes]; one entry if only totals were written.

    Args:
        values: name -> column.
        num_nodes: nodes of the run.
    """

    values: dict[str, np.ndarray]
    num_nodes: int

    @property
    def by_node(self) -> bool:
        """Whether each node's energy is known; a server does not count as a node."""
        return len(self.joules) in (self.num_nodes, self.num_nodes + 1)

    @property
    def joules(self) -> np.ndarray:
        """All joules of each node."""
        return np.sum([self.values[name] for name in PARTS], axis=0)

    def summary(self, node_cluster: np.ndarray, gco2_per_kwh: float | None) -> dict:
        """For summary.json: sums over all nodes and a server, and means over nodes.

        Args:
            node_cluster: the cluster of each node, int [N].
            gco2_per_kwh: see `grid_of`.
        """
        joules, count = self.joules, len(node_cluster)
        total = float(joules.sum())
        found = {"joules": total, **{name: float(self.values[name].sum()) for name in PARTS}}
        found["gco2"] = None if gco2_per_kwh is None else grams(total, gco2_per_kwh)
        found["computing_s"], found["idle_s"] = (float(self.values[name].sum()) for name in ("computing_s", "idle_s"))
        if not self.by_node:
            mean = total / count if self.num_nodes == count else None  # a server is in the totals, and no node
            return found | {"node_mean": mean, "node_max": None, "clusters": None, "server": None}
        of_nodes = joules[:count]
        sizes = np.bincount(node_cluster)
        found["node_mean"], found["node_max"] = float(of_nodes.mean()), float(of_nodes.max())
        found["clusters"] = (np.bincount(node_cluster, of_nodes) / sizes).tolist()
        found["server"] = float(joules[count]) if len(joules) > count else None
        return found


def read_energy(path: Path) -> Energy | None:
    """Return the file's columns; None if the file is missing."""
    rows = list(json_lines(path)) if path.is_file() else []
    if not rows:
        return None
    names = [name for name in rows[0] if name not in ("node", "nodes")]
    with damage_of(path):
        table = np.array([[row[name] for name in names] for row in rows], dtype=float)
        return Energy(dict(zip(names, table.T, strict=True)), sum(row.get("nodes", 1) for row in rows))


def grid_of(scenario: dict) -> float | None:
    """Return the grams of CO2 equivalents per kWh of a resolved scenario; None if it sets none."""
    energy = scenario.get("energy") or {}
    given = energy.get("gco2_per_kwh")
    preset = KINDS["grid"].get(energy.get("grid") or "")
    return given if given is not None or preset is None else preset.values["gco2_per_kwh"]


def emitted(joules: float | None, gco2_per_kwh: float | None) -> float | None:
    """Grams of CO2 equivalents, as far as both are known."""
    return None if joules is None or gco2_per_kwh is None else float(grams(joules, gco2_per_kwh))


def energy_lines(summary: dict) -> list[tuple[str, str]]:
    """Return the lines of a summary on energy: name and value."""
    found = summary.get("energy")
    if found is None or found["joules"] is None:
        return []
    parts = [f"{title} {joules_text(found[name])}" for name, title in TITLES.items() if found.get(name)]
    rows = [("energy", joules_text(found["joules"]) + (f" ({', '.join(parts)})" if parts else ""))]
    if found.get("node_mean") is not None:
        most = "" if found["node_max"] is None else f", at most {joules_text(found['node_max'])}"
        rows.append(("energy per node", f"mean {joules_text(found['node_mean'])}{most}"))
    if found["gco2"] is not None:
        rows.append(("emissions", f"{grams_text(found['gco2'])} CO2e"))
    return rows


def table_rows(found: Energy, node_cluster: np.ndarray) -> list[list[str]]:
    """A row per cluster, and one of a server: means over its nodes of seconds and joules."""
    columns = [("computing_s", seconds_text), ("idle_s", seconds_text), *((name, joules_text) for name in PARTS)]
    clusters = range(int(node_cluster.max()) + 1)
    names = [f"cluster {c}" for c in clusters] if len(clusters) > 1 else ["all nodes"]
    groups = {name: np.flatnonzero(node_cluster == c) for c, name in enumerate(names)}
    if len(found.joules) > len(node_cluster):
        groups["server"] = np.array([len(node_cluster)])
    return [
        [
            name,
            *(as_text(float(found.values[column][nodes].mean())) for column, as_text in columns),
            joules_text(float(found.joules[nodes].mean())),
        ]
        for name, nodes in groups.items()
    ]
