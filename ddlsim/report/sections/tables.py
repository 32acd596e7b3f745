"""Sections as tables: printed in place of figures by a text report, thinned to few lines."""

from collections.abc import Mapping

import numpy as np

from ddlsim.report import text as formats
from ddlsim.report.record_files import CAUSES, KINDS, Links
from ddlsim.report.records import Communication, Records
from ddlsim.report.section import Table
from ddlsim.tasks import metrics
from ddlsim.tasks.base import ACCURACY

MOST_ROWS = 16
CAUSE_WORDS = {
    "push": "pushed models",
    "request": "requests",
    "response": "answers",
    "ack": "acknowledgements",
    "aborted": "wasted: sender or receiver left",
    "lost": "wasted: lost by the network",
    "unused": "wasted: arrived, not used",
    "in_flight": "in flight at the end",
}
"""Causes of bytes in links.jsonl -> words."""


def curve(records: Records, target: float | None) -> Table:
    """Return the judging metric per cluster; long runs are thinned to evenly spaced evaluations.

    The first and the last evaluation are always included, and so is the first one that reaches the target, marked `*`.
    """
    evaluations, clusters, metric = records.curve, records.node_cluster, records.judged_by
    everyone = metrics.over_nodes(evaluations.quality)
    per_cluster = metrics.over_clusters(evaluations.quality, clusters)
    reached = None if target is None else metrics.first_reaching(everyone, target, metric.falling)
    columns = {
        "round": [f"{number}{'*' if index == reached else ''}" for index, number in enumerate(evaluations.round)],
        "sim time": [formats.seconds_text(time_s) for time_s in evaluations.time_s],
        "bytes": [formats.bytes_text(count) for count in evaluations.bytes_sent],
    }
    if evaluations.joules is not None:
        columns["energy"] = [formats.joules_text(joules) for joules in evaluations.joules]
    columns[records.judged_nodes.removesuffix(" nodes")] = [metric.text(value) for value in everyone]
    if records.has_clusters:
        columns |= {f"cluster {c}": [metric.text(value) for value in each] for c, each in enumerate(per_cluster.T)}
    if metric == ACCURACY and records.has_clusters:
        fair = metrics.fair_accuracy(per_cluster[:, records.judged_clusters], records.fair_lambda)
        columns["fair"] = [formats.percent_text(value) for value in np.atleast_1d(fair)]
    rows = [[texts[index] for texts in columns.values()] for index in thinned(len(evaluations), reached)]
    side, unit = "below" if metric.falling else "above", " %" if metric.share else ""
    note = f"* first evaluation at or {side} the target {metric.text(target)}{unit}"
    quality = metric.head[:1].upper() + metric.head[1:] + (" per cluster" if records.has_clusters else "")
    title = f"{quality} over rounds, simulated time and bytes of all nodes"
    return Table(list(columns), rows, left=0, title=title, note="" if reached is None else note)


def thinned(count: int, also: int | None, most: int = MOST_ROWS) -> list[int]:
    """Return the numbers of the shown rows of `count`, and `also`."""
    chosen = set(formats.evenly_spaced(count, most).tolist())
    return sorted(chosen if also is None else chosen | {also})


def timetable(rounds: list[dict]) -> Table:
    """Times at which the first, the median and the last node had completed each round; thinned like the curve."""
    rows = []
    for index in thinned(len(rounds), None):
        row = rounds[index]
        times = (formats.seconds_text(row[name]) for name in ("first_s", "median_s", "last_s"))
        rows.append([f"{row['round']}", *times, f"{row['nodes']:.0f}"])
    header = ["round", "first", "median", "last", "nodes"]
    return Table(header, rows, left=0, title="Completion of each round, simulated time")


def heads(records: Records) -> Table | None:
    """Number of nodes of each cluster that used each head, over the evaluations; thinned like the curve."""
    found, clusters = records.heads(), records.node_cluster
    if found is None:
        return None
    rounds, chosen = found
    num_heads = chosen.max() + 1
    rows = []
    for index in thinned(len(chosen), None):
        counts = metrics.head_counts(chosen[index], clusters)
        padded = np.pad(counts, ((0, 0), (0, num_heads - counts.shape[1])))
        rows.append([str(rounds[index]), *(" ".join(map(str, row)) for row in padded)])
    names = [f"cluster {cluster}" for cluster in range(clusters.max() + 1)] if records.has_clusters else ["all nodes"]
    header, by_cluster = ["round", *names], ", by cluster" if records.has_clusters else ""
    title, note = f"Nodes per head{by_cluster}, at the evaluations", f"(numbers of nodes on head 0 to {num_heads - 1})"
    return Table(header, rows, left=0, title=title, note=note)


def totals(records: Records, traffic: Communication) -> Table:
    """Messages and bytes of all nodes."""
    has_server = "server" in records.group_of
    total, ends = int(traffic.on_the_wire.sum()), records.num_nodes + has_server
    per_node = "per node, mean" + (", with its share of the server's" if has_server else "")
    lines = [
        ("messages", f"{traffic.messages.sum():,}"),
        ("bytes sent", formats.bytes_text(total)),
        (per_node, formats.bytes_text(total / records.num_nodes)),
        ("pairs with traffic", f"{traffic.num_pairs} of {ends * (ends - 1)}"),
    ]
    return Table((), lines, title="Communication")


def between_clusters(records: Records) -> Table:
    """Bytes sent from cluster to cluster."""
    matrix, groups = records.traffic_matrix, records.group_of
    rows = [
        [name, *(formats.bytes_text(matrix[np.ix_(senders, receivers)].sum()) for receivers in groups.values())]
        for name, senders in groups.items()
    ]
    return Table(["from, to", *groups], rows)


def contents(num_bytes: Mapping[str, np.ndarray]) -> Table:
    """Bytes by content of messages: sums over rounds, and the mean of the rounds in which the content was sent."""
    rows = [
        (
            name,
            formats.bytes_text(int(values.sum())),
            formats.bytes_text(float(values[values > 0].mean()) if values.any() else 0),
        )
        for name, values in num_bytes.items()
    ]
    return Table(["", "sent", "per round"], rows)


def links(found: Links) -> Table:
    """Bytes by kind and cause, use of links, queueing."""
    sums = found.bytes_of(*KINDS, *CAUSES, "in_flight")
    lines = [(CAUSE_WORDS[name], formats.bytes_text(value)) for name, value in sums.items() if value]
    for link in ("uplink", "downlink"):
        use = found.utilization(link)
        if use["mean"] is not None:
            shown = use if found.by_node else {"mean": use["mean"]}
            texts = (f"{name} {formats.percent_text(share)}" for name, share in shown.items())
            lines.append((f"{link} utilization %", ", ".join(texts)))
    queued = found.queueing_s()
    if queued["mean"] is not None:
        texts = (f"{name} {formats.prefixed(seconds, formats.SHORT_SECONDS)}" for name, seconds in queued.items())
        lines.append(("queueing per message", ", ".join(texts)))
    return Table((), lines, left=2, title="Links")
