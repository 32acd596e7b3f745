"""Sections on churn and energy: times online, work aborted by departures, and joules by cluster, purpose and
evaluation.
"""

import numpy as np

from ddlsim.devices.joules import PARTS
from ddlsim.report.records import Records, Rows
from ddlsim.report.section import Axis, Bars, Frame, Heat, Lines, Section, Series, Table
from ddlsim.report.sections.about import blocks_of, cluster_name
from ddlsim.report.summary_table import PURPOSES
from ddlsim.report.text import joules_text, seconds_text

GROUP = "Churn"
BINS = 240
"""Equal parts of simulated time."""


def churn_sections(records: Records) -> list[Section]:
    """The sections; none where every node was online all the time."""
    rows = records.rows.get("online")
    if rows is None:
        return []
    end_s = max(float(found.time_s.max()) for found in records.rows.values())
    times = np.linspace(0, end_s or 1.0, BINS + 1)
    return [timeline(records, rows, times), count(records, rows), *aborted(records, times)]


def online_shares(rows: Rows, num_nodes: int, times: np.ndarray) -> np.ndarray:
    """Share of each interval between `times` that each node was online, float [N, len(times) - 1]."""
    shares = np.ones((num_nodes, len(times) - 1))
    widths = np.diff(times)
    for node in np.unique(rows.node[rows.node >= 0]):
        own = rows.node == node
        order = np.argsort(rows.time_s[own], kind="stable")
        switched, state = rows.time_s[own][order], rows.value[own][order] > 0
        points = np.concatenate([[times[0]], switched, [times[-1]]])
        states = np.concatenate([[not state[0]], state]).astype(float)
        online_until = np.concatenate([[0.0], np.cumsum(states * np.diff(points))])
        shares[node] = np.diff(np.interp(times, points, online_until)) / widths
    return shares.clip(0, 1)


def timeline(records: Records, rows: Rows, times: np.ndarray) -> Section:
    """Nodes by parts of simulated time."""
    blocks = blocks_of(records.node_cluster)
    shares = blocks.means(online_shares(rows, records.num_nodes, times).T).T
    return Section(
        "online",
        "Which nodes were online",
        GROUP,
        f"Simulated time in {len(times) - 1} equal parts; the color is the share of a part that a node was online.",
        figure=Heat(
            [Frame("online", shares, "percent")],
            blocks.labels,
            [seconds_text(start) for start in times[:-1]],
            blocks.row_title,
            "simulated time",
            borders=blocks.borders,
            ramp="share",
        ),
        notes=blocks.notes,
    )


def count(records: Records, rows: Rows) -> Section:
    """Number of online nodes over time."""
    order = np.argsort(rows.time_s, kind="stable")
    first = {int(node): value for node, value in zip(rows.node[order][::-1], rows.value[order][::-1], strict=True)}
    there = records.num_nodes - sum(value > 0 for value in first.values())  # first event: an arrival
    changes = np.where(rows.value[order] > 0, 1, -1)
    times, last = np.unique(rows.time_s[order], return_index=True)
    values = (there + np.cumsum(changes))[np.append(last[1:] - 1, len(changes) - 1)]
    figure = Lines(
        [Axis("simulated time", np.append(0.0, times) if times[0] > 0 else times, "seconds")],
        "nodes online",
        [Series("nodes online", np.append(there, values) if times[0] > 0 else values, 0)],
        "count",
        style="step",
        from_zero=True,
    )
    return Section("online-count", "How many nodes were online", GROUP, figure=figure)


def aborted(records: Records, times: np.ndarray) -> list[Section]:
    """Messages on their way from or to nodes that left, which never arrived."""
    rows = records.rows.get("aborted")
    if rows is None:
        return []
    sums, _ = np.histogram(rows.time_s, times, weights=rows.value)
    middle = (times[:-1] + times[1:]) / 2
    return [
        Section(
            "aborted",
            "Transfers aborted by departures",
            GROUP,
            f"Messages that were on their way from or to a node when it left, in {len(middle)} equal parts of time: "
            f"{int(rows.value.sum()):,} in all, at {len(rows):,} of the departures.",
            figure=Lines(
                [Axis("simulated time", middle, "seconds")],
                "messages",
                [Series("aborted messages", sums, 1)],
                "count",
                style="bars",
                from_zero=True,
            ),
        )
    ]


ENERGY = "Energy"


def energy_sections(records: Records) -> list[Section]:
    """The sections, as far as energy was counted."""
    found = [over_time(records), by_purpose(records)]
    return [section for section in found if section is not None]


def over_time(records: Records) -> Section | None:
    """Joules per node of each cluster over rounds and simulated time."""
    evaluations = records.curve
    recorded = evaluations.values.get("joules")
    if recorded is None or not len(evaluations):
        return None
    clusters, sizes = records.node_cluster, np.bincount(records.node_cluster)
    series = [
        Series(cluster_name(cluster, sizes), recorded[:, : len(clusters)][:, clusters == cluster].mean(1), cluster)
        for cluster in range(len(sizes))
    ]
    axes = [Axis("round", evaluations.round), Axis("simulated time", evaluations.time_s, "seconds")]
    about = "Joules spent since the start, mean over a cluster's nodes; see docs/energy.md for what is counted."
    return Section("energy-rounds", "Energy per node", ENERGY, about, figure=Lines(axes, "energy", series, "joules"))


def by_purpose(records: Records) -> Section | None:
    """Joules by purpose, per cluster and of a server: means over their nodes."""
    energy, clusters = records.energy, records.node_cluster
    if energy is None:
        return None
    about = "Of the whole run, aborted trainings and wasted bytes included."
    if not energy.by_node:
        values = np.array([[energy.values[name].sum() for name in PARTS]])
        figure = Bars(["all nodes"], list(PURPOSES.values()), values, "joules")
        return Section("energy", "Energy by purpose", ENERGY, about, figure=figure)
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
    return Section("energy", "Energy by purpose", ENERGY, f"Mean over the nodes of a cluster. {about}", table, figure)
