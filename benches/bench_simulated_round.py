"""A round of FACADE 30:2 in a run, event by event, against the same work in full waves.

The alternative is the round of benches/bench_round.py: the losses of all heads, all trainings and all merges of a round
as one wave each, called in sequence. A run adds events, messages, records, and waves that
are not full.
"""

from pathlib import Path

import facade_cell as cell
import pytest
from under_way import UnderWay

from ddlsim.assembly import build_learner

SCENARIO = Path(__file__).parents[1] / "scenarios" / "facade_30_2.yaml"
SETTINGS = (
    "data={name: fashion-mnist-mini}",
    "rounds=1000",
    "algorithm.warmup_rounds=0",
    "algorithm.final_all_reduce=false",
    "evaluation.every=1000000",
)
ROUNDS = 2
"""Rounds of a turn."""


@pytest.fixture(scope="module")
def under_way(tmp_path_factory):
    run = UnderWay(tmp_path_factory.mktemp("run"), SCENARIO, SETTINGS)
    run.go_on(3)  # heads are chosen, peers drawn, and one-time compilation and allocation are done
    yield run
    run.close()


@pytest.fixture(scope="module")
def apart(under_way):
    """A second learner on the same data, because waves of the run's learner would include its pending jobs."""
    learner = build_learner(under_way.scenario, under_way.prepared, "cpu")
    yield learner
    learner.close()


def test_facade_round_event_by_event(ratio, benchmark, under_way, apart):
    starts = [apart.init_models(node)[0] for node in range(cell.NODES)]

    def waves() -> None:
        for _ in range(ROUNDS):
            cell.whole_round(apart, starts, common=True)

    before = under_way.completed
    under_way.go_on(ROUNDS)
    assert under_way.completed == before + ROUNDS
    ratio(lambda: under_way.go_on(ROUNDS), waves, "the round's full waves alone", 7)
