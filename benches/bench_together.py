"""Eight seeds for which one process computes, against the same seeds one after another and two at a time.

Runs are processes from the start of Python to the last record, as in a sweep. On a CPU no gain is expected: a joined
wave has more jobs, but each is computed alone.
"""

from itertools import count
from pathlib import Path

import pytest

from ddlsim.runs.sweeps.axes import parse_seeds
from ddlsim.runs.sweeps.points import Base, points, words_of
from ddlsim.runs.sweeps.pool import Job
from ddlsim.runs.sweeps.together import run_processes
from ddlsim.scenario.load import read_tree

SCENARIO = Path(__file__).parents[1] / "scenarios" / "smoke.yaml"
SETTINGS = ("model={name: gn_lenet}", "rounds=4", "evaluation.every=4", "compute_device=cpu")
SEEDS = parse_seeds("0..7")


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def bench_eight_seeds(ratio, tmp_path, jobs):
    numbers, records = count(), []

    def run(at_once, together):
        base = Base("smoke", read_tree(SCENARIO), SETTINGS, tmp_path / str(next(numbers)), str(SCENARIO))
        found = points(base, [], SEEDS)
        ended = run_processes([Job(point.name, words_of(point, ["-q"])) for point in found], at_once, together)
        assert [one.cause for one in ended] == [""] * len(SEEDS)
        records.append([(point.directory / "metrics.jsonl").read_bytes() for point in found])

    separate = f"{jobs} run{'s' * (jobs > 1)} at a time"
    ratio(lambda: run(1, len(SEEDS)), lambda: run(jobs, None), separate, rounds=1, warm=False)
    assert all(written == records[0] for written in records)
