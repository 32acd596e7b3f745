"""Rounds of a run on Ray against the same rounds of the same run in this process.

Both runs continue by some rounds in turns. Each turn waits for all work of the workers at its end;
starting Ray and sending the run are not counted. Rounds include an evaluation, like runs.
"""

from pathlib import Path

import pytest
from under_way import UnderWay

from ddlsim.runs.cluster import cluster
from ddlsim.runs.cluster.cluster import Executor

pytest.importorskip("ray", reason="the extra ray is not installed")

SCENARIOS = Path(__file__).parents[1] / "scenarios"
GN_LENET = (
    "facade_30_2.yaml",
    ("data={name: fashion-mnist-mini}", "rounds=1000", "algorithm.warmup_rounds=2", "evaluation.every=10"),
)
THOUSAND = ("thousand_nodes.yaml", ("rounds=1000", "evaluation.every=10"))
CASES = {
    "32 nodes, one worker of two threads": (*GN_LENET, 1, 2),
    "1,000 nodes, one worker of two threads": (*THOUSAND, 1, 2),
    "1,000 nodes, two workers of one thread": (*THOUSAND, 2, 1),
}
ROUNDS = 10
"""Rounds of a turn, with one evaluation."""


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def bench_rounds(ratio, benchmark, tmp_path, case):
    scenario, settings, workers, threads = CASES[case]
    executor = Executor(name="ray", workers=workers, cpus_per_worker=threads)
    with cluster.disconnecting(executor):
        here = UnderWay(tmp_path / "here", SCENARIOS / scenario, settings, threads=2)
        there = UnderWay(tmp_path / "there", SCENARIOS / scenario, settings, executor)
        try:
            ratio(lambda: there.go_on(ROUNDS), lambda: here.go_on(ROUNDS), "the local executor, two threads", 3)
            assert here.completed == there.completed
            records = [(tmp_path / place / "metrics.jsonl").read_bytes() for place in ("here", "there")]
            assert records[0] == records[1]
            about = there.learner.backends.about_end()
            benchmark.extra_info.update({key: about[key] for key in ("calls", "moved_bytes")}, rounds=there.completed)
        finally:
            there.close()
            here.close()
