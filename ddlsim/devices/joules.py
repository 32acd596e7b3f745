"""Joules of nodes' work: a pure function of counts, so a finished run can be evaluated with other figures."""

from dataclasses import dataclass

import numpy as np

J_PER_KWH = 3.6e6
PARTS = ("compute_j", "idle_j", "upload_j", "download_j")


@dataclass(frozen=True)
class Costs:
    """Energy per unit of each kind of work.

    Args:
        j_per_step: joules of a local step; None: `watts` applies.
        watts: power while computing, W; None: computing costs nothing, unless `j_per_step` is set.
        idle_w: power while online and not computing, W.
        j_per_byte_up, j_per_byte_down: joules per byte that a node's uplink and downlink carried.
        server_w: power of the server from start to end, W.
        gco2_per_kwh: grams of CO2 equivalents per kWh; None: unknown.
    """

    j_per_step: float | None = None
    watts: float | None = None
    idle_w: float = 0.0
    j_per_byte_up: float = 0.0
    j_per_byte_down: float = 0.0
    server_w: float = 0.0
    gco2_per_kwh: float | None = None


@dataclass(frozen=True)
class Work:
    """Work of nodes until a point in time, arrays [nodes]; a server is the last.

    Args:
        steps: local steps computed, float64; a forward pass is a third of one.
        computing_s: simulated seconds in which the device computed.
        idle_s: simulated seconds in which the node was online, had rounds left and did not compute.
        sent_bytes, received_bytes: bytes that its uplink and downlink carried, including wasted bytes and parts of
            messages, int64.
    """

    steps: np.ndarray
    computing_s: np.ndarray
    idle_s: np.ndarray
    sent_bytes: np.ndarray
    received_bytes: np.ndarray


def joules(work: Work, costs: Costs, server: int | None = None) -> dict[str, np.ndarray]:
    """Return joules by use, float64 [nodes] each, by the names in PARTS.

    Args:
        work: work of all nodes.
        costs: energy per unit of each kind of work.
        server: the id of the server, which computes nothing and has a separate power; None if there is none.
    """
    by_step = costs.j_per_step is not None
    compute = costs.j_per_step * work.steps if by_step else (costs.watts or 0.0) * work.computing_s
    idle = costs.idle_w * work.idle_s
    if server is not None:
        compute[server], idle[server] = 0.0, costs.server_w * work.idle_s[server]
    return {
        "compute_j": compute,
        "idle_j": idle,
        "upload_j": costs.j_per_byte_up * work.sent_bytes,
        "download_j": costs.j_per_byte_down * work.received_bytes,
    }


def total(parts: dict[str, np.ndarray]) -> np.ndarray:
    """Return all joules of each node, float64 [nodes]."""
    return sum((parts[name] for name in PARTS[1:]), parts[PARTS[0]])


def grams(joules: np.ndarray | float, gco2_per_kwh: float) -> np.ndarray | float:
    """Return grams of CO2 equivalents of these joules."""
    return joules / J_PER_KWH * gco2_per_kwh
