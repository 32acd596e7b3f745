"""Time and memory of network-only runs by number of nodes, as a markdown table (as in docs/network_scale.md).

    python benches/network_scale.py                     1,000 to 1,000,000 nodes; the last needs two minutes and 6 GB
    python benches/network_scale.py 1000:10 10000:10    nodes:rounds of your choice

Every line is one run of scenarios/million_network_only.yaml by the command line, in a separate process.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCENARIO = ROOT / "scenarios" / "million_network_only.yaml"
LINES = ("1000:10", "10000:10", "100000:10", "1000000:1")
DEGREE = 4


def measure(nodes: int, rounds: int) -> str:
    """Return one line of the table; check that every message arrived."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "ddlsim", "run", str(SCENARIO), "-q", "--json", "--out", f"{folder}/run"]
        command += ["--set", f"nodes.clusters=[{nodes}]", "--set", f"rounds={rounds}"]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        out = subprocess.run(command, stdout=subprocess.PIPE, check=True, env={**os.environ, "PYTHONPATH": path})
        wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        summary = json.loads(out.stdout)
        traffic = json.loads((Path(folder) / "run" / "communication.jsonl").read_text())
    messages = nodes * rounds * DEGREE
    assert traffic["messages"] == messages, traffic
    assert summary["bytes"]["wasted"] == 0
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return (
        f"| {nodes:,} | {rounds} | {messages:,} | {wall_s:.1f} s | {cpu_s:.1f} s | {messages / cpu_s:,.0f} | "
        f"{summary['peak_rss_mib']:,} MiB | {summary['sim_time_s']:.3f} s |"
    )


def main(lines: list[str]) -> None:
    print("| nodes | rounds | messages | wall | CPU | messages per CPU second | peak memory | simulated |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for line in lines:
        nodes, _, rounds = line.partition(":")
        print(measure(int(nodes), int(rounds)), flush=True)
    print(f"\nload average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main(sys.argv[1:] or list(LINES))
