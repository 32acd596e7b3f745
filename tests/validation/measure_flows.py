"""Measures cases of flows over real TCP and stores the times, one JSON file per setting.

    python tests/validation/measure_flows.py incast el_8 --queue pfifo --repeats 3 --out docs/results/trust/flows

A file that is there gets the new repetitions added, if its flows and links are the same.
"""

import argparse
import contextlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from cases import CASES, Case
from real_flows import RealFlows
from testbed import QUEUES, HostLink, Testbed, has_queue, missing


def measure(case: Case, queue: str, packets: int, congestion: str, connections: str) -> list[float | None]:
    """Seconds from each flow's start to its last byte; None: it was cut off."""
    with Testbed([HostLink(*link) for link in case.links], queue, packets, congestion) as testbed:
        finish_s = RealFlows(testbed, connections, time_limit_s=60.0).run(case.flows, case.leaves)
    return [
        None if end_s is None else round(end_s - start_s, 6)
        for end_s, (start_s, *_) in zip(finish_s, case.flows, strict=True)
    ]


def store(path: Path, setting: dict[str, Any], taken_s: list[float | None]) -> None:
    """Adds a repetition to a file."""
    known = {**setting, "taken_s": []}
    if path.exists():
        known = json.loads(path.read_text())
        if any(known[key] != json.loads(json.dumps(value)) for key, value in setting.items()):
            raise SystemExit(f"{path} holds another setting; remove it to measure anew")
    known["taken_s"].append(taken_s)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in known.items())
    path.write_text("{\n" + text + "\n}\n")


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
        file = given.out / f"{name}+{given.queue}{given.packets}+{given.congestion}+{given.connections}.json"
        for _ in range(given.repeats):
            taken_s = measure(case, given.queue, given.packets, given.congestion, given.connections)
            store(file, setting, taken_s)
            print(file.name, f"{max(s for s in taken_s if s is not None):.3f} s longest", file=sys.stderr)


if __name__ == "__main__":
    main()
