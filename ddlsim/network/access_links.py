"""Access links of nodes by name: uplink, downlink and latency.

Quantiles of downlinks by access technology: 10,000 measurements each, repository mobilebandwidth (Apache-2.0).
Quantiles of latency between internet sites: 227 sites, matrix published with Plexus (repository sacs-epfl/plexus, MIT),
used there and here as one-way delay. Values missing in these sources (uplinks, latency of an access technology, fiber
and datacenter links) are assumptions of the preset, and its keys.

A node's links are drawn from its own stream, so adding a node changes no other node's links.

Capacities that change in simulated time are read from ddlsim's CSV format: node,time_s,uplink_mbps,downlink_mbps.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from ddlsim.foundation.input_files import Column, read_rows, rows_by_node
from ddlsim.foundation.registry import Part, Problem
from ddlsim.foundation.rng import stream, stream_seed
from ddlsim.foundation.units import MAX_LATENCY_MS, MAX_MBPS, mbps_to_bytes_per_s, ms_to_s
from ddlsim.network.link_table import CapacityChange, Latency, LinkTable

if TYPE_CHECKING:
    import networkx as nx


def load_changes(path: str, num_nodes: int) -> list[CapacityChange]:
    """Return all changes of a file, in order of time; rows of one time in the order of the file.

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


Mbps = Annotated[float, Ge(0), Lt(MAX_MBPS)]
LatencyMs = Annotated[float, Ge(0), Lt(MAX_LATENCY_MS)]

PERCENTILES = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)
SHARES = np.array(PERCENTILES) / 100
INTERNET_LATENCY_MS = (4.7, 10.9, 16.2, 26.3, 43.0, 56.0, 67.1, 78.9, 92.1, 111.0, 133.3, 148.7, 181.0)
LOG_INTERNET_LATENCY_MS = np.log(INTERNET_LATENCY_MS)


class Links(Part, ABC):
    """Base class of every entry of LINKS."""

    has_graph: ClassVar[bool] = False
    """Whether messages cross the edges of a separate graph."""

    @property
    def uses_topology(self) -> bool:
        """Whether the edges of the topology are the links, see `over`. Default: false."""
        return False

    def over(self, graph: "nx.Graph") -> "Links":
        """Return these links over the topology's graph, if they use it."""
        return self

    @abstractmethod
    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        """Draw the access links of all nodes.

        Raises:
            ScenarioError: if they do not fit this many nodes.
        """

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the problems found by drawing. Override if drawing is slow and cannot fail."""
        self.draw(num_nodes, seed)
        return iter(())


@dataclass(frozen=True, kw_only=True)
class Uniform(Links):
    """Every node has the same links.

    Args:
        uplink_mbps: Mbit/s a node can send.
        downlink_mbps: Mbit/s a node can receive.
        latency_ms: one-way latency of every message.
    """

    uplink_mbps: Mbps = 100.0
    downlink_mbps: Mbps = 100.0
    latency_ms: LatencyMs = 20.0

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        return _same(num_nodes, self.uplink_mbps, self.downlink_mbps, ms_to_s(self.latency_ms))


@dataclass(frozen=True, kw_only=True)
class Measured(Links):
    """Base of presets with measured downlinks.

    Args:
        uplink_ratio: uplink as a share of the downlink (an assumption).
        latency_ms: one-way latency of a node's access; a message takes it at both ends (an assumption).
    """

    uplink_ratio: Annotated[float, Gt(0)]
    latency_ms: LatencyMs
    measured_mbps: ClassVar[Sequence[float]]
    """Downlinks at PERCENTILES."""

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return no problems, since every draw is valid."""
        return iter(())

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        draws = np.array([stream(seed, "links", node).random() for node in range(num_nodes)])
        down = mbps_to_bytes_per_s(_quantile(draws, np.log(self.measured_mbps)))
        return LinkTable(self.uplink_ratio * down, down, np.full(num_nodes, ms_to_s(self.latency_ms)))


@dataclass(frozen=True, kw_only=True)
class Mobile4G(Measured):
    """4G phones; measured downlinks (median 26 Mbit/s)."""

    uplink_ratio: Annotated[float, Gt(0)] = 0.25
    latency_ms: LatencyMs = 25.0
    measured_mbps = (0.2, 1.1, 2.4, 6.4, 11.6, 17.6, 26.1, 36.1, 49.5, 67.4, 109.9, 240.7, 448.1)


@dataclass(frozen=True, kw_only=True)
class Mobile5G(Measured):
    """5G phones; measured downlinks (median 313 Mbit/s)."""

    uplink_ratio: Annotated[float, Gt(0)] = 0.25
    latency_ms: LatencyMs = 10.0
    measured_mbps = (1.0, 10.4, 42.0, 113.4, 187.9, 254.6, 312.8, 348.7, 383.4, 462.7, 563.5, 621.3, 874.4)


@dataclass(frozen=True, kw_only=True)
class Wifi6(Measured):
    """Homes with Wi-Fi 6; measured downlinks (median 333 Mbit/s)."""

    uplink_ratio: Annotated[float, Gt(0)] = 0.5
    latency_ms: LatencyMs = 8.0
    measured_mbps = (3.4, 32.0, 66.1, 109.1, 151.0, 251.9, 333.1, 407.2, 486.5, 613.0, 769.4, 908.9, 1094.1)


@dataclass(frozen=True, kw_only=True)
class Wired(Links):
    """Base of presets with the same wired access for all nodes.

    Args:
        uplink_mbps: Mbit/s a node can send.
        downlink_mbps: Mbit/s a node can receive.
        latency_ms: one-way latency of a node's access; a message takes it at both ends.
    """

    uplink_mbps: Mbps
    downlink_mbps: Mbps
    latency_ms: LatencyMs

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        access_s = np.full(num_nodes, ms_to_s(self.latency_ms))
        return _same(num_nodes, self.uplink_mbps, self.downlink_mbps, access_s)


@dataclass(frozen=True, kw_only=True)
class Fiber(Wired):
    """Homes with fiber: symmetric (all figures are assumptions)."""

    uplink_mbps: Mbps = 1000.0
    downlink_mbps: Mbps = 1000.0
    latency_ms: LatencyMs = 4.0


@dataclass(frozen=True, kw_only=True)
class Datacenter(Wired):
    """Machines in one datacenter without oversubscription (all figures are assumptions)."""

    uplink_mbps: Mbps = 10_000
    downlink_mbps: Mbps = 10_000
    latency_ms: LatencyMs = 0.025


@dataclass(frozen=True, kw_only=True)
class Internet(Links):
    """Equal links between sites all over the internet; measured latencies of pairs (median 67 ms one-way).

    Args:
        uplink_mbps: Mbit/s a node can send.
        downlink_mbps: Mbit/s a node can receive.
    """

    uplink_mbps: Mbps = 100.0
    downlink_mbps: Mbps = 100.0

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        """Draw the links of all nodes; a server is one more site."""
        latency = PairLatency(stream_seed(seed, "pair latency"))
        return replace(_same(num_nodes, self.uplink_mbps, self.downlink_mbps, latency), holds_for_server=True)


@dataclass(frozen=True)
class PairLatency:
    """One-way latency of a pair of nodes, the same in both directions: a hash of the pair, through the quantiles.

    Args:
        key: 63-bit integer; another key gives other latencies.
    """

    key: int

    def __call__(self, src: int, dst: int) -> float:
        low, high = (src, dst) if src < dst else (dst, src)
        share = _mix_bits(_mix_bits(self.key ^ low) ^ high) / 2**64
        return ms_to_s(float(_quantile(share, LOG_INTERNET_LATENCY_MS)))


@dataclass(frozen=True, kw_only=True)
class Table(Links):
    """Every node's links are read from a file.

    Args:
        path: CSV with the columns node,uplink_mbps,downlink_mbps,latency_ms, one row per node; latency_ms is the
            one-way latency of the node's access, a message takes it at both ends.
        changes: CSV with the columns node,time_s,uplink_mbps,downlink_mbps: capacities from that time on; none by
            default.
    """

    path: str
    changes: str | None = None

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        """Draw the links of all nodes.

        Raises:
            ScenarioError: a file cannot be read, has wrong rows, or lacks a node.
        """
        rows = read_links(self.path, num_nodes)
        up, down, latency = np.array([rows[node] for node in range(num_nodes)]).reshape(num_nodes, 3).T
        changes = load_changes(self.changes, num_nodes) if self.changes else ()
        return LinkTable(mbps_to_bytes_per_s(up), mbps_to_bytes_per_s(down), ms_to_s(latency), changes)


@dataclass(frozen=True, kw_only=True)
class MixPart:
    """A part of the nodes.

    Args:
        kind: preset of these nodes, with its defaults.
        share: weight of this part among all.
    """

    kind: Literal["4g", "5g", "wifi6", "fiber", "datacenter"]
    share: Annotated[float, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class Mix(Links):
    """Nodes of several kinds; each node draws its kind.

    Args:
        parts: list of {kind, share}.
    """

    parts: tuple[MixPart, ...]

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the problems of the parts, whose links are valid for every draw."""
        if not self.parts:
            yield ("parts",), "expected at least one {kind, share}, got none"

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        """Draw the links of all nodes; there is at least one part."""
        edges = np.cumsum([part.share for part in self.parts])
        draws = np.array([stream(seed, "link kind", node).random() for node in range(num_nodes)])
        chosen = np.searchsorted(edges / edges[-1], draws, side="right")
        tables = [ACCESS_KINDS[part.kind]().draw(num_nodes, seed) for part in self.parts]
        columns = ("uplink_bytes_per_s", "downlink_bytes_per_s", "latency_s")
        stacked = (np.stack([getattr(table, name) for table in tables]) for name in columns)
        up, down, latency_s = (values[chosen, np.arange(num_nodes)] for values in stacked)
        return LinkTable(up, down, latency_s)


ACCESS_KINDS = {"4g": Mobile4G, "5g": Mobile5G, "wifi6": Wifi6, "fiber": Fiber, "datacenter": Datacenter}


def read_links(path: str, num_nodes: int = 0) -> dict[int, tuple[float, float, float]]:
    """Read node -> (uplink Mbit/s, downlink Mbit/s, access latency ms) from a CSV file.

    Raises:
        ScenarioError: the file cannot be read, has wrong rows or a node twice, or lacks one of nodes 0 .. num_nodes-1.
    """
    limits = {"uplink_mbps": MAX_MBPS, "downlink_mbps": MAX_MBPS, "latency_ms": MAX_LATENCY_MS}
    rows = rows_by_node(path, {name: Column(below=limit) for name, limit in limits.items()}, num_nodes)
    return {node: (row["uplink_mbps"], row["downlink_mbps"], row["latency_ms"]) for node, row in rows.items()}


def _same(num_nodes: int, uplink_mbps: float, downlink_mbps: float, latency_s: Latency) -> LinkTable:
    return LinkTable.equal(num_nodes, mbps_to_bytes_per_s(uplink_mbps), mbps_to_bytes_per_s(downlink_mbps), latency_s)


def _quantile(share: float | np.ndarray, logarithms: np.ndarray) -> np.ndarray:
    """Inverse distribution function from the logarithms of values at PERCENTILES: straight lines between these, flat
    beyond them."""
    return np.exp(np.interp(share, SHARES, logarithms))


def _mix_bits(value: int) -> int:
    """splitmix64 (Steele, Lea, Flood, Fast splittable pseudorandom number generators, OOPSLA 2014)."""
    value = (value + 0x9E3779B97F4A7C15) & (2**64 - 1)
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return value ^ (value >> 31)
