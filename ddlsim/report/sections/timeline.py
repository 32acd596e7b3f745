"""Sections on simulated time (its use by each cluster, activities of nodes in a window), and a trace for Perfetto."""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from ddlsim.report.record_files import TIME_USES, read_time_use, read_timeline
from ddlsim.report.records import Records
from ddlsim.report.section import Bars, Frame, Heat, Section
from ddlsim.report.sections.about import MOST_ROWS, cluster_name
from ddlsim.report.text import evenly_spaced, seconds_text

GROUP = "Time"
BINS = 300
"""Equal parts of the window."""
ACTIVITIES = ("waiting", "computing", "sending", "receiving", "sending and receiving", "offline")


def uses(records: Records) -> Iterator[Section]:
    """Return a chart of the seconds of each use, mean over the nodes of a cluster."""
    rows = read_time_use(records.directory)
    if rows is None:
        return
    values = np.array([[row[f"{name}_s"] for name in TIME_USES] for row in rows], dtype=float)
    labels, sizes = ["all nodes"], np.bincount(records.node_cluster)
    if rows[0]["node"] is None:
        values = values[:1] / rows[0]["nodes"]
    else:
        labels = [cluster_name(cluster, sizes) for cluster in range(len(sizes))]
        means = [values[: records.num_nodes][records.node_cluster == cluster].mean(0) for cluster in range(len(sizes))]
        server = values[records.num_nodes :]
        values, labels = np.vstack([*means, *server]), labels + ["server"] * len(server)
    about = (
        "Seconds per node. Waiting ends when the last awaited message is sent, transfer when it arrives; other is the "
        "time after the last round, asleep or in collectives."
    )
    yield Section("time-use", "Where the time went", GROUP, about, figure=Bars(labels, TIME_USES, values, "seconds"))


def timeline(records: Records, summary: dict) -> Iterator[Section]:
    """Return a heat map of activities: nodes by parts of a window of simulated time."""
    found = read_timeline(records.directory)
    if found is None or not found[1]:
        return
    (start_s, end_s), periods = found
    edges = np.linspace(start_s, end_s, BINS + 1)
    nodes = _chosen(records, summary)
    figure = Heat(
        [Frame("activity", activities(periods, nodes, (edges[:-1] + edges[1:]) / 2).astype(float))],
        [str(node) for node in nodes],
        [seconds_text(edge) for edge in edges[:-1]],
        "node (by cluster)",
        "simulated time",
        borders=(np.flatnonzero(np.diff(records.node_cluster[nodes])) + 1).tolist(),
        categories=ACTIVITIES,
    )
    about = (
        f"{seconds_text(start_s)} to {seconds_text(end_s)} in {BINS} equal parts; the color is the activity in the "
        "middle of a part. A node that computes may also send or receive. records.timeline sets another window; "
        "`ddlsim export RUN --trace FILE` writes all periods for Perfetto."
    )
    notes = [] if len(nodes) == records.num_nodes else [f"The chart shows {len(nodes)} of {records.num_nodes:,} nodes."]
    yield Section("timeline", "Timeline", GROUP, about, figure=figure, notes=notes)


def activities(periods: list[dict], nodes: np.ndarray, times_s: np.ndarray) -> np.ndarray:
    """Return the activity of each of these nodes at each time, int [nodes, times], as an index into ACTIVITIES."""
    row_of = {node: row for row, node in enumerate(nodes.tolist())}
    masks = {name: np.zeros((len(nodes), len(times_s)), dtype=bool) for name in ("computing", "offline", "out", "in")}
    for period in periods:
        first, stop = np.searchsorted(times_s, [period["start_s"], period["end_s"]])
        is_message = period["what"] == "message"
        for what, node in (
            [("out", period["node"]), ("in", period["peer"])] if is_message else [(period["what"], period["node"])]
        ):
            if node in row_of and what in masks:
                masks[what][row_of[node], first:stop] = True
    sends, receives = masks["out"], masks["in"]
    states = [masks["offline"], masks["computing"], sends & receives, receives, sends]
    return np.select(states, [5, 1, 4, 3, 2], 0)


def _chosen(records: Records, summary: dict) -> np.ndarray:
    """Return the nodes of the chart, by cluster: all, or evenly spaced nodes and the node with the longest waits."""
    order = np.argsort(records.node_cluster, kind="stable")
    if len(order) <= MOST_ROWS:
        return order
    waited_for = ((summary.get("time_use") or {}).get("waited_for") or {}).get("node")
    kept = order[evenly_spaced(len(order), MOST_ROWS)]
    if waited_for is not None and waited_for < records.num_nodes and waited_for not in kept:
        kept[-1] = waited_for
    return kept[np.argsort(records.node_cluster[kept], kind="stable")]


TRACKS = ("compute", "send", "receive", "wait", "offline")


def trace(records: Records) -> str:
    """Return the periods as JSON in Chrome's trace event format: a process per node, a thread per track and lane.

    Overlapping periods of one track (messages to several nodes) have separate lanes, since slices of a thread may not
    overlap partly.
    """
    found = read_timeline(records.directory)
    slices: dict[tuple[int, int], list[tuple[float, float, str, dict[str, Any]]]] = defaultdict(list)
    for row in [] if found is None else found[1]:
        more = {key: value for key, value in row.items() if key not in ("what", "node", "start_s", "end_s", "peer")}
        span, node, peer = (row["start_s"], row["end_s"]), row["node"], row.get("peer", -1)
        if row["what"] == "message":
            slices[node, 1].append((*span, f"to {peer}", {"to": peer, **more}))
            slices[peer, 2].append((*span, f"from {node}", {"from": node, **more}))
        elif row["what"] == "waiting":
            slices[node, 3].append((*span, "waiting" if peer < 0 else f"waiting for {peer}", more))
        else:
            slices[node, 0 if row["what"] == "computing" else 4].append((*span, row["what"], more))
    events: list[dict[str, Any]] = []
    for node in sorted({node for node, _ in slices}):
        events.append({"ph": "M", "name": "process_name", "pid": node, "args": {"name": f"node {node}"}})
    for (node, track), of_track in sorted(slices.items()):
        lanes: list[float] = []
        for start_s, end_s, name, more in sorted(of_track, key=lambda one: one[:3]):
            lane = next((number for number, free_s in enumerate(lanes) if free_s <= start_s), len(lanes))
            thread = {"pid": node, "tid": 1000 * track + lane}
            if lane == len(lanes):
                lanes.append(0.0)
                title = TRACKS[track] + (f" {lane + 1}" if lane else "")
                events.append({"ph": "M", "name": "thread_name", **thread, "args": {"name": title}})
            lanes[lane] = end_s
            times = {"ts": start_s * 1e6, "dur": (end_s - start_s) * 1e6}
            events.append({"ph": "X", "name": name, "cat": TRACKS[track], **thread, **times, "args": more})
    return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})
