"""Compare the speed and the records of whole runs of two checkouts of this repository, in alternation.

    python benches/alternate.py OTHER_CHECKOUT TIMES SCENARIO [--set KEY=VALUE ...]
    python benches/alternate.py ../before 5 scenarios/million_network_only.yaml --set nodes.clusters=[10000]

Every run is a separate process, from the start of Python to the last record. The figure is its user CPU time, which
other processes on the machine disturb less than wall time; alternation evens out the rest. Each checkout needs its
own compiled module (`pip install -e .` in each, or a module in its ddlsim/). Exit code 1: the records differ.
"""

import hashlib
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ("metrics.jsonl", "communication.jsonl", "links.jsonl", "contents.jsonl", "samples.jsonl")


def run(checkout: Path, arguments: list[str]) -> tuple[float, dict[str, str]]:
    """Return the user CPU seconds of one run, and the hashes of its records."""
    path = os.pathsep.join(filter(None, (str(checkout), os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "ddlsim", "run", *arguments, "-q", "--json", "--out", str(out)]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.DEVNULL, check=True)
        user_s = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        files = [out / name for name in RECORDS if (out / name).exists()]
        return user_s, {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def main(other: Path, times: int, arguments: list[str]) -> bool:
    """Print a table; return whether all runs wrote the same records."""
    checkouts = {"this": ROOT, "other": other.resolve()}
    arguments[0] = str((ROOT / arguments[0]).resolve())
    user_s, records = {name: [] for name in checkouts}, []
    for _ in range(times):
        for name, checkout in checkouts.items():
            seconds, hashes = run(checkout, arguments)
            user_s[name].append(seconds)
            records.append(hashes)
    print("| checkout | user CPU s, each run | median | least |\n|---|---|---:|---:|")
    for name, seconds in user_s.items():
        each = " ".join(f"{value:.2f}" for value in seconds)
        print(f"| {name} | {each} | {statistics.median(seconds):.2f} | {min(seconds):.2f} |")
    medians, least = ([pick(user_s[name]) for name in checkouts] for pick in (statistics.median, min))
    print(f"\nthis / other: {medians[0] / medians[1]:.2f} by medians, {least[0] / least[1]:.2f} by the least")
    same = all(hashes == records[0] for hashes in records)
    print(f"records: {'identical' if same else 'THEY DIFFER'} ({', '.join(records[0])})")
    return same


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(not main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
