"""Joules from what nodes did: a pure function of counts, so that a finished run can be costed by other figures."""

from dataclasses import dataclass

import numpy as np

J_PER_KWH = 3.6e6
PARTS = ("compute_j", "idle_j", "upload_j", "download_j")


@dataclass(frozen=True)
class Costs:
    """What a unit of each costs.

    Args:
        j_per_step: joules of a local step; None: `watts` holds.
        watts: power while computing, W; None: computing costs nothing, unless `j_per_step` holds.
        idle_w: power while online and not computing, W.
        j_per_byte_up, j_per_byte_down: joules per byte that a node's uplink and downlink carried.
        server_w: power of the server from start to end, W.
        gco2_per_kwh: grams of CO2 equivalents per kWh; None: not known.
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
    """What nodes have done until a moment, arrays [nodes]; a server is the last.

    Args:
        steps: local steps computed, float64; a forward pass is a third of one.
        computing_s: simulated seconds in which the device computed.
        idle_s: simulated seconds in which the node was online, had rounds to go and did not compute.
        sent_bytes, received_bytes: that its uplink and downlink carried, also in vain and of parts of messages, int64.
    """

    steps: np.ndarray
    computing_s: np.ndarray
    idle_s: np.ndarray
    sent_bytes: np.ndarray
    received_bytes: np.ndarray


def joules(work: Work, costs: Costs, server: int | None = None) -> dict[str, np.ndarray]:
    """Joules by what they were spent on, float64 [nodes] each, by the names in PARTS.

    Args:
        work: of all nodes.
        costs: of a unit of each.
        server: the number of the server, which computes nothing and has a power of its own; None: there is none.
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
    """All joules of each node, float64 [nodes]."""
    return sum((parts[name] for name in PARTS[1:]), parts[PARTS[0]])


def grams(joules: np.ndarray | float, gco2_per_kwh: float) -> np.ndarray | float:
    """Grams of CO2 equivalents that so many joules emit."""
    return joules / J_PER_KWH * gco2_per_kwh
