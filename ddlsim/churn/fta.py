"""Churn from the Failure Trace Archive: its table `event_trace`.

Kondo, Javadi, Iosup, Epema, "The Failure Trace Archive" (CCGrid 2010). A line is an interval: event_id, component_id,
node_id, platform_id, node_name, event_type (1: available; every other number: not), event_start_time, event_stop_time
(seconds since the epoch), event_end_reason, divided by tabs or commas. A first line with these names, after a # or not,
may have them in another order. All lines of a node must have one component.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Gt

from ddlsim.churn.schedule import Absences, Churn, OfflineInterval, merged
from ddlsim.churn.traces import gaps, scaled
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.input_files import refuse, shortened, unreadable
from ddlsim.foundation.registry import Problem
from ddlsim.foundation.rng import dealt, stream

COLUMNS = (
    *("event_id", "component_id", "node_id", "platform_id", "node_name"),
    *("event_type", "event_start_time", "event_stop_time", "event_end_reason"),
)
NEEDED = ("node_id", "event_type", "event_start_time", "event_stop_time")
AVAILABLE = "1"


@dataclass(frozen=True, kw_only=True)
class FailureTrace(Churn):
    """Nodes are online as machines of a trace of the Failure Trace Archive; each node draws its machine.

    Before its first and after its last recorded interval a machine is offline. The trace starts with its earliest
    interval.

    Args:
        path: the trace's file event_trace, unpacked. Relative to the folder that the command is started in.
        time_scale: speed-up over real time: 3600 makes an hour a simulated second.
        start_s: start of the run in the trace, in the trace's seconds; earlier intervals are left out.
    """

    path: str
    time_scale: Annotated[float, Gt(0)] = 1.0
    start_s: Annotated[float, Ge(0)] = 0.0

    def check(self, num_nodes: int) -> None:
        """Read and check the file.

        Raises:
            ScenarioError: it cannot be read, has wrong lines, or no machine that is ever available.
        """
        read_events(self.path)

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the file's problems, and report a start_s after which no machine is available."""
        machines = read_events(self.path).values()
        last_s = max((end_s for online in machines for _, end_s in online), default=0.0)
        if last_s <= self.start_s:
            yield (
                ("start_s",),
                f"expected less than {last_s:.15g}, the second of {self.path} after which no machine is available any "
                f"more, got {self.start_s:.15g}. It is in the trace's own seconds, from its earliest interval on.",
            )

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
        raise unreadable(path, expected, error) from error
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
            problems.append(f"{path}:{number}: {expected}, got {shortened(repr(line))}")
            continue
        earliest_s = min(earliest_s, interval[0])
        node, component = row["node_id"], row.get("component_id", "")
        if component_of.setdefault(node, component) != component:
            problems.append(
                f"{path}:{number}: node_id {node} has lines of component_id {component_of[node]} and {component}, each "
                "with a separate availability. Keep the lines of one component."
            )
        if row["event_type"] == AVAILABLE:
            online.setdefault(node, []).append(interval)
    refuse(problems)
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
