"""CPU time and memory of runs with training, by number of nodes, as a markdown table (as in docs/training.md).

    python benches/learning_scale.py                     100, 1,000 and 10,000 nodes; needs two minutes and 5 GB
    python benches/learning_scale.py 100:20 1000:5       nodes:rounds of your choice

Every line is a run of scenarios/thousand_nodes.yaml in a separate process on one core, with equal work per node:
an MLP on 20 random images of 16 x 16 per node, 5 steps of 4 images and the losses of two heads a round. The figure
of a line is the median over its rounds, except the first and last, of the process's user and system time per round and
node. Threads that wait for each other would count as busy; hence one core.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from ddlsim import assembly, runs
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import load

SCENARIO = Path(__file__).parents[1] / "scenarios" / "thousand_nodes.yaml"
LINES = ("100:30", "1000:8", "10000:8")
SAMPLES, SIDE, CLASSES = 20, 16, 10


def measure(nodes: int, rounds: int, folder: Path) -> dict[str, float]:
    """Measure one run in this process."""
    rng = np.random.default_rng(1)
    arrays = {}
    for split, count in (("train", nodes * SAMPLES), ("test", 100)):
        arrays[f"x_{split}"] = rng.standard_normal((count, SIDE, SIDE, 1), dtype=np.float32)
        arrays[f"y_{split}"] = np.arange(count) % CLASSES
    np.savez(folder / "data.npz", **arrays)
    del arrays
    few = max(1, nodes // 10)
    changes = (
        f"nodes={{clusters: [{nodes - few}, {few}]}}",
        f"data={{name: npz, path: {folder / 'data.npz'}}}",
        "shift={name: none}",
        f"rounds={rounds}",
        "algorithm.warmup_rounds=0",
        f"evaluation={{every: {rounds}, samples: 100}}",
    )
    prepared = runs.prepare(runs.load_data(load(SCENARIO, changes), None, True, False))
    learner = assembly.build_learner(load(SCENARIO, changes), prepared, "cpu", threads=1)
    without_mib = _mib()
    recorder = Recorder(folder / "metrics.jsonl")
    ends: list[float] = []
    simulation = assembly.build_simulation(
        load(SCENARIO, changes), prepared, learner, recorder, on_round=lambda *_: ends.append(time.process_time())
    )
    simulation.run()
    recorder.close()
    sizes = {kind: set(waves) for kind, waves in learner.jobs.waves.items()}
    learner.close()
    assert len(ends) == rounds and sizes["training"] == {nodes}, sizes
    (architecture,) = learner.architectures.values()
    each_s = [(end - start) / nodes for start, end in pairwise(ends[:-1])]  # the last one evaluates
    return {
        "round_s": statistics.median(each_s),
        "model_kib": architecture.layout.size * 4 / 1024,
        "grown_mib": _mib() - without_mib,
        "peak_mib": _mib(),
    }


def _mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def line_of(nodes: int, rounds: int) -> dict[str, float]:
    """Measure one run in a separate process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--one", str(nodes), str(rounds), folder]
        alone = {**os.environ, "OMP_NUM_THREADS": "1"}
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, env=alone).stdout)


def main(lines: list[str]) -> None:
    print(
        "| nodes | rounds | CPU per round and node | to the first line | peak memory | grown by, per node | a model |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    first = None
    for line in lines:
        nodes, _, rounds = line.partition(":")
        found = line_of(int(nodes), int(rounds))
        first = first or found["round_s"]
        print(
            f"| {int(nodes):,} | {rounds} | {found['round_s'] * 1e6:,.0f} µs | {found['round_s'] / first:.2f} | "
            f"{found['peak_mib']:,.0f} MiB | {found['grown_mib'] * 1024 / int(nodes):,.0f} KiB | "
            f"{found['model_kib']:.0f} KiB |",
            flush=True,
        )
    print(f"\nload average at the end: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))))
    else:
        main(sys.argv[1:] or list(LINES))
