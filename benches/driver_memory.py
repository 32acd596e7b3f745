"""Memory and time of the simulating process, with actors of Ray that learn nothing as workers.

    python benches/driver_memory.py                        100,000 nodes, 5 rounds of Epidemic Learning, 2 actors
    python benches/driver_memory.py NODES ROUNDS ACTORS ALGORITHM

The run is an ordinary one on Ray (see docs/cluster.md) with 4 samples a node; its actors answer every wave at once with
made-up losses and accuracies, have no rows, and send empty blocks. The driver remains: events, messages, jobs,
handles of rows, messages to workers, records.
"""

import json
import pickle
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim import runs
from ddlsim.learning.losses import EvalResult
from ddlsim.runs.callbacks import Callback, Completed
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.cluster import ray_workers
from ddlsim.runs.cluster.cluster import Executor
from ddlsim.runs.cluster.ray_workers import Worker
from ddlsim.scenario import load

SCENARIO = Path(__file__).parents[1] / "scenarios" / "thousand_nodes.yaml"
CLASSES = 10
SAMPLES = 4
"""Training samples of a node."""


class StubShard:
    """Replaces Shard of learning/remote/shard.py."""

    def wave(self, packed: bytes, *blocks: Any) -> list[Any] | None:
        """Return values of the right types, if the jobs have values."""
        wave = pickle.loads(packed)
        if wave.kind == "evaluation":
            table = np.eye(CLASSES, dtype=np.int64)
            return [[EvalResult((0.5,), 2.3, table)] * len(spec.models) for spec in wave.specs]
        if wave.kind == "head losses":
            return [[2.3] * len(spec.models) for spec in wave.specs]
        return None

    def export(self, wanted: Sequence[Any]) -> Any:
        """Return blocks without rows."""
        return (None,) * len(wanted) if len(wanted) > 1 else None

    def use_training(self, packed: bytes) -> None:
        """Do nothing."""

    def know(self, reasons: Any) -> None:
        """Do nothing, because there are no backends."""

    def reasons(self) -> dict[str, dict[str, str]]:
        """Return no reasons."""
        return {}

    def report(self) -> dict[str, Any]:
        """Return an empty report."""
        return {"taken": {}, "fallback_counts": {}, "wall_s": {}, "rows": 0, "peak_rss_mib": 0}


class StubWorker(Worker):
    """An actor without a learner."""

    def start(self, code: Any, packed: bytes, prepared: Any = None) -> str | None:
        """Start without data."""
        self._shard = StubShard()  # type: ignore[assignment]
        return "cpu"


class Memory(Callback):
    """Callback that prints the memory of the process after each round."""

    def __init__(self) -> None:
        self.last_s = time.perf_counter()

    def on_round(self, completed: Completed) -> None:
        """See Callback."""
        now_s = time.perf_counter()
        own = resident_mib("RssAnon")
        print(
            f"round {completed.round}: {now_s - self.last_s:.1f} s, {resident_mib()} MiB, {own} of its own", flush=True
        )
        self.last_s = now_s


def resident_mib(key: str = "VmRSS") -> int:
    """Return the resident memory of the process; VmHWM: its maximum; RssAnon: without file-backed pages."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key + ":")) // 1024


def write_data(path: Path, nodes: int) -> None:
    """Write a few images per node, of 28 x 28 pixels."""
    rng = np.random.default_rng(0)
    train, test = SAMPLES * nodes, 1000
    np.savez(
        path,
        x_train=rng.integers(0, 256, (train, 28, 28), dtype=np.uint8),
        y_train=rng.integers(0, CLASSES, train),
        x_test=rng.integers(0, 256, (test, 28, 28), dtype=np.uint8),
        y_test=np.arange(test) % CLASSES,
    )


def main(nodes: int = 100_000, rounds: int = 5, actors: int = 2, algorithm: str = "el") -> None:
    ray_workers.Worker = StubWorker  # type: ignore[misc]
    own = {"el": "{name: el, final_all_reduce: false}", "facade": None}.get(algorithm, f"{{name: {algorithm}}}")
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder) / "data.npz", nodes)
        settings = [f"nodes.clusters=[{nodes}]", f"rounds={rounds}", f"evaluation.every={rounds}", "shift={name: none}"]
        settings += ["partition={name: iid}"]
        settings += [f"data={{name: npz, path: {folder}/data.npz, mapped: true}}", "evaluation.samples=null"]
        settings += [] if own is None else [f"algorithm={own}"]
        out = Path(folder) / "run"
        executor = Executor(name="ray", workers=actors, cpus_per_worker=1, object_store_gb=0.5)
        runs.run(load(SCENARIO, settings), out=out, executor=executor, checkpoint_every=Every(), callbacks=[Memory()])
        executor = json.loads((out / "manifest.json").read_text())["executor"]
    print(f"{nodes} nodes, {rounds} rounds of {algorithm}, {actors} actors: at most {resident_mib('VmHWM')} MiB")
    print(f"calls {executor['calls']}, rows that would have moved {executor['moved_bytes'] / 1e9:.2f} GB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:4]), *sys.argv[4:5])
