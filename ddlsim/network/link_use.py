"""Bytes of every pair of nodes, use of every node's bytes, utilization of its links, and queueing of its messages.

Bytes are counted for their sender. Used bytes are distinguished by the kind of their message (push, request, response;
TCP's acknowledgements, which the receivers of messages send), unused bytes by the reason:

- aborted: sender or receiver went offline while the message was on its way, or it was given up;
- lost: the network lost the message (network.drop_probability), whether it was sent again or not;
- unused: the message arrived, but no algorithm ever saw it: its round had closed, it was too stale, a newer one of the
  same sender replaced it, or its receiver left, lost its state or had finished before it read the message.

csrc/flow/link_use.h counts the bytes when messages end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ddlsim.network.link_table import Route
from ddlsim.network.messages.message import COLLECTIVE, EXCHANGE, PUSH, REQUEST, RESPONSE, SCORE, SCORE_REQUEST, SECURE

KINDS = {PUSH: 0, REQUEST: 1, RESPONSE: 2, SCORE_REQUEST: 1, SCORE: 2, SECURE: 0, EXCHANGE: 1, COLLECTIVE: 0}
"""Kind of message -> category of its bytes, a Fate of csrc/flow/link_use.h; other kinds are not distinguished."""


@dataclass(frozen=True)
class Traffic:
    """One entry per ordered pair that had traffic, sorted by (src, dst); int64 arrays [pairs].

    `messages`, `payload_bytes` and `header_bytes` count messages that arrived and were used, `wasted_bytes` all other
    ended messages (link_use.py distinguishes them), `in_flight_bytes` those still on their way. All bytes put on the
    wire are the sum of the four.
    """

    src: np.ndarray
    dst: np.ndarray
    messages: np.ndarray
    payload_bytes: np.ndarray
    header_bytes: np.ndarray
    wasted_bytes: np.ndarray
    in_flight_bytes: np.ndarray

    @property
    def on_the_wire(self) -> np.ndarray:
        """All bytes put on the wire, [pairs]."""
        return self.payload_bytes + self.header_bytes + self.wasted_bytes + self.in_flight_bytes

    def __len__(self) -> int:
        return len(self.src)

    def carried_bytes(self, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
        """Return all bytes that each node's uplink and downlink carried, int64 [num_nodes] each."""
        sent, received = (np.bincount(nodes, self.on_the_wire, num_nodes) for nodes in (self.src, self.dst))
        return sent.astype(np.int64), received.astype(np.int64)

    def rows(self) -> Iterator[dict[str, int]]:
        """Return the pairs as dictionaries of plain integers, keys in the order of the fields."""
        return _rows(self)

    def total(self) -> dict[str, int | None]:
        """Return the sums over all pairs as one row without a pair, and the number of pairs."""
        sums = {field.name: int(getattr(self, field.name).sum()) for field in fields(self)}
        return {**sums, "src": None, "dst": None, "pairs": len(self)}


def with_flying(
    ended: dict[str, np.ndarray], flying: tuple[np.ndarray, np.ndarray, np.ndarray], num_nodes: int
) -> Traffic:
    """Return traffic of ended messages, as columns sorted by pair, and of messages on their way.

    Args:
        ended: the fields of Traffic except `in_flight_bytes`.
        flying: (src, dst, bytes on the wire so far) of messages, int64; several may have one pair.
        num_nodes: N.
    """
    src, dst, num_bytes = flying
    if not len(src):
        return Traffic(**ended, in_flight_bytes=np.zeros(len(ended["src"]), dtype=np.int64))
    of_ended, of_flying = ended["src"] * num_nodes + ended["dst"], src * num_nodes + dst
    pairs = np.union1d(of_ended, of_flying)
    columns = {"src": pairs // num_nodes, "dst": pairs % num_nodes}
    for name in ("messages", "payload_bytes", "header_bytes", "wasted_bytes"):
        columns[name] = np.zeros(len(pairs), dtype=np.int64)
        columns[name][np.searchsorted(pairs, of_ended)] = ended[name]
    in_flight = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(in_flight, np.searchsorted(pairs, of_flying), num_bytes)
    return Traffic(**columns, in_flight_bytes=in_flight)


@dataclass(frozen=True)
class NodeUse:
    """Arrays [N] over nodes; bytes int64, the others float64.

    Args:
        uplink_utilization, downlink_utilization: bytes carried / (capacity x time), 0 to 1, over the whole run, parts
            of messages included; nan if links take no time (fidelity latency or ideal) or have no capacity. For a node
            without an own link (LinkTable.site_bytes_per_s): of all physical links at its site, without messages
            between nodes of this site.
        sent_bytes, received_bytes: all bytes that the node's uplink and downlink carried.
        push_bytes, request_bytes, response_bytes: sent bytes of used messages, headers included; messages of secure
            aggregation count as pushes.
        ack_bytes: sent bytes of TCP's acknowledgements (fidelity tcp), also of messages lost or given up later.
        aborted_bytes, lost_bytes, unused_bytes: wasted sent bytes, see above.
        in_flight_bytes: sent bytes of messages that are still on their way.
        messages_received: messages that have arrived at the node.
        queueing_s: mean additional time of these messages compared with an empty network, which takes latency + bytes /
            the smallest capacity on the way, with capacities at arrival; nan if there were none.
        max_queueing_s: the longest.
    """

    uplink_utilization: np.ndarray
    downlink_utilization: np.ndarray
    sent_bytes: np.ndarray
    received_bytes: np.ndarray
    push_bytes: np.ndarray
    request_bytes: np.ndarray
    response_bytes: np.ndarray
    ack_bytes: np.ndarray
    aborted_bytes: np.ndarray
    lost_bytes: np.ndarray
    unused_bytes: np.ndarray
    in_flight_bytes: np.ndarray
    messages_received: np.ndarray
    queueing_s: np.ndarray
    max_queueing_s: np.ndarray

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return a dictionary per node, of plain numbers; None for nan."""
        for node, row in enumerate(_rows(self)):
            yield {"node": node, **{name: None if value != value else value for name, value in row.items()}}

    def total(self) -> dict[str, Any]:
        """Return one dictionary for all nodes: sums of bytes and messages, means of utilization, mean and longest
        queueing.
        """
        found: dict[str, Any] = {"node": None}
        for field in fields(self):
            values = getattr(self, field.name)
            found[field.name] = int(values.sum()) if values.dtype.kind == "i" else _mean(values)
        queued_s = np.where(self.messages_received > 0, self.queueing_s * self.messages_received, 0.0).sum()
        found["queueing_s"] = float(queued_s / found["messages_received"]) if found["messages_received"] else None
        found["max_queueing_s"] = float(self.max_queueing_s.max(initial=0.0))
        return {**found, "nodes": len(self.sent_bytes)}


def _rows(table: Traffic | NodeUse) -> Iterator[dict[str, Any]]:
    """Return a dictionary per index of the table's arrays, of plain numbers."""
    names = [field.name for field in fields(table)]
    for values in zip(*(getattr(table, name).tolist() for name in names), strict=True):
        yield dict(zip(names, values, strict=True))


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def node_use(
    account: dict[str, np.ndarray],
    traffic: Traffic,
    now_s: float,
    takes_time: bool,
    filled: float = 1.0,
    within: np.ndarray | None = None,
) -> NodeUse:
    """Return the use of all nodes up to now.

    Args:
        account: the extension's counts per node.
        traffic: current traffic.
        now_s: simulated time.
        takes_time: whether bytes take time on links (fidelities flow and tcp).
        filled: the share of a link's capacity that the account's capacities are (network.tcp.utilization).
        within: [2, N], bytes sent and received that did not cross the links on which utilization is based; None: no
            bytes.
    """
    num_nodes = len(account["messages"])
    sent, received = traffic.carried_bytes(num_nodes)
    in_flight = np.bincount(traffic.src, traffic.in_flight_bytes, num_nodes).astype(np.int64)
    duration_s = now_s - account["since_s"]
    could_send = (account["could_send"] + account["uplink"] * duration_s) / filled
    could_receive = (account["could_receive"] + account["downlink"] * duration_s) / filled
    crossed, reached = (sent, received) if within is None else (sent - within[0], received - within[1])
    unknown = np.full(num_nodes, np.nan)
    messages = account["messages"]
    return NodeUse(
        _divided(crossed, could_send) if takes_time else unknown,
        _divided(reached, could_receive) if takes_time else unknown,
        sent,
        received,
        **{name: column for name, column in account.items() if name.endswith("_bytes")},
        in_flight_bytes=in_flight,
        messages_received=messages,
        queueing_s=_divided(account["queued_s"], messages),
        max_queueing_s=account["max_queued_s"],
    )


def bytes_within(traffic: Traffic, route: Route | None, site_bytes_per_s: np.ndarray | None) -> np.ndarray:
    """Return bytes sent and received, [2, N], of nodes without own links that crossed no physical link either."""
    if site_bytes_per_s is None or route is None:
        return np.zeros((2, 1))
    stays = np.array([not route(*pair) for pair in zip(traffic.src.tolist(), traffic.dst.tolist(), strict=True)], bool)
    num_bytes = np.where(stays, traffic.on_the_wire, 0)
    ends = traffic.src, traffic.dst
    found = [np.bincount(nodes, num_bytes, len(site_bytes_per_s[0])) for nodes in ends]
    return np.where(np.isfinite(site_bytes_per_s), found, 0)


def _divided(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Return above / below, nan if below is 0."""
    return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
