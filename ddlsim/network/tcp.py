"""TCP's effects on flows that share links max-min fairly: headers, acknowledgements, slow start, unequal shares.

Flow-level models of TCP and their validity: Velho, Schnorr, Casanova, Legrand, "On the validity of flow-level TCP
network models for grid and cloud simulations", ACM TOMACS 23(4), 2013. SimGrid, which they calibrate, multiplies the
bandwidth by 0.97 and latencies by 13.01, charges 5 % of a flow's rate to the way back, and weighs shares by round-trip
times. Here headers and acknowledgements are counted, slow start is followed window by window (csrc/flow/windows.h), and
latencies are unchanged; only `share_spread` and `utilization` are fitted. docs/trust.md compares each of these with
real TCP.

Weights by round-trip times are whole numbers, so rates are rounded down: 3,000 flows of a millisecond's round trip take
1 % longer over 1 Mbit/s, and 4 % over 250 kbit/s. With plain queues, data and acknowledgements of both directions wait
for each other, which `utilization` represents (Zhang, Shenker, Clark, "Observations on the dynamics of a congestion
control algorithm: the effects of two-way traffic", SIGCOMM 1991).
"""

import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from ddlsim.foundation import rng
from ddlsim.scenario.network_sections import Tcp

UNIT_WEIGHT = 1024
"""Weight of an ordinary flow: weights are whole numbers."""

LONGEST_WEIGHT, LEAST_WEIGHT = 2**20, 16
MIN_RTO_S = 0.2
"""Linux' least retransmission time-out (TCP_RTO_MIN), in addition to the round-trip time: a window is halved for each
time-out that passes without data, down to the initial one (RFC 2861).
"""


class TcpPaths:
    """TCP parameters of a network's messages: round-trip times, random shares.

    Args:
        tcp: TCP settings.
        latency_ns: (src, dst) -> one-way latency.
        seed: seed of random shares.
    """

    def __init__(self, tcp: Tcp, latency_ns: Callable[[int, int], int], seed: int):
        self.tcp = tcp
        self._latency_ns = latency_ns
        self._stream = cache(partial(rng.stream, seed, "TCP shares"))

    def latency_ns(self, src: int, dst: int) -> int:
        """Return the nanoseconds before a message's first byte, including the set-up of its connection."""
        set_up_ns = self._round_trip_ns(src, dst) if self.tcp.connections == "per_message" and src != dst else 0
        return self._latency_ns(src, dst) + set_up_ns

    def options(self, src: int, dst: int, num_bytes: int, ack_links: Sequence[int]) -> dict[str, Any]:
        """Return the extension's arguments for a message: its weight, its window, and its acknowledgements.

        Args:
            src, dst: its sender and its receiver.
            num_bytes: bytes of the message, with headers.
            ack_links: shared links that acknowledgements cross.
        """
        return {
            "weight": self.weight(src, dst),
            "ack_bytes": self.tcp.acks(num_bytes),
            "ack_links": ack_links,
            "in_order": self.tcp.connections == "persistent",
            "round_trip_ns": self._round_trip_ns(src, dst) if self.tcp.initial_window else 0,
        }

    def _round_trip_ns(self, src: int, dst: int) -> int:
        return self._latency_ns(src, dst) + self._latency_ns(dst, src)

    def weight(self, src: int, dst: int) -> int:
        """Return the weight of a message's share of links; 1024 is usual."""
        if self.tcp.shares == "equal" or src == dst:
            return UNIT_WEIGHT
        if self.tcp.shares == "rtt":
            rtt_s = self._round_trip_ns(src, dst) / 1e9
            factor = REFERENCE_RTT_S / max(rtt_s, SHORTEST_RTT_S)
        else:
            factor = math.exp(self.tcp.share_spread * self._stream(src).normal())
        return min(LONGEST_WEIGHT, max(LEAST_WEIGHT, round(UNIT_WEIGHT * factor)))


REFERENCE_RTT_S = 0.04
SHORTEST_RTT_S = 0.001
"""Round-trip time of weight 1024 in rtt shares, and the round-trip time below which queues and hosts matter more."""
