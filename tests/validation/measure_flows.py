"""Measures cases of flows over real TCP and stores the times of all settings in one JSON file.

    python tests/validation/measure_flows.py incast el_8 --queue pfifo --repeats 3 --out docs/results/trust/flows.json

Repetitions of a stored setting are added to it, if its flows and links are the same. A repetition in which the
relay forwarded a frame, or the sender reached its sockets, more than 5 ms too late, because the machine was busy
with other work, is counted instead of stored and measured again, at most three times.
"""

import argparse
import contextlib
import json
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import CASES, Case
from real_flows import RealFlows
from testbed import QUEUES, HostLink, Testbed, congestion_controls, has_queue, missing

TOO_LATE_S, TRIES = 0.005, 3


@dataclass(frozen=True)
class ReplayToCheckpoint:
    """The result of one run of a case.

    Args:
        taken_s: seconds from each flow's start to its last byte; None if it was disconnected.
        dropped: frames that the relay dropped.
        latest_s: largest delay of a forwarded frame or of the sender at its sockets.
    """

    taken_s: list[float | None]
    dropped: int
    latest_s: float


def measure(case: Case, queue: str, packets: int, congestion: str, connections: str) -> ReplayToCheckpoint:
    """Send the flows of a case."""
    with Testbed([HostLink(*link) for link in case.links], queue, packets, congestion) as testbed:
        sender = RealFlows(testbed, connections, time_limit_s=60.0)
        finish_s = sender.run(case.flows, case.leaves)
    taken_s = [
        None if end_s is None else round(end_s - start_s, 6)
        for end_s, (start_s, *_) in zip(finish_s, case.flows, strict=True)
    ]
    return ReplayToCheckpoint(taken_s, testbed.dropped, max(testbed.latest_s, sender.stalled_s))


def store(path: Path, name: str, setting: dict[str, Any], found: ReplayToCheckpoint) -> None:
    """Add a repetition to a setting in a file; a disturbed one is only counted."""
    table = json.loads(path.read_text()) if path.exists() else {}
    empty = {**setting, "disturbed": 0, "latest_s": [], "dropped": [], "taken_s": []}
    known = table[name] = empty | table.get(name, {})
    if any(known[key] != json.loads(json.dumps(value)) for key, value in setting.items()):
        raise SystemExit(f"{path}: {name} has other flows or links. Remove it to measure it again.")
    if found.latest_s > TOO_LATE_S:
        known["disturbed"] += 1
    else:
        known["latest_s"].append(found.latest_s)
        known["dropped"].append(found.dropped)
        known["taken_s"].append(found.taken_s)
    write_table(path, table)


def write_table(path: Path, table: dict[str, dict[str, Any]]) -> None:
    """Write a table by name atomically, one line per value of an entry."""
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = []
    for name, values in table.items():
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in values.items())
        entries.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
    draft = path.with_suffix(".draft")
    draft.write_text("{\n" + ",\n".join(entries) + "\n}\n")
    draft.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures cases of flows over real TCP.")
    parser.add_argument("cases", nargs="+", choices=sorted(CASES))
    parser.add_argument("--queue", choices=QUEUES, default="pfifo")
    parser.add_argument("--packets", type=int, default=100)
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--connections", choices=("persistent", "per_message"), default="persistent")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    if (reason := missing()) is not None:
        raise SystemExit(f"no testbed here: {reason}")
    if given.queue.startswith("fq") and not has_queue(given.queue):
        raise SystemExit(f"this kernel has no {given.queue}")
    if given.congestion not in congestion_controls():
        raise SystemExit(f"this kernel has no {given.congestion}, but {', '.join(congestion_controls())}")
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
    for name in given.cases:
        case = CASES[name]()
        setting = {
            "case": name,
            "queue": given.queue,
            "packets": given.packets,
            "congestion": given.congestion,
            "connections": given.connections,
            "kernel": platform.release(),
            "links": case.links,
            "flows": case.flows,
            "leaves": {str(host): time_s for host, time_s in case.leaves.items()},
        }
        entry = f"{name}+{given.queue}{given.packets}+{given.congestion}+{given.connections}"
        for _ in range(given.repeats):
            for _ in range(TRIES):
                found = measure(case, given.queue, given.packets, given.congestion, given.connections)
                store(given.out, entry, setting, found)
                longest_s = max(s for s in found.taken_s if s is not None)
                print(f"{entry} {longest_s:.3f} s longest, {found.latest_s:.4f} s late", file=sys.stderr)
                if found.latest_s <= TOO_LATE_S:
                    break


if __name__ == "__main__":
    main()
