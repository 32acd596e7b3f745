"""What TCP adds to flows that share links max-min fairly: headers, acknowledgements, slow start, unequal shares.

Flow-level models of TCP and how far they carry: Velho, Schnorr, Casanova, Legrand, "On the validity of flow-level TCP
network models for grid and cloud simulations", ACM TOMACS 23(4), 2013. SimGrid, which they calibrate, multiplies the
bandwidth by 0.97 and latencies by 13.01, charges 5 % of a flow's rate to the way back, and weighs shares by round-trip
times. Here headers and acknowledgements are counted, slow start is followed round by round, and latencies stay what
they are; only `share_spread` and `utilization` are fitted. docs/trust.md shows each of these beside real TCP.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ddlsim import rng
from ddlsim.messages.message import Message

UNIT_WEIGHT = 1024
"""Weight of an ordinary flow: weights are whole numbers."""

LONGEST_WEIGHT, LEAST_WEIGHT = 2**20, 16
MIN_RTO_S = 0.2
"""Linux' least retransmission time-out (TCP_RTO_MIN), beside the round-trip time: a window is halved for each that
passes without data, down to the initial one (RFC 2861)."""


@dataclass(frozen=True)
class Tcp:
    """How messages travel over TCP.

    Args:
        segment_bytes: of a message in one segment: 1448 of an Ethernet frame of 1500 with time stamps.
        segment_header_bytes: beside them on the wire: 14 Ethernet, 20 IP, 32 TCP.
        acks_per_segment: segments of only headers that go back for each: 0.5 with delayed acknowledgements.
        connections: persistent: one per pair of nodes, there from the start, over which messages go one after the
            other; per_message: one for each message, whose set-up costs a round trip before the first byte.
        initial_window: segments that a connection may have on their way when it begins (RFC 6928: 10); then twice as
            many in each round trip; half of them for each time-out that it rests. 0: no slow start.
        shares: of links, among flows: equal; rtt: inversely to their round-trip times; random: drawn for each message.
        share_spread: of random shares, standard deviation of their logarithm.
        utilization: of links' capacity, what TCP fills: 1 behind fair queues; behind plain ones less, where data and
            acknowledgements of both directions wait for each other (Zhang, Shenker, Clark, "Observations on the
            dynamics of a congestion control algorithm: the effects of two-way traffic", SIGCOMM 1991).
    """

    segment_bytes: int = 1448
    segment_header_bytes: int = 66
    acks_per_segment: float = 0.5
    connections: Literal["persistent", "per_message"] = "persistent"
    initial_window: int = 10
    shares: Literal["equal", "rtt", "random"] = "equal"
    share_spread: float = 0.3
    utilization: float = 1.0

    def headers(self, num_bytes: int) -> int:
        """Bytes of the headers of the segments that so many bytes fill; of none none."""
        return -(-num_bytes // self.segment_bytes) * self.segment_header_bytes

    def segments(self, wire_bytes: int) -> int:
        """How many there are in so many bytes, headers included."""
        return -(-wire_bytes // (self.segment_bytes + self.segment_header_bytes))

    def acks(self, wire_bytes: int) -> int:
        """Bytes that go back meanwhile."""
        return math.ceil(self.segments(wire_bytes) * self.acks_per_segment) * self.segment_header_bytes

    def idle_s(self, wire_bytes: int, rtt_s: float, bytes_per_s: float, window: int | None = None) -> float:
        """Seconds that a sender waits for acknowledgements, in all, before its window fills the path.

        Window after window is sent at the path's rate; what is left of each round trip then passes idle.

        Args:
            wire_bytes: of the message.
            rtt_s: round-trip time of an empty path.
            bytes_per_s: what the path carries; above 0.
            window: segments that may be on their way at first; None: the initial window.
        """
        if self.initial_window == 0 or rtt_s == 0:
            return 0.0
        segment_s = (self.segment_bytes + self.segment_header_bytes) / bytes_per_s
        window = window or self.initial_window
        left, idle_s = self.segments(wire_bytes), 0.0
        while left > window and (spare_s := rtt_s + segment_s - window * segment_s) > 0:
            idle_s += spare_s
            left -= window
            window *= 2
        return idle_s


class TcpPaths:
    """What a network's messages take for it: windows of connections, random shares.

    Args:
        tcp: how messages travel.
        latency_ns: (src, dst) -> one-way.
        uplink_bytes_per_s, downlink_bytes_per_s: capacities by node.
        seed: of random shares.
    """

    def __init__(
        self,
        tcp: Tcp,
        latency_ns: Callable[[int, int], int],
        uplink_bytes_per_s: list[float],
        downlink_bytes_per_s: list[float],
        seed: int,
    ):
        self.tcp = tcp
        self._latency_ns = latency_ns
        self._uplink_bytes_per_s, self._downlink_bytes_per_s = uplink_bytes_per_s, downlink_bytes_per_s
        self._seed = seed
        self._streams: dict[int, np.random.Generator] = {}
        self._together: Counter[int] = Counter()
        self._used: dict[tuple[int, int], tuple[float, int]] = {}  # until when, about; window then

    def set_capacity(self, node: int, uplink_bytes_per_s: float, downlink_bytes_per_s: float) -> None:
        """New capacities from now on."""
        self._uplink_bytes_per_s[node], self._downlink_bytes_per_s[node] = uplink_bytes_per_s, downlink_bytes_per_s

    def begin(self, messages: Sequence[Message]) -> None:
        """These are sent together: those of one sender share its uplink, which windows fill the sooner."""
        self._together = Counter(message.src for message in messages for one in message.receivers if one != message.src)

    def delay_ns(self, now_s: float, src: int, dst: int, num_bytes: int) -> int:
        """Nanoseconds that a message takes before and between its bytes, its latency included.

        Args:
            now_s: when it is sent.
            src, dst: its ends.
            num_bytes: of it, on the wire.
        """
        latency_ns = self._latency_ns(src, dst)
        if src == dst or num_bytes == 0:
            return latency_ns
        uplink_bytes_per_s = self._uplink_bytes_per_s[src] / max(1, self._together[src])
        bytes_per_s = min(uplink_bytes_per_s, self._downlink_bytes_per_s[dst])
        rtt_s = (latency_ns + self._latency_ns(dst, src)) / 1e9
        if bytes_per_s == 0 or self.tcp.initial_window == 0:
            idle_s = 0.0
        elif self.tcp.connections == "per_message":
            idle_s = self.tcp.idle_s(num_bytes, rtt_s, bytes_per_s)
        else:
            window = self._window(now_s, src, dst, rtt_s)
            idle_s = self.tcp.idle_s(num_bytes, rtt_s, bytes_per_s, window)
            until_s = now_s + idle_s + rtt_s + num_bytes / bytes_per_s
            fills = self.tcp.segments(math.ceil(rtt_s * bytes_per_s))
            self._used[src, dst] = until_s, min(window + self.tcp.segments(num_bytes), max(fills, window))
        set_up_s = rtt_s if self.tcp.connections == "per_message" else 0.0
        return latency_ns + round((set_up_s + idle_s) * 1e9)

    def _window(self, now_s: float, src: int, dst: int, rtt_s: float) -> int:
        """Segments that a connection may have on their way, after what it sent last and the pause since then."""
        until_s, window = self._used.get((src, dst), (0.0, self.tcp.initial_window))
        pauses = int(max(0.0, now_s - until_s) / (rtt_s + MIN_RTO_S))
        return max(self.tcp.initial_window, window >> min(pauses, 60))

    def weight(self, src: int, dst: int) -> int:
        """Of a message's share of links, 1024 being usual."""
        if self.tcp.shares == "equal" or src == dst:
            return UNIT_WEIGHT
        if self.tcp.shares == "rtt":
            rtt_s = (self._latency_ns(src, dst) + self._latency_ns(dst, src)) / 1e9
            factor = REFERENCE_RTT_S / max(rtt_s, SHORTEST_RTT_S)
        else:
            if src not in self._streams:
                self._streams[src] = rng.stream(self._seed, "TCP shares", src)
            factor = math.exp(self.tcp.share_spread * self._streams[src].normal())
        return min(LONGEST_WEIGHT, max(LEAST_WEIGHT, round(UNIT_WEIGHT * factor)))


REFERENCE_RTT_S = 0.04
SHORTEST_RTT_S = 0.001
"""Round-trip times of rtt shares: that of weight 1024, and that below which queues and hosts count for more."""
