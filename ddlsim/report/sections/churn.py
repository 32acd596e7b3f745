"""Sections on churn and energy: times online, work aborted by departures, and joules by cluster, purpose and
evaluation.
"""

from collections.abc import Iterator

import numpy as np

from ddlsim.devices.energy import PARTS
from ddlsim.report.records import Records, Rows
from ddlsim.report.section import Axis, Bars, Frame, Lines, Section, Series, Table
from ddlsim.report.sections.about import blocks_of
from ddlsim.report.summary_table import PURPOSES
from ddlsim.report.text import joules_text, seconds_text

GROUP = "Churn"
BINS = 240
"""Equal parts of simulated time."""


def churn_sections(records: Records) -> Iterator[Section]:
    """Yield the sections; none if every node was online all the time."""
    rows = records.rows.get("online")
    if rows is None:
        return
    end_s = max(float(found.time_s.max()) for found in records.rows.values())
    times = np.linspace(0, end_s or 1.0, BINS + 1)
    yield timeline(records, rows, times)
    yield count(records, rows)
    yield from aborted(records, times)


def online_shares(rows: Rows, num_nodes: int, times: np.ndarray) -> np.ndarray:
    """Share of each interval between `times` that each node was online, float [N, len(times) - 1]."""
    shares = np.ones((num_nodes, len(times) - 1))
    widths = np.diff(times)
    for node in np.unique(rows.node[rows.node >= 0]):
        of_node = rows.node == node
        order = np.argsort(rows.time_s[of_node], kind="stable")
        switched, state = rows.time_s[of_node][order], rows.value[of_node][order] > 0
        points = np.concatenate([[times[0]], switched, [times[-1]]])
        states = np.concatenate([[not state[0]], state]).astype(float)
        online_until = np.concatenate([[0.0], np.cumsum(states * np.diff(points))])
        shares[node] = np.diff(np.interp(times, points, online_until)) / widths
    return shares.clip(0, 1)


def timeline(records: Records, rows: Rows, times: np.ndarray) -> Section:
    """Nodes by parts of simulated time."""
    blocks = blocks_of(records.node_cluster)
    shares = blocks.means(online_shares(rows, records.num_nodes, times).T).T
    starts = [seconds_text(start) for start in times[:-1]]
    figure = blocks.heat([Frame("online", shares, "percent")], starts, "simulated time", ramp="share")
    about = f"Simulated time in {len(starts)} equal parts; the color is the share of a part that a node was online."
    return Section("online", "Online nodes", GROUP, about, figure=figure, notes=blocks.notes)


def count(records: Records, rows: Rows) -> Section:
    """Number of online nodes over time."""
    order = np.argsort(rows.time_s, kind="stable")
    first = {int(node): value for node, value in zip(rows.node[order][::-1], rows.value[order][::-1], strict=True)}
    before = records.num_nodes - sum(value > 0 for value in first.values())  # first event: an arrival
    changes = np.where(rows.value[order] > 0, 1, -1)
    times, last = np.unique(rows.time_s[order], return_index=True)
    values = (before + np.cumsum(changes))[np.append(last[1:] - 1, len(changes) - 1)]
    if times[0] > 0:
        times, values = np.append(0.0, times), np.append(before, values)
    axis, series = Axis("simulated time", times, "seconds"), Series("online nodes", values, 0)
    figure = Lines([axis], "online nodes", [series], "count", style="step", from_zero=True)
    return Section("online-count", "Number of online nodes", GROUP, figure=figure)


def aborted(records: Records, times: np.ndarray) -> Iterator[Section]:
    """Messages on their way from or to nodes that left, which never arrived."""
    rows = records.rows.get("aborted")
    if rows is None:
        return
    sums, _ = np.histogram(rows.time_s, times, weights=rows.value)
    middle = (times[:-1] + times[1:]) / 2
    numbers = f"{int(rows.value.sum()):,} in all, at {len(rows):,} of the departures"
    about = f"Messages under way from or to a node when it left, in {len(middle)} equal parts of time: {numbers}."
    axis, series = Axis("simulated time", middle, "seconds"), Series("aborted messages", sums, 1)
    figure = Lines([axis], "messages", [series], "count", style="bars", from_zero=True)
    yield Section("aborted", "Transfers aborted by departures", GROUP, about, figure=figure)


ENERGY = "Energy"


def energy_by_purpose(records: Records) -> Iterator[Section]:
    """Joules by purpose, per cluster and of a server: means over their nodes."""
    energy, clusters = records.energy, records.node_cluster
    if energy is None:
        return
    about = "Of the whole run, aborted trainings and wasted bytes included."
    if not energy.by_node:
        values = np.array([[energy.values[name].sum() for name in PARTS]])
        figure = Bars(["all nodes"], list(PURPOSES.values()), values, "joules")
        yield Section("energy", "Energy by purpose", ENERGY, about, figure=figure)
        return
    groups = {records.cluster_label(c): np.flatnonzero(clusters == c) for c in range(int(clusters.max()) + 1)}
    if len(energy.joules) > len(clusters):
        groups["server"] = np.array([len(clusters)])
    values = np.array([[energy.values[name][nodes].mean() for name in PARTS] for nodes in groups.values()])
    rows = [
        [
            name,
            *(seconds_text(float(energy.values[column][nodes].mean())) for column in ("computing_s", "idle_s")),
            *(joules_text(float(joules)) for joules in (*of_group, energy.joules[nodes].mean())),
        ]
        for (name, nodes), of_group in zip(groups.items(), values, strict=True)
    ]
    header = ["per node", "computing", "idle", *(f"{title} J" for title in PURPOSES.values()), "all J"]
    table = Table(header, rows, title="Energy per node, mean over a cluster")
    figure = Bars(list(groups), list(PURPOSES.values()), values, "joules")
    yield Section("energy", "Energy by purpose", ENERGY, f"Mean over the nodes of a cluster. {about}", table, figure)
