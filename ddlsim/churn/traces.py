"""Recorded churn: ddlsim's CSV format, FedScale's availability trace, and the Failure Trace Archive.

FedScale's file (Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
2022) is a pickle: device -> {duration, inactive: [s, ..], finish_time: s, active: [s, ..], model}. A device is online
from active[i] to inactive[i], and again every finish_time seconds. FedScale ignores an interval that ends before it
starts; here it continues past finish_time into the next repetition.

Of a pickle only data is read, see foundation/input_files.py.

The Failure Trace Archive has a table `event_trace`.

Source: Kondo, Javadi, Iosup, Epema, "The Failure Trace Archive" (CCGrid 2010). A line is an interval: event_id,
component_id, node_id, platform_id, node_name, event_type (1: available; every other number: not), event_start_time,
event_stop_time (seconds since the epoch), event_end_reason, divided by tabs or commas. A first line with these names,
after a # or not, may have them in another order. All lines of a node must have one component.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt, Lt
from pydantic import Strict
from typing_extensions import TypedDict

from ddlsim.churn.schedule import Absences, Churn, OfflineInterval, merged
from ddlsim.foundation import input_files
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.registry import Problem
from ddlsim.foundation.rng import dealt, stream

Seconds = Annotated[float, Strict(), Ge(0), Lt(1e18)]


class Phone(TypedDict):
    """Seconds at which a phone goes online and offline, and the length of a repetition."""

    active: list[Seconds]
    inactive: list[Seconds]
    finish_time: Annotated[Seconds, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class TraceFile(Churn):
    """Churn that a file records."""

    path: str
    time_scale: Annotated[float, Gt(0)] = 1.0


@dataclass(frozen=True, kw_only=True)
class Trace(TraceFile):
    """Nodes are online in the intervals of a file.

    Args:
        path: CSV with the columns node,start_s,end_s: intervals ONLINE; every node needs at least one, and after its
            last one it is offline permanently. Nodes that the run does not have are skipped. Relative to the folder
            that the command is started in.
        time_scale: speed-up over the file's time: 3600 makes an hour a simulated second.
    """

    def check(self, num_nodes: int) -> None:
        """Read and check the file.

        Raises:
            ScenarioError: it cannot be read, has wrong rows, or lacks a node.
        """
        self.absences(num_nodes, 0)

    def absences(self, num_nodes: int, seed: int) -> Absences:
        """Return for each node the gaps between its intervals, the last one without end."""
        online = read_online(self.path)
        input_files.require_nodes(self.path, online, num_nodes, "an online interval")
        return {node: scaled(gaps(online[node]), self.time_scale) for node in range(num_nodes)}


@dataclass(frozen=True, kw_only=True)
class FedScale(TraceFile):
    """Nodes are online as phones of FedScale's availability trace; each node draws its phone.

    Args:
        path: FedScale's pickle; read without running any code in it. Relative to the folder that the command is started
            in.
        time_scale: speed-up over real time: 3600 makes an hour a simulated second.
    """

    def check(self, num_nodes: int) -> None:
        """Read and check the file.

        Raises:
            ScenarioError: it cannot be read, does not have FedScale's format, or contains more than data.
        """
        read_fedscale(self.path)

    def absences(self, num_nodes: int, seed: int) -> Absences:
        """Return for each node the gaps of its phone, repeated every finish_time."""
        phones = read_fedscale(self.path)
        drawn = (phones[int(stream(seed, "churn", node).integers(len(phones)))] for node in range(num_nodes))
        return {
            node: scaled(_repeated_gaps(fold(phone), phone["finish_time"]), self.time_scale)
            for node, phone in enumerate(drawn)
        }


def read_online(path: str) -> dict[int, list[OfflineInterval]]:
    """Read node -> its online intervals (start_s, end_s) in order, from ddlsim's CSV format.

    Raises:
        ScenarioError: the file cannot be read, has wrong rows, or intervals of a node overlap; names the first 20.
    """
    columns = {"node": input_files.NODE, "start_s": input_files.Column(), "end_s": input_files.Column()}
    problems = []
    rows: dict[int, list[tuple[float, float, int]]] = {}
    for line, row in input_files.read_rows(path, columns):
        start_s, end_s = row["start_s"], row["end_s"]
        if end_s <= start_s:
            problems.append(f"{path}:{line}: end_s: expected more than start_s ({start_s:g}), got {end_s:g}")
        rows.setdefault(int(row["node"]), []).append((start_s, end_s, line))
    for node, intervals in rows.items():
        intervals.sort()
        for (_, end_s, first), (start_s, _, line) in pairwise(intervals):
            if start_s < end_s:
                expected = f"{end_s:g} or more, the end of node {node}'s interval of line {first}"
                problems.append(f"{path}:{line}: start_s: expected {expected}, got {start_s:g}")
    input_files.refuse(problems)
    return {node: [(start_s, end_s) for start_s, end_s, _ in intervals] for node, intervals in rows.items()}


def read_fedscale(path: str) -> list[Phone]:
    """Read the phones of FedScale's pickle, in the file's order.

    Raises:
        ScenarioError: it cannot be read, does not have FedScale's format, or contains more than data.
    """
    phones = input_files.read_devices(path, "expected FedScale's pickle of availability", Phone)
    lengths = {name: (len(phone["active"]), len(phone["inactive"])) for name, phone in phones.items()}
    expected = "expected as many active as inactive times, got"
    problems = [f"{path}: device {name!r}: {expected} {a} and {b}" for name, (a, b) in lengths.items() if a != b]
    input_files.refuse(problems)
    return list(phones.values())


def fold(phone: Phone) -> list[OfflineInterval]:
    """Return a phone's online intervals within one repetition, 0 to finish_time, in order and separate."""
    period_s = phone["finish_time"]
    pieces: list[OfflineInterval] = []
    for active_s, inactive_s in zip(phone["active"], phone["inactive"], strict=True):
        length_s = inactive_s - active_s
        if length_s >= period_s:
            return [(0, period_s)]
        start_s = active_s % period_s
        end_s = start_s + length_s % period_s
        pieces.append((start_s, min(end_s, period_s)))
        pieces.append((0, end_s - period_s))
    return merged(pieces)


def gaps(online: Sequence[OfflineInterval]) -> Iterator[OfflineInterval]:
    """Return the absences around online intervals; the last one never ends."""
    left_s = 0.0
    for start_s, end_s in online:
        if start_s > left_s:
            yield left_s, start_s
        left_s = end_s
    yield left_s, math.inf


def _repeated_gaps(online: Sequence[OfflineInterval], period_s: float) -> Iterator[OfflineInterval]:
    """Return the absences around online intervals that repeat every period, without end."""
    if not online:
        yield 0.0, math.inf
        return
    if online[0][0] > 0:
        yield 0.0, online[0][0]
    over_the_end = online[-1][1], period_s + online[0][0]
    gaps = [*((end_s, start_s) for (_, end_s), (start_s, _) in pairwise(online)), over_the_end]
    gaps = [(left_s, back_s) for left_s, back_s in gaps if back_s > left_s]
    for repetition in count() if gaps else ():
        for left_s, back_s in gaps:
            yield left_s + repetition * period_s, back_s + repetition * period_s


def scaled(absences: Iterator[OfflineInterval], time_scale: float) -> Iterator[OfflineInterval]:
    """Return the absences sped up by this factor."""
    for left_s, back_s in absences:
        yield left_s / time_scale, back_s / time_scale


COLUMNS = (
    *("event_id", "component_id", "node_id", "platform_id", "node_name"),
    *("event_type", "event_start_time", "event_stop_time", "event_end_reason"),
)
NEEDED = ("node_id", "event_type", "event_start_time", "event_stop_time")
AVAILABLE = "1"


@dataclass(frozen=True, kw_only=True)
class FailureTrace(TraceFile):
    """Nodes are online as machines of a trace of the Failure Trace Archive; each node draws its machine.

    Before its first and after its last recorded interval a machine is offline. The trace starts with its earliest
    interval.

    Args:
        path: the trace's file event_trace, unpacked. Relative to the folder that the command is started in.
        time_scale: speed-up over real time: 3600 makes an hour a simulated second.
        start_s: start of the run in the trace, in the trace's seconds; earlier intervals are left out.
    """

    start_s: Annotated[float, Ge(0)] = 0.0

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the file's problems, and report a start_s after which no machine is available."""
        machines = read_events(self.path).values()
        last_s = max((end_s for online in machines for _, end_s in online), default=0.0)
        if last_s <= self.start_s:
            expected = f"less than {last_s:.15g} s, after which {self.path} has no available machine"
            yield ("start_s",), f"expected {expected}, got {self.start_s:.15g}."

    def absences(self, num_nodes: int, seed: int) -> Absences:
        """Return for each node the gaps of its machine; machines repeat only when all are used."""
        machines = list(read_events(self.path).values())
        drawn = [machines[place] for place in dealt(stream(seed, "failure trace"), len(machines), num_nodes)]
        return {node: scaled(gaps(self._from_start(online)), self.time_scale) for node, online in enumerate(drawn)}

    def _from_start(self, online: list[OfflineInterval]) -> list[OfflineInterval]:
        moved = [(max(0.0, begin_s - self.start_s), end_s - self.start_s) for begin_s, end_s in online]
        return [interval for interval in moved if interval[1] > interval[0]]


def read_events(path: str) -> dict[str, list[OfflineInterval]]:
    """Read machine -> its intervals of availability, in order and apart, in seconds since the earliest interval of the
    file.

    Raises:
        ScenarioError: see `FailureTrace.check`.
    """
    expected = f"expected lines of {', '.join(COLUMNS)}"
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise input_files.unreadable(path, expected, error) from error
    columns = list(COLUMNS)
    online: dict[str, list[OfflineInterval]] = {}
    component_of: dict[str, str] = {}
    problems, earliest_s = [], float("inf")
    for number, line in enumerate(lines, 1):
        cells = [cell.strip().strip('"') for cell in line.lstrip("# ").split("\t" if "\t" in line else ",")]
        if earliest_s == float("inf") and set(NEEDED) <= set(cells):
            columns = cells
            continue
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        row = dict(zip(columns, cells, strict=False))
        interval = _interval(row)
        if interval is None:
            problems.append(f"{path}:{number}: {expected}, got {input_files.shortened(repr(line))}")
            continue
        earliest_s = min(earliest_s, interval[0])
        node, component = row["node_id"], row.get("component_id", "")
        if component_of.setdefault(node, component) != component:
            expected = f"component_id {component_of[node]}, as in other lines of node_id {node}"
            problems.append(f"{path}:{number}: expected {expected}, got {component}. Keep the lines of one component.")
        if row["event_type"] == AVAILABLE:
            online.setdefault(node, []).append(interval)
    input_files.refuse(problems)
    if not online:
        raise ScenarioError(f"{path}: {expected}, got none in which a node is available (event_type 1)")
    return {
        name: [(start_s - earliest_s, end_s - earliest_s) for start_s, end_s in merged(intervals)]
        for name, intervals in online.items()
    }


def _interval(row: dict[str, str]) -> OfflineInterval | None:
    """Return start and end in seconds, or None if the line is not a valid trace line."""
    try:
        start_s, end_s = float(row["event_start_time"]), float(row["event_stop_time"])
        valid = row["event_type"].isdecimal() and "node_id" in row and 0 <= start_s <= end_s < 1e15
    except (KeyError, ValueError):
        return None
    return (start_s, end_s) if valid else None
