"""Capacities that change in simulated time, from a CSV of our own: node,time_s,uplink_mbps,downlink_mbps."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddlsim.csv_rows import Column, read_rows
from ddlsim.units import MAX_MBPS, mbps_to_bytes_per_s

if TYPE_CHECKING:
    import simpy

    from ddlsim.network.network import Network


@dataclass(frozen=True)
class CapacityChange:
    """From `time_s` on a node has these capacities."""

    time_s: float
    node: int
    uplink_bytes_per_s: float
    downlink_bytes_per_s: float


def load_changes(path: str, num_nodes: int) -> list[CapacityChange]:
    """All changes of a file, in order of time; rows of one time in the order of the file.

    Raises:
        ScenarioError: the file cannot be read or has wrong rows.
    """
    columns = {
        "node": Column(whole=True, below=num_nodes),
        "time_s": Column(),
        "uplink_mbps": Column(below=MAX_MBPS),
        "downlink_mbps": Column(below=MAX_MBPS),
    }
    changes = []
    for _, row in read_rows(path, columns):
        uplink, downlink = mbps_to_bytes_per_s(row["uplink_mbps"]), mbps_to_bytes_per_s(row["downlink_mbps"])
        changes.append(CapacityChange(row["time_s"], row["node"], uplink, downlink))
    return sorted(changes, key=lambda change: change.time_s)


def follow(
    env: "simpy.Environment", network: "Network", changes: Sequence[CapacityChange]
) -> Generator["simpy.Event", Any, None]:
    """SimPy process that applies the changes as their time comes, those of the past at once.

    It ends where the network is told to follow other changes.
    """
    network.followed = changes
    for change in changes:
        if change.time_s > env.now:
            yield env.timeout(change.time_s - env.now)
        if network.followed is not changes:
            return
        network.set_capacity(change.node, change.uplink_bytes_per_s, change.downlink_bytes_per_s)
