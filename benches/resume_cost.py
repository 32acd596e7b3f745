"""The cost of checkpoints and resume: python benches/resume_cost.py [SCENARIO] [--rounds N] [--set KEY=VALUE ...]

Runs a scenario with a checkpoint at the end of every round, stops it after N rounds and resumes it, in one process.
Prints the processor time of the simulation (without start-up and data) for computing, for repetition and
for a checkpoint; sizes; and the overhead of checkpoints every round and every ten minutes. It is
processor time, which other programs on the machine change little.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from ddlsim import runs
from ddlsim.engine.simulation import Simulation
from ddlsim.runs.checkpoint import Checkpoints, Every, ReplayToCheckpoint
from ddlsim.runs.checkpoint_files import checkpoints_of, read_state
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

EVERY_S = 600.0


class Stopped(Exception):
    """Raised to end a run."""


def after(rounds: int) -> Callable[..., None]:
    """Replace Progress.round, and stop the run."""
    seen = []

    def stop(*_: Any) -> None:
        seen.append(time.process_time())
        if len(seen) == rounds:
            raise Stopped

    return stop


def timed(owner: type, name: str, times_s: list[float]) -> None:
    """Add up the processor time of a method, including calls that raise."""
    plain = getattr(owner, name)

    def method(*arguments: Any) -> Any:
        start = time.process_time()
        try:
            return plain(*arguments)
        finally:
            times_s.append(time.process_time() - start)

    setattr(owner, name, method)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", nargs="?", default="facade_30_2")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    scenario = load(given.scenario, [*given.set, f"rounds={given.rounds + 1}"])
    computing_s: list[float] = []
    checkpoint_s: list[float] = []
    loading_s: list[float] = []
    timed(Simulation, "run", computing_s)
    timed(Checkpoints, "_make", checkpoint_s)
    timed(ReplayToCheckpoint, "end", loading_s)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        for go in (
            lambda: runs.run(scenario, out=out, checkpoint_every=Every(rounds=1), download=False),
            lambda: runs.resume(out, checkpoint_every=Every(), download=False),
        ):
            Progress.round = after(given.rounds if not checkpoint_s else 1)  # type: ignore[method-assign]
            try:
                go()
            except Stopped:
                continue
            raise SystemExit(f"the run has fewer than {given.rounds} rounds")
        checkpoint = checkpoints_of(out)[0]
        state = read_state(checkpoint)
        files_bytes = sum(path.stat().st_size for path in checkpoint.iterdir())
        log_bytes = state.log_bytes
    run_s = computing_s[0] - sum(checkpoint_s)
    repeat_s = computing_s[1] - loading_s[0]
    each_s = median(checkpoint_s)
    print(f"{scenario.name}, {scenario.nodes.count} nodes, {given.rounds} rounds; processor time")
    print(f"computing {run_s:.2f} s; repeating {repeat_s:.3f} s: {run_s / repeat_s:.0f} times faster")
    print(f"loading parameters {loading_s[0]:.3f} s; a checkpoint {each_s:.4f} s (slowest {max(checkpoint_s):.4f} s)")
    print(f"a checkpoint {files_bytes / 1e6:.1f} MB; the log {log_bytes / given.rounds:.0f} bytes per round")
    print(f"every round: {sum(checkpoint_s) / run_s:.2%} longer; every 10 min: at most {each_s / EVERY_S:.4%} longer")


if __name__ == "__main__":
    main()
