"""One run in depth, as text: its summary, its curves, the heads its clusters chose, and traffic by pair."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from ddlsim import metrics
from ddlsim.errors import DdlsimError
from ddlsim.report import link_table
from ddlsim.report.comparing.tables import compare
from ddlsim.report.json_lines import damage_of
from ddlsim.report.payload_table import read_contents
from ddlsim.report.payload_table import table as contents_table
from ddlsim.report.published import published, source
from ddlsim.report.records import Records
from ddlsim.report.summary import quality, raise_it, read_all, table
from ddlsim.report.text import bytes_text, columns, number_text, percent_text, seconds_text
from ddlsim.tasks.metric import ACCURACY

MAX_CURVE_ROWS = 16


def report(run_dirs: Iterable[str | Path], on_damaged: Callable[[DdlsimError], None] = raise_it) -> str:
    """Every run in depth, and a comparison behind them if there are several.

    Args:
        run_dirs: run directories, or folders with runs below them.
        on_damaged: takes the error of a run that cannot be read, which is then left out; by default it is raised.
    Raises:
        ScenarioError: if one of them is no run and holds none.
        RecordsDamaged: see `on_damaged`.
    """
    parts, shown = [], []
    for records, summary in read_all(run_dirs, on_damaged):
        try:
            with damage_of(records.directory):
                parts.append(_one(records, summary))
        except DdlsimError as error:
            on_damaged(error)
        else:
            shown.append(records.directory)
    if len(shown) > 1:
        parts.append(_section("All runs", compare(shown)))
    return "\n\n\n".join(parts) + "\n" if parts else ""


def _one(records: Records, summary: dict) -> str:
    parts = [_section(str(records.directory), table(summary, terminal=False))]
    if len(records.evaluations):
        what = records.judged_by.head
        title = f"{what[:1].upper()}{what[1:]} per cluster over rounds, simulated time and bytes of all nodes"
        parts.append(_section(title, curve(records, records.target)))
    if records.heads() is not None:
        parts.append(_section("Nodes per head, by cluster, at the evaluations", heads(records)))
    if summary["timetable"]:
        parts.append(_section("Nodes through each round, simulated time", timetable(summary["timetable"])))
    if records.communication is not None:
        parts.append(_section("Communication", communication(records)))
    contents = read_contents(records.directory)
    if contents is not None:
        parts.append(_section("Bytes by what messages hold", contents_table(contents[1])))
    if records.links is not None:
        parts.append(_section("Links", link_table.table(records.links)))
    beside = beside_published(records, summary)
    if beside:
        parts.append(_section(f"Published numbers ({source(records.scenario)}) beside ours", beside))
    return "\n\n".join(parts)


def _section(title: str, body: str) -> str:
    return f"{title}\n{'=' * len(title)}\n{body}"


def curve(records: Records, target: float | None) -> str:
    """What the nodes are judged by, per cluster; long runs are thinned to evaluations evenly spread.

    The first and the last evaluation are always there, and so is the first one that reaches the target, marked `*`.
    """
    evaluations, clusters, metric = records.evaluations, records.node_cluster, records.judged_by
    everyone = metrics.over_nodes(evaluations.quality)
    per_cluster = metrics.over_clusters(evaluations.quality, clusters)
    reached = None if target is None else metrics.first_reaching(everyone, target, metric.falling)
    fair = None
    if metric == ACCURACY:
        fair = metrics.fair_accuracy(per_cluster, (records.scenario.get("evaluation") or {}).get("fair_lambda", 2 / 3))
    rows = []
    for index in _thinned(len(evaluations), reached):
        rows.append(
            [
                f"{evaluations.round[index]}{'*' if index == reached else ''}",
                seconds_text(evaluations.time_s[index]),
                bytes_text(evaluations.bytes_sent[index]),
                metric.text(everyone[index]),
                *(metric.text(value) for value in per_cluster[index]),
                *([] if fair is None else [percent_text(fair[index])]),
            ]
        )
    header = ["round", "sim time", "bytes", "all", *(f"cluster {c}" for c in range(per_cluster.shape[1]))]
    text = columns(header + ([] if fair is None else ["fair"]), rows, left=0)
    if reached is None:
        return text
    side, unit = "below" if metric.falling else "above", " %" if metric.share else ""
    return f"{text}\n* first evaluation at or {side} the target {metric.text(target)}{unit}"


def _thinned(count: int, also: int | None, most: int = MAX_CURVE_ROWS) -> list[int]:
    kept = set(np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist())
    return sorted(kept if also is None else kept | {also})


def timetable(rounds: list[dict]) -> str:
    """When the first, the median and the last node had completed each round; thinned like the curve."""
    rows = []
    for index in _thinned(len(rounds), None):
        row = rounds[index]
        times = (seconds_text(row[name]) for name in ("first_s", "median_s", "last_s"))
        rows.append([f"{row['round']}", *times, f"{row['nodes']:.0f}"])
    return columns(["round", "first", "median", "last", "nodes"], rows, left=0)


def heads(records: Records) -> str:
    """How many nodes of each cluster used each head, over the evaluations; thinned like the curve."""
    chosen, clusters = records.heads(), records.node_cluster
    rounds = records.evaluations.round[-len(chosen) :]
    num_heads = chosen.max() + 1
    rows = []
    for index in _thinned(len(chosen), None):
        counts = metrics.head_counts(chosen[index], clusters)
        padded = np.pad(counts, ((0, 0), (0, num_heads - counts.shape[1])))
        rows.append([str(rounds[index]), *(" ".join(map(str, row)) for row in padded)])
    header = ["round", *(f"cluster {cluster}" for cluster in range(clusters.max() + 1))]
    return f"{columns(header, rows, left=0)}\n(numbers of nodes on head 0 to {num_heads - 1})"


def communication(records: Records) -> str:
    """Totals by cause, and how much went from cluster to cluster."""
    traffic = records.communication
    total = int(traffic.on_the_wire.sum())
    lines = [
        ("messages", f"{traffic.messages.sum():,}"),
        ("bytes sent", bytes_text(total)),
        ("  payload", bytes_text(int(traffic.payload.sum()))),
        ("  header", bytes_text(int(traffic.header.sum()))),
        ("  wasted", bytes_text(int(traffic.wasted.sum()))),
        ("per node, mean", bytes_text(total / records.num_nodes)),
        ("pairs with traffic", f"{traffic.num_pairs} of {records.num_nodes * (records.num_nodes - 1)}"),
    ]
    if not traffic.by_pair:
        return columns([], lines)
    matrix, groups = records.traffic_matrix, records.group_of
    rows = [
        [name, *(bytes_text(matrix[np.ix_(senders, receivers)].sum()) for receivers in groups.values())]
        for name, senders in groups.items()
    ]
    return "\n\n".join([columns([], lines), columns(["from, to", *groups], rows)])


def beside_published(records: Records, summary: dict) -> str:
    """Published and own numbers in one table; empty if the scenario carries none."""
    ours = quality(summary)
    rows = []
    for name, value in published(records.scenario, len(summary["cluster_sizes"])).items():
        own = ours.get(name)
        as_text, points, digits = (percent_text, 100, 2) if "accuracy" in name else (number_text, 1, 4)
        difference = "-" if own is None else f"{points * (own - value):+z.{digits}f}"
        rows.append([name + (" %" if points == 100 else ""), as_text(value), as_text(own), difference])
    if not rows:
        return ""
    text = columns(["", "published", "ours", "difference"], rows)
    note = records.scenario["paper"].get("note")
    if note:
        text += f"\npublished: {note}"
    if summary["data"]["fallback"]:
        text += f"\n!! ours is on fallback data ({summary['data']['name']}): the columns are not comparable"
    return text
