"""Access links from published recordings: FedScale's phones, Mahimahi's packet traces, matrices of latencies.

Formats and units of the files: docs/traces.md.

Latencies between sites come from a file: WonderNetwork's pings, or a square matrix.

WonderNetwork's pings are a CSV with the columns source,destination,timestamp,min,avg,max,mdev: ids of servers, and
milliseconds there and back of 30 pings. Here a pair's latency is the mean of `avg` over its rows; a direction without
measurements has the latency of the other one, and a pair without measurements the median of all measured pairs.
"""

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Gt, Le, MinLen

from ddlsim.devices.base import drawn_phones
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.input_files import Column, shortened, unreadable
from ddlsim.foundation.rng import dealt, stream
from ddlsim.foundation.units import MAX_LATENCY_MS, mbps_to_bytes_per_s, ms_to_s
from ddlsim.network.access_links import LatencyMs, Links, Mbps
from ddlsim.network.link_table import CapacityChange, LinkTable

COLUMNS = ("source", "destination", "avg")
MILLISECONDS = Column(below=MAX_LATENCY_MS)


def read_latencies(path: str) -> np.ndarray:
    """Read milliseconds from site (row) to site, as in the file, float64 [sites, sites]; the diagonal is 0.

    Raises:
        ScenarioError: the file cannot be read, or has neither format.
    """
    expected = f"expected pings with the columns {', '.join(COLUMNS)}, or a square matrix of milliseconds"
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise unreadable(path, expected, error) from error
    if not rows:
        raise ScenarioError(f"{path}: {expected}, got an empty file")
    found = _of_pings(path, rows) if set(COLUMNS) <= set(rows[0]) else _of_matrix(path, expected)
    np.fill_diagonal(found, np.nan)
    found = np.where(np.isnan(found), found.T, found)
    known = found[~np.isnan(found)]
    if not len(known):
        raise ScenarioError(f"{path}: {expected}, got no latency between two different sites")
    found = np.where(np.isnan(found), np.median(known), found)
    np.fill_diagonal(found, 0.0)
    return found


def _of_pings(path: str, rows: list[list[str]]) -> np.ndarray:
    places = [rows[0].index(column) for column in COLUMNS]
    sums: dict[tuple[str, str], list[float]] = {}
    for number, row in enumerate(rows[1:], 2):
        value = MILLISECONDS.read(row[places[2]]) if len(row) > max(places) else None
        if value is None:
            raise ScenarioError(f"{path}:{number}: avg: expected milliseconds, got {shortened(repr(','.join(row)))}")
        sums.setdefault((row[places[0]], row[places[1]]), []).append(value)
    sites = sorted({site for pair in sums for site in pair}, key=lambda site: (len(site), site))
    index = {site: number for number, site in enumerate(sites)}
    found = np.full((len(sites), len(sites)), np.nan)
    for (source, destination), values in sums.items():
        found[index[source], index[destination]] = sum(values) / len(values)
    return found


def _of_matrix(path: str, expected: str) -> np.ndarray:
    """Read a matrix; negative or empty cells were not measured."""

    def milliseconds(cell: str) -> float:
        return float(cell.strip() or math.nan)

    try:
        found = np.loadtxt(path, comments=None, delimiter=",", converters=milliseconds, encoding="utf-8-sig", ndmin=2)
    except ValueError as error:
        raise unreadable(path, expected, error) from error
    if len(found) != len(found.T) or (found >= MAX_LATENCY_MS).any():
        raise ScenarioError(f"{path}: {expected}, got {len(found)} rows of {len(found.T)} values up to {found.max()}")
    return np.where(found < 0, np.nan, found)


PACKET_BYTES = 1500
"""Bytes of one delivery opportunity of Mahimahi."""


@dataclass(frozen=True, kw_only=True)
class FedScale(Links):
    """Nodes have the links of phones of FedScale's capacity trace; the same phones as devices fedscale.

    Args:
        path: FedScale's pickle; read without running any code in it. Relative to the folder that the command is started
            in.
        uplink_ratio: uplink as a share of the downlink; FedScale takes the same rate for both.
        latency_ms: one-way latency of a node's access; a message takes it at both ends (an assumption).
    """

    path: str
    uplink_ratio: Annotated[float, Gt(0)] = 1.0
    latency_ms: LatencyMs = 25.0

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        down = mbps_to_bytes_per_s(drawn_phones(self.path, num_nodes, seed)[1] / 1e3)
        return LinkTable(self.uplink_ratio * down, down, np.full(num_nodes, ms_to_s(self.latency_ms)))


@dataclass(frozen=True, kw_only=True)
class Mahimahi(Links):
    """Capacities over time by packet traces of Mahimahi; each node draws a pair of traces and its start in them.

    Args:
        uplinks: files, one of each pair: a line per opportunity to deliver 1500 bytes, with its time in milliseconds.
        downlinks: the same number of files.
        interval_s: capacities are means over intervals of this length.
        duration_s: simulated seconds for which traces are repeated; afterwards their mean rates apply.
        random_start: whether each node starts at a random time of its trace; otherwise at the trace's start.
        latency_ms: one-way latency of a node's access; a message takes it at both ends (traces hold none).
    """

    uplinks: Annotated[tuple[str, ...], MinLen(1)]
    downlinks: Annotated[tuple[str, ...], MinLen(1)]
    interval_s: Annotated[float, Gt(0)] = 1.0
    duration_s: Annotated[float, Gt(0), Le(1e7)] = 3600.0
    random_start: bool = True
    latency_ms: LatencyMs = 25.0

    def problems(self, num_nodes: int, seed: int) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Return the problems of the files."""
        if len(self.uplinks) != len(self.downlinks):
            yield ("downlinks",), f"expected as many files as uplinks ({len(self.uplinks)}), got {len(self.downlinks)}"
            return
        for file in (*self.uplinks, *self.downlinks):
            read_opportunities(file)

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        """Draw the links of all nodes, and their changes."""
        pairs = [tuple(map(read_opportunities, pair)) for pair in zip(self.uplinks, self.downlinks, strict=True)]
        first, changes = [], []
        for node in range(num_nodes):
            rng = stream(seed, "mahimahi", node)
            up, down = pairs[int(rng.integers(len(pairs)))]
            start_ms = int(rng.integers(max(up[-1], down[-1]))) if self.random_start else 0
            rates = list(zip(self._rates(up, start_ms), self._rates(down, start_ms), strict=True))
            first.append(rates[0])
            for index, (before, now) in enumerate(pairwise(rates), 1):
                if before != now:
                    changes.append(CapacityChange(index * self.interval_s, node, *now))
        changes.sort(key=lambda change: change.time_s)
        capacities = np.array(first, dtype=float).reshape(num_nodes, 2)
        return LinkTable(capacities[:, 0], capacities[:, 1], np.full(num_nodes, ms_to_s(self.latency_ms)), changes)

    def _rates(self, trace_ms: np.ndarray, start_ms: int) -> list[float]:
        """Return bytes per second in each interval from a time of the trace on, and finally the trace's mean."""
        period_ms = int(trace_ms[-1])
        count = max(1, round(self.duration_s / self.interval_s))
        ends_ms = start_ms + 1e3 * self.interval_s * np.arange(count + 1)
        laps, within = np.divmod(ends_ms, period_ms)
        delivered = laps * len(trace_ms) + np.searchsorted(trace_ms, within, side="right")
        rates = PACKET_BYTES * np.diff(delivered) / self.interval_s
        return [*rates.tolist(), PACKET_BYTES * len(trace_ms) / (period_ms / 1e3)]


@dataclass(frozen=True, kw_only=True)
class LatencyMatrix(Links):
    """Equal links between sites, with latencies from a file.

    Each node draws its site, without repetition while sites are left, and so does a server.

    Args:
        path: pings as WonderNetwork publishes them (a CSV with source, destination and avg), or a square matrix of
            milliseconds, a row per line, comma-separated.
        round_trip: whether the file has round-trip latencies, like pings; half of them are used then.
        same_site_ms: one-way latency between nodes at one site.
        uplink_mbps: Mbit/s a node can send.
        downlink_mbps: Mbit/s a node can receive.
    """

    path: str
    round_trip: bool = True
    same_site_ms: LatencyMs = 0.5
    uplink_mbps: Mbps = 100.0
    downlink_mbps: Mbps = 100.0

    def draw(self, num_nodes: int, seed: int) -> LinkTable:
        matrix_ms = read_latencies(self.path) / (2 if self.round_trip else 1)
        np.fill_diagonal(matrix_ms, self.same_site_ms)
        order = dealt(stream(seed, "latency sites"), len(matrix_ms), num_nodes + 1)
        up, down = (np.full(num_nodes, mbps_to_bytes_per_s(mbps)) for mbps in (self.uplink_mbps, self.downlink_mbps))
        return LinkTable(up, down, SiteLatency(matrix_ms / 1e3, tuple(order)), holds_for_server=True)


@dataclass(frozen=True, eq=False)
class SiteLatency:
    """One-way latency of a message between nodes at sites.

    Args:
        matrix_s: between sites, float64 [sites, sites].
        site: of each node, a server last.
    """

    matrix_s: np.ndarray
    site: tuple[int, ...]

    def __call__(self, src: int, dst: int) -> float:
        return float(self.matrix_s[self.site[src], self.site[dst]])


def read_opportunities(path: str) -> np.ndarray:
    """Read the milliseconds of a packet trace of Mahimahi, int64, not descending; the last one is its length.

    Raises:
        ScenarioError: the file cannot be read, or a line is not a whole number, or is earlier than the previous line.
    """
    expected = "expected a packet trace of Mahimahi, a whole number of milliseconds per line"
    try:
        found = np.array(Path(path).read_text(encoding="ascii").split(), dtype=np.int64)
    except (OSError, ValueError, OverflowError) as error:
        raise unreadable(path, expected, error) from error
    back = np.flatnonzero(np.diff(found, prepend=0) < 0)
    if len(back):
        raise ScenarioError(f"{path}:{back[0] + 1}: {expected}, in ascending order, got {found[back[0]]}")
    if not len(found) or found[-1] == 0:
        raise ScenarioError(f"{path}: {expected}, at least one above 0. The last one is the trace's length.")
    return found
