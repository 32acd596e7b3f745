"""Recorded churn: ddlsim's CSV format, and the availability trace of FedScale.

FedScale's file (Lai et al., "FedScale: Benchmarking Model and System Performance of Federated Learning at Scale", ICML
2022) is a pickle: device -> {duration, inactive: [s, ..], finish_time: s, active: [s, ..], model}. A device is online
from active[i] to inactive[i], and again every finish_time seconds. FedScale ignores an interval that ends before it
starts; here it continues past finish_time into the next repetition.

Of a pickle only data is read, see pickled_data.py.
"""

import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Annotated, Any

from annotated_types import Gt

from ddlsim.churn.schedule import Absences, Churn, OfflineInterval, merged
from ddlsim.foundation.csv_rows import Column, read_rows, refuse, shortened
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.pickled_data import read_data_only
from ddlsim.foundation.rng import stream

MAX_TIME_S = 1e18


@dataclass(frozen=True, kw_only=True)
class Trace(Churn):
    """Nodes are online in the intervals of a file.

    Args:
        path: CSV with the columns node,start_s,end_s: intervals ONLINE; every node needs at least one, and after its
            last one it is offline permanently. Nodes that the run does not have are skipped. Relative to the folder
            that the command is started in.
        time_scale: speed-up over the file's time: 3600 makes an hour a simulated second.
    """

    path: str
    time_scale: Annotated[float, Gt(0)] = 1.0

    def check(self, num_nodes: int) -> None:
        """Read and check the file.

        Raises:
            ScenarioError: it cannot be read, has wrong rows, or lacks a node.
        """
        self.absences(num_nodes, 0)

    def absences(self, num_nodes: int, seed: int) -> Absences:
        """Return for each node the gaps between its intervals, the last one without end."""
        online = read_online(self.path)
        missing = next((node for node in range(num_nodes) if node not in online), None)
        if missing is not None:
            raise ScenarioError(
                f"{self.path}: expected an online interval for each of {num_nodes} nodes, got none for node {missing}"
            )
        return {node: scaled(gaps(online[node]), self.time_scale) for node in range(num_nodes)}


@dataclass(frozen=True, kw_only=True)
class FedScale(Churn):
    """Nodes are online as phones of FedScale's availability trace; each node draws its phone.

    Args:
        path: FedScale's pickle; read without running any code in it. Relative to the folder that the command is started
            in.
        time_scale: speed-up over real time: 3600 makes an hour a simulated second.
    """

    path: str
    time_scale: Annotated[float, Gt(0)] = 1.0

    def check(self, num_nodes: int) -> None:
        """Read and check the file.

        Raises:
            ScenarioError: it cannot be read, does not have FedScale's format, or contains more than data.
        """
        read_fedscale(self.path)

    def absences(self, num_nodes: int, seed: int) -> Absences:
        """Return for each node the gaps of its phone, repeated every finish_time."""
        phones = list(read_fedscale(self.path).values())
        drawn = (phones[int(stream(seed, "churn", node).integers(len(phones)))] for node in range(num_nodes))
        return {
            node: scaled(_repeated_gaps(fold(phone), phone["finish_time"]), self.time_scale)
            for node, phone in enumerate(drawn)
        }


def read_online(path: str) -> dict[int, list[OfflineInterval]]:
    """Node -> its online intervals (start_s, end_s) in order, from our CSV.

    Raises:
        ScenarioError: the file cannot be read, has wrong rows, or intervals of a node overlap; names the first 20.
    """
    columns = {"node": Column(whole=True, below=2**31), "start_s": Column(), "end_s": Column()}
    problems = []
    rows: dict[int, list[tuple[float, float, int]]] = {}
    for line, row in read_rows(path, columns):
        start_s, end_s = row["start_s"], row["end_s"]
        if end_s <= start_s:
            problems.append(f"{path}:{line}: end_s: expected more than start_s ({start_s:g}), got {end_s:g}")
        rows.setdefault(int(row["node"]), []).append((start_s, end_s, line))
    for node, intervals in rows.items():
        intervals.sort()
        for (_, end_s, first), (start_s, _, line) in pairwise(intervals):
            if start_s < end_s:
                problems.append(
                    f"{path}:{line}: start_s: expected {end_s:g} or more, where node {node}'s interval of line {first} "
                    f"ends, got {start_s:g}"
                )
    refuse(problems)
    return {node: [(start_s, end_s) for start_s, end_s, _ in intervals] for node, intervals in rows.items()}


def read_fedscale(path: str) -> dict[Any, Mapping[str, Any]]:
    """Device -> {active, inactive, finish_time, ..} of FedScale's pickle, in the file's order.

    Raises:
        ScenarioError: it cannot be read, does not have FedScale's format, or contains more than data.
    """
    expected = "expected FedScale's pickle of availability"
    devices = read_data_only(path, expected)
    if not isinstance(devices, dict) or not devices:
        raise ScenarioError(f"{path}: {expected}, a dict of devices, got {_briefly(devices)}")
    problems = [f"{path}: device {name!r}: {what}" for name, phone in devices.items() for what in _wrong_with(phone)]
    refuse(problems)
    return devices


def _wrong_with(phone: Any) -> Iterator[str]:
    if not isinstance(phone, dict):
        yield f"expected a dict, got {_briefly(phone)}"
        return
    for key in ("active", "inactive"):
        times = phone.get(key)
        if not isinstance(times, list | tuple) or not all(_is_time(time) for time in times):
            yield f"{key}: expected a list of seconds, got {_briefly(times)}"
            return
    if len(phone["active"]) != len(phone["inactive"]):
        yield f"expected as many active as inactive times, got {len(phone['active'])} and {len(phone['inactive'])}"
    period_s = phone.get("finish_time")
    if not _is_time(period_s) or period_s == 0:
        yield f"finish_time: expected seconds above 0, got {_briefly(period_s)}"


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MAX_TIME_S


def _briefly(value: Any) -> str:
    return shortened(reprlib.repr(value))


def fold(phone: Mapping[str, Any]) -> list[OfflineInterval]:
    """A device's online intervals within one repetition, 0 to finish_time: in order, apart from each other."""
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
    """Absences around online intervals; the last one never ends."""
    left_s = 0.0
    for start_s, end_s in online:
        if start_s > left_s:
            yield left_s, start_s
        left_s = end_s
    yield left_s, math.inf


def _repeated_gaps(online: Sequence[OfflineInterval], period_s: float) -> Iterator[OfflineInterval]:
    """Absences around online intervals that come again every period, without end."""
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
