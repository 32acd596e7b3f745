"""What became of the bytes that every node sent, how full its links were, and how long its messages queued.

Bytes are counted for their sender. Those that were of use are told apart by the kind of their message (push, request,
response), those that were not by the reason:

- aborted: sender or receiver went away while the message was on its way, or it was taken back;
- lost: the network lost the message (network.drop_probability), whether it was sent again or not;
- unused: the message arrived, but no algorithm ever saw it: its round had closed, it was too stale, a newer one of the
  same sender took its place, or its receiver left, lost its state or was through before it looked.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np


@dataclass(frozen=True)
class NodeUse:
    """Arrays [N] over nodes; bytes int64, the others float64.

    Args:
        uplink_utilisation, downlink_utilisation: bytes carried / (capacity x time), 0 to 1, over the whole run, parts
            of messages included; nan where links take no time (fidelity latency or ideal) or have no capacity.
        sent_bytes, received_bytes: all bytes that the node's uplink and downlink carried.
        push_bytes, request_bytes, response_bytes: of the sent, those of messages that were of use, headers included.
        aborted_bytes, lost_bytes, unused_bytes: of the sent, those that were wasted, see above.
        in_flight_bytes: of the sent, those of messages that are still on their way.
        messages_received: messages that have arrived at the node.
        queueing_s: mean time that these were in the network beyond what they would have been in an empty one: beyond
            latency and bytes / the smallest capacity on the way, as capacities are on arrival; nan if there were none.
        max_queueing_s: the longest.
    """

    uplink_utilisation: np.ndarray
    downlink_utilisation: np.ndarray
    sent_bytes: np.ndarray
    received_bytes: np.ndarray
    push_bytes: np.ndarray
    request_bytes: np.ndarray
    response_bytes: np.ndarray
    aborted_bytes: np.ndarray
    lost_bytes: np.ndarray
    unused_bytes: np.ndarray
    in_flight_bytes: np.ndarray
    messages_received: np.ndarray
    queueing_s: np.ndarray
    max_queueing_s: np.ndarray

    def rows(self) -> Iterator[dict]:
        """A dictionary per node, of plain numbers; None for nan."""
        names = [field.name for field in fields(self)]
        columns = [[None if value != value else value for value in getattr(self, name).tolist()] for name in names]
        for node, values in enumerate(zip(*columns, strict=True)):
            yield {"node": node, **dict(zip(names, values, strict=True))}

    def total(self) -> dict:
        """One dictionary for all nodes: sums of bytes and messages, means of utilisation, mean and longest queueing."""
        found: dict = {"node": None}
        for field in fields(self):
            values = getattr(self, field.name)
            found[field.name] = int(values.sum()) if values.dtype.kind == "i" else _mean(values)
        queued_s = np.where(self.messages_received > 0, self.queueing_s * self.messages_received, 0.0).sum()
        found["queueing_s"] = float(queued_s / found["messages_received"]) if found["messages_received"] else None
        found["max_queueing_s"] = float(self.max_queueing_s.max(initial=0.0))
        return {**found, "nodes": len(self.sent_bytes)}


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


class LinkUse:
    """Counts while messages come and go; told of everything by the network.

    Args:
        takes_time: whether bytes take time on links (fidelity flow).
        latency_s: (src, dst) -> one-way latency of a message.
        shared_bytes_per_s: (src, dst) -> capacities of shared links that a message crosses.
    """

    WORKS = ("push", "request", "response")
    COUNTED_AS = {"score request": "request", "score": "response"}  # noqa: RUF012  # other kinds: as they are called
    WASTES = ("aborted", "lost", "unused")

    def __init__(
        self, takes_time: bool, latency_s: Callable[[int, int], float],
        shared_bytes_per_s: Callable[[int, int], Sequence[float]] | None = None,
    ):
        self._takes_time = takes_time
        self._latency_s = latency_s
        self._shared_bytes_per_s = shared_bytes_per_s
        self._bytes: dict[str, list[int]] = {cause: [] for cause in (*self.WORKS, *self.WASTES)}
        self._uplink: list[float] = []
        self._downlink: list[float] = []
        self._since_s: list[float] = []  # since when the capacities are as they are
        self._could_send: list[float] = []  # bytes until then
        self._could_receive: list[float] = []
        self._messages: list[int] = []
        self._queued_s: list[float] = []
        self._max_queued_s: list[float] = []

    def add_nodes(self, uplink_bytes_per_s: Sequence[float], downlink_bytes_per_s: Sequence[float], now_s: float):
        """New nodes with the next numbers."""
        count = len(uplink_bytes_per_s)
        self._uplink += map(float, uplink_bytes_per_s)
        self._downlink += map(float, downlink_bytes_per_s)
        self._since_s += [now_s] * count
        for numbers in (*self._bytes.values(), self._messages):
            numbers += [0] * count
        for times in (self._could_send, self._could_receive, self._queued_s, self._max_queued_s):
            times += [0.0] * count

    def set_capacity(self, node: int, uplink_bytes_per_s: float, downlink_bytes_per_s: float, now_s: float) -> None:
        """New capacities from now on."""
        duration_s = now_s - self._since_s[node]
        self._could_send[node] += self._uplink[node] * duration_s
        self._could_receive[node] += self._downlink[node] * duration_s
        self._since_s[node] = now_s
        self._uplink[node], self._downlink[node] = float(uplink_bytes_per_s), float(downlink_bytes_per_s)

    def arrived(self, message, now_s: float) -> None:
        """A message has reached its receiver."""
        src, dst = message.src, message.dst
        if src == dst:
            return
        num_bytes = message.payload_bytes + message.header_bytes
        counted = self._bytes.get(self.COUNTED_AS.get(message.kind, message.kind))
        if counted is not None:
            counted[src] += num_bytes
        self._messages[dst] += 1
        queued_s = now_s - message.sent_s - self._latency_s(src, dst)
        if self._takes_time and num_bytes:
            rate = min(self._uplink[src], self._downlink[dst])
            if self._shared_bytes_per_s is not None:
                rate = min([rate, *self._shared_bytes_per_s(src, dst)])
            if rate > 0:
                queued_s -= num_bytes / rate
        if queued_s > 1e-9:  # the network's clock ticks in nanoseconds
            self._queued_s[dst] += queued_s
            if queued_s > self._max_queued_s[dst]:
                self._max_queued_s[dst] = queued_s

    def wasted(self, cause: str, src: int, num_bytes: int) -> None:
        """Bytes that were on the wire for nothing; cause: one of WASTES."""
        self._bytes[cause][src] += num_bytes

    def unused(self, message) -> None:
        """A message that has arrived is of no use to anybody."""
        num_bytes = message.payload_bytes + message.header_bytes
        counted = self._bytes.get(self.COUNTED_AS.get(message.kind, message.kind))
        if counted is not None:
            counted[message.src] -= num_bytes
        self._bytes["unused"][message.src] += num_bytes

    def until(self, now_s: float, traffic) -> NodeUse:
        """Everything up to now.

        Args:
            now_s: simulated time.
            traffic: of this moment, see traffic.py.
        """
        num_nodes = len(self._uplink)
        on_the_wire = traffic.on_the_wire
        sent, received, in_flight = (
            np.bincount(nodes, weights, num_nodes).astype(np.int64)
            for nodes, weights in (
                (traffic.src, on_the_wire), (traffic.dst, on_the_wire), (traffic.src, traffic.in_flight_bytes),
            )
        )
        duration_s = now_s - np.array(self._since_s)
        could_send = np.array(self._could_send) + np.array(self._uplink) * duration_s
        could_receive = np.array(self._could_receive) + np.array(self._downlink) * duration_s
        messages = np.array(self._messages, dtype=np.int64)
        return NodeUse(
            self._share(sent, could_send), self._share(received, could_receive), sent, received,
            **{f"{cause}_bytes": np.array(numbers, dtype=np.int64) for cause, numbers in self._bytes.items()},
            in_flight_bytes=in_flight, messages_received=messages,
            queueing_s=_divided(np.array(self._queued_s), messages), max_queueing_s=np.array(self._max_queued_s),
        )

    def _share(self, carried: np.ndarray, could: np.ndarray) -> np.ndarray:
        return _divided(carried, could) if self._takes_time else np.full(len(carried), np.nan)


def _divided(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """above / below, nan where below is 0."""
    return np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
