"""Sections on traffic: from node to node by round, bytes by cause and by content, and the use of links."""

from collections.abc import Iterator

import numpy as np

from ddlsim.report.record_files import CAUSES, KINDS, Contacts, read_contents
from ddlsim.report.records import Communication, Records
from ddlsim.report.section import Axis, Bars, Frame, Lines, Section, Series
from ddlsim.report.sections import tables
from ddlsim.report.sections.about import Blocks, blocks_of
from ddlsim.report.text import evenly_spaced

GROUP = "Communication"
MOST_CELLS = 100_000
"""Most cells of all node-by-node pictures together, which limits the number of windows of rounds."""


def traffic_sections(records: Records) -> Iterator[Section]:
    """Yield the sections, as far as the run has recorded traffic."""
    for part in (pairs_by_round, pairs, bytes_by_cause, totals, contents, links):
        yield from part(records)


def totals(records: Records) -> Iterator[Section]:
    """Messages and bytes of the whole run, and bytes between clusters."""
    if records.communication is None:
        return
    table = tables.totals(records, records.communication)
    yield Section("totals", "Messages and bytes", GROUP, table=table)
    if records.communication.by_pair and len(records.group_of) > 1:
        table = tables.between_clusters(records)
        yield Section("clusters", "Bytes from cluster to cluster", GROUP, table=table)


def pairs_by_round(records: Records) -> Iterator[Section]:
    """Messages from each node to each other one, in windows of rounds."""
    contacts = records.contacts
    if contacts is None or not len(contacts.round):
        return
    blocks = _with_server(records, contacts)
    frames = _windows(contacts, blocks)
    word = "rounds" if len(contacts.rounds) > len(frames) else "round"
    figure = blocks.pair_heat(frames, "sender", "receiver", frame_title=word, choose="slider")
    about = "Messages that senders (rows) passed to the network for receivers (columns) in rounds."
    yield Section("contacts", "Senders and receivers by round", GROUP, about, figure=figure, notes=blocks.notes)


def _windows(contacts: Contacts, blocks: Blocks) -> list[Frame]:
    """Sums over equal windows of the recorded rounds; as many as `MOST_CELLS` allows."""
    rounds, size = contacts.rounds, len(blocks.labels)
    count = min(len(rounds), max(2, MOST_CELLS // size**2))
    starts = rounds[evenly_spaced(len(rounds), count + 1)[:-1]] if count < len(rounds) else rounds
    window = np.searchsorted(starts, contacts.round, side="right") - 1
    row = blocks.of_node()
    sums = np.zeros((len(starts), size, size))
    np.add.at(sums, (window, row[contacts.src], row[contacts.dst]), contacts.messages)
    ends = np.append(starts[1:] - 1, rounds[-1])
    labels = [str(a) if a == b else f"{a}–{b}" for a, b in zip(starts, ends, strict=True)]
    shown = np.where(sums > 0, sums, np.nan)
    return [Frame(label, values, "count") for label, values in zip(labels, shown, strict=True)]


def pairs(records: Records) -> Iterator[Section]:
    """Bytes from each node to each other one over the whole run."""
    found = records.communication
    if found is None or not found.by_pair or not len(found.src):
        return
    blocks = _with_server(records, found)
    row, size = blocks.of_node(), len(blocks.labels)
    frames = []
    for label, values in (("all bytes", found.on_the_wire), ("wasted", found.wasted), ("messages", found.messages)):
        sums = np.zeros((size, size))
        np.add.at(sums, (row[found.src], row[found.dst]), values)
        if sums.any():
            shown = np.where(sums > 0, sums, np.nan)
            frames.append(Frame(label, shown, "count" if label == "messages" else "bytes"))
    figure = blocks.pair_heat(frames, "sender", "receiver", frame_title="show")
    about = "Traffic of senders (rows) to receivers (columns). Only messages that arrived and were used are counted."
    yield Section("pairs", "Traffic of each pair, whole run", GROUP, about, figure=figure, notes=blocks.notes)


def _with_server(records: Records, found: Contacts | Communication) -> Blocks:
    """Rows of nodes, and of a server, whose number follows the last node's."""
    clusters = records.node_cluster
    if not len(found.src) or max(found.src.max(), found.dst.max()) < len(clusters):
        return blocks_of(clusters)
    blocks = blocks_of(np.append(clusters, clusters.max() + 1))
    blocks.labels[-1] = "server"
    return blocks


def bytes_by_cause(records: Records) -> Iterator[Section]:
    """Bytes by cause, per cluster of their sender."""
    links, found = records.links, records.communication
    if links is None and found is None:
        return
    clusters = records.node_cluster
    labels = [records.cluster_label(cluster) for cluster in range(clusters.max() + 1)]
    if links is not None and links.num_rows >= len(clusters):
        group = np.append(clusters, np.full(links.num_rows - len(clusters), clusters.max() + 1))
        labels += ["server"] * int(group.max() > clusters.max())
        parts = (*KINDS, *CAUSES, "in_flight")
        values = np.stack([np.bincount(group, links.values[f"{part}_bytes"]) for part in parts], 1)
        if records.has_clusters:
            labels, values = ["all nodes", *labels], np.vstack([values.sum(0), values])
        about = "Bytes by the cluster of their sender: used bytes by kind of message, wasted bytes by cause."
        words = [tables.CAUSE_WORDS[part] for part in parts]
    else:
        names = ("payload", "header", "wasted", "in_flight")
        words = [name.replace("_", " ") for name in names]
        values = np.array([[getattr(found, name).sum() for name in names]], dtype=float)
        labels, about = ["all nodes"], "Bytes of all nodes by cause."
    used = np.flatnonzero(values.any(0))
    figure = Bars(labels, [words[index] for index in used], values[:, used])
    yield Section("causes", "Bytes by cause", GROUP, about, figure=figure)


def contents(records: Records) -> Iterator[Section]:
    """Bytes of each round by what messages held."""
    found = read_contents(records.directory)
    if found is None:
        return
    rounds, by_content = found
    whole = Bars(["all nodes"], list(by_content), np.array([[values.sum() for values in by_content.values()]]))
    shown = {name: np.where(values > 0, values, np.nan) for name, values in by_content.items()}
    series = [Series(name, values, color, dash=color) for color, (name, values) in enumerate(shown.items())]
    lines = Lines([Axis("round", rounds)], "bytes", series, "bytes", log=True)
    about = "Counted when messages are passed to the network, each whole and once."
    about_lines = "All nodes together, on a logarithmic scale; a gap: none of it was sent in that round."
    table = tables.contents(by_content)
    yield Section("contents", "Bytes by content of messages", GROUP, about, table, whole)
    yield Section("contents-rounds", "Bytes of each round by content", GROUP, about_lines, figure=lines)


def links(records: Records) -> Iterator[Section]:
    """Use of every node's links, and queueing."""
    found, count = records.links, records.num_nodes
    if found is None:
        return
    yield Section("link-totals", "Links of all nodes", GROUP, table=tables.links(found))
    if found.num_rows < count:
        return
    blocks = blocks_of(records.node_cluster, most=256)
    first = np.array([block[0] for block in blocks.nodes])
    order = np.argsort(first)
    axis = Axis("node" if blocks.single else "first node of a block", first[order])

    def points(columns: dict[str, str]) -> list[Series]:
        means = {label: blocks.means(found.values[name][:count])[order] for label, name in columns.items()}
        return [Series(label, values, color) for color, (label, values) in enumerate(means.items())]

    use = points({"uplink": "uplink_utilization", "downlink": "downlink_utilization"})
    waits = points({"mean": "queueing_s", "longest": "max_queueing_s"})
    if any(np.isfinite(one.values).any() for one in use):
        figure = Lines([axis], "utilization", use, "percent", style="points", from_zero=True)
        about = "Bytes carried over capacity × time, over the whole run."
        yield Section("links", "Use of links", GROUP, about, figure=figure, notes=blocks.notes)
    if any(np.nansum(one.values) > 0 for one in waits):
        figure = Lines([axis], "queueing", waits, "seconds", style="points", from_zero=True)
        title = "Queueing of messages at their receivers"
        about = "Time that arrived messages spent in the network beyond what an empty one would take."
        yield Section("queueing", title, GROUP, about, figure=figure, notes=blocks.notes)
