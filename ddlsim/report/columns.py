"""Tables of a run's records: columns of equal length, as a pandas.DataFrame if pandas is installed, or as files."""

from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.devices.energy import grams
from ddlsim.foundation.environment import needed
from ddlsim.report.figures import written_below
from ddlsim.report.record_files import NodeColumns
from ddlsim.report.records import Records
from ddlsim.report.summary import costs_of
from ddlsim.report.text import comma_separated
from ddlsim.tasks import metrics

Columns = dict[str, np.ndarray]

NODE_VALUES = ("bytes_sent", "joules", "epsilon")
"""Values that evaluations record of every node in addition to the metrics."""


def frame(columns: Columns) -> Any:
    """A pandas.DataFrame of the columns; the columns themselves, name -> array [rows], where pandas is not
    installed.
    """
    try:
        import pandas
    except ImportError:
        return columns
    return pandas.DataFrame(columns)


def evaluations(records: Records) -> Columns:
    """A row per evaluation, node and metric; see `Run.evaluations`."""
    found = records.evaluations
    clusters = np.append(records.node_cluster, -1)  # a server is in none
    names = ("round", "time_s", "bytes", "node", "cluster", "metric", "value")
    parts: list[tuple[np.ndarray, ...]] = []
    for metric, values in found.values.items():
        at, node = np.nonzero(~np.isnan(values))
        costs = found.round[at], found.time_s[at], found.bytes_sent[at]
        parts.append((*costs, node, clusters[node], np.full(len(at), metric, dtype=object), values[at, node]))
    if not parts:
        return {name: np.zeros(0) for name in names}
    columns = {name: np.concatenate(each) for name, each in zip(names, zip(*parts, strict=True), strict=True)}
    order = np.lexsort((columns["node"], columns["metric"].astype(str), columns["round"]))
    return {name: values[order] for name, values in columns.items()}


def rounds(records: Records) -> Columns:
    """A row per measured round; see `Run.rounds`."""
    if (timetable := records.timetable) is not None:
        return {"round": timetable["round"], "time_s": timetable["last_s"], **timetable}
    found = records.evaluations
    costs = costs_of(records, found)
    columns: Columns = {"round": costs.pop("round"), "time_s": costs.pop("sim_time_s"), **costs}
    for metric in found.values:
        if metric in NODE_VALUES or not len(found):
            continue
        honest = found.honest(metric)[:, : records.num_nodes]
        columns |= metric_columns(metric, honest, records.node_cluster, records.judged_clusters, records.fair_lambda)
    return columns


def metric_columns(
    metric: str, honest: np.ndarray, node_cluster: np.ndarray, judged: np.ndarray, fair_lambda: float
) -> Columns:
    """Return the columns of a metric: its mean, its deviation over nodes, the means of clusters, and fair accuracy.

    Args:
        metric: its name.
        honest: values per evaluation and node, float [E, N]; nan for attackers and nodes that have not joined yet.
        node_cluster: cluster of each node, int [N].
        judged: clusters over which fairness is defined.
        fair_lambda: see `metrics.fair_accuracy`.
    """
    with np.errstate(invalid="ignore"):  # infinite ones, of nodes that have diverged
        known = [row[~np.isnan(row)] for row in honest]
        std = np.array([row.std() if len(row) else np.nan for row in known])
    of_clusters = metrics.over_clusters(honest, node_cluster)
    columns = {metric: metrics.over_nodes(honest), f"{metric}_std": std}
    columns |= {f"{metric}_{cluster}": curve for cluster, curve in enumerate(of_clusters.T)}
    if metric == "accuracy":
        columns["fair_accuracy"] = np.asarray(metrics.fair_accuracy(of_clusters[:, judged], fair_lambda))
    return columns


def rows(records: Records, name: str | None = None) -> Columns:
    """Everything that was recorded as a number; see `Run.rows`."""
    chosen = {key: found for key, found in records.rows.items() if name in (None, key)}
    columns = {
        "round": [found.round for found in chosen.values()],
        "time_s": [found.time_s for found in chosen.values()],
        "node": [found.node for found in chosen.values()],
        "name": [np.full(len(found), key, dtype=object) for key, found in chosen.items()],
        "value": [found.value for found in chosen.values()],
    }
    return {key: np.concatenate(parts) if parts else np.zeros(0) for key, parts in columns.items()}


def messages(records: Records) -> Columns:
    """A row per ordered pair of nodes; see `Run.messages`."""
    traffic = records.communication
    names = ("src", "dst", "messages", "payload", "header", "wasted", "in_flight")
    titles = {name: name if name in names[:3] else f"{name}_bytes" for name in names}
    if traffic is None:
        return {title: np.zeros(0, dtype=np.int64) for title in titles.values()}
    return {title: getattr(traffic, name) for name, title in titles.items()}


def links(records: Records) -> Columns:
    """A row per node; see `Run.links`."""
    return _by_node(records.links)


def energy(records: Records) -> Columns:
    """A row per node; see `Run.energy`."""
    columns = _by_node(records.energy)
    if records.energy is not None:
        columns["joules"] = records.energy.joules
        if records.gco2_per_kwh is not None:
            columns["gco2"] = np.asarray(grams(records.energy.joules, records.gco2_per_kwh))
    return columns


def _by_node(found: NodeColumns | None) -> Columns:
    """Return columns with the numbers of the nodes; -1 for totals."""
    if found is None:
        return {"node": np.zeros(0, dtype=int)}
    return {"node": np.arange(found.num_rows) if found.by_node else np.full(found.num_rows, -1), **found.values}


TABLES = {"evaluations": evaluations, "rounds": rounds, "messages": messages, "links": links, "rows": rows}


def write_tables(records: Records, folder: Path, kind: str) -> list[Path]:
    """Write the tables of evaluations, rounds, messages, links and rows (everything recorded), if they have rows.

    Args:
        records: of a run.
        folder: folder of the files, created if missing.
        kind: csv or parquet.
    Returns:
        The files.
    Raises:
        DataMissing: for Parquet, if pyarrow is not installed. ScenarioError: if the folder cannot be written to.
    """
    parquet: Any = needed("pyarrow.parquet", "parquet", "Parquet") if kind == "parquet" else None
    found = []
    with written_below(folder, "--out"):
        for name, make in TABLES.items():
            table = make(records)
            if not len(next(iter(table.values()))):
                continue
            path = folder / f"{name}.{kind}"
            if parquet is not None:
                columns = {key: column.tolist() for key, column in table.items()}
                parquet.write_table(needed("pyarrow", "parquet", "Parquet").table(columns), path)
            else:
                rows = zip(*(column.tolist() for column in table.values()), strict=True)
                path.write_text(comma_separated(list(table), list(rows)) + "\n", encoding="utf-8")
            found.append(path)
    return found
