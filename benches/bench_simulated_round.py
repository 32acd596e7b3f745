"""A round of FACADE 30:2 as a run computes it, event by event, against the same work in full waves.

The alternative is what benches/bench_round.py times: the losses of all heads, all trainings and all merges of a round
as one wave each, called one after the other. What a run needs beyond that is events, messages, records, and waves that
are not full.
"""

from pathlib import Path

import facade_cell as cell
import pytest

from ddlsim import build, runs
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import load

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


class UnderWay:
    """A run that goes on by some rounds at a time, and a second learner on the same data."""

    def __init__(self, folder: Path):
        scenario = load(SCENARIO, SETTINGS)
        prepared = runs.prepare(runs.load_data(scenario, None, True, False))
        self.completed = 0
        self.learner, self.apart = (build.build_learner(scenario, prepared, "cpu") for _ in range(2))
        self.recorder = Recorder(folder / "metrics.jsonl")
        self.simulation = build.build_simulation(scenario, prepared, self.learner, self.recorder, on_round=self._count)

    def _count(self, completed: int, *_: object) -> None:
        self.completed = completed

    def go_on(self, rounds: int = ROUNDS) -> None:
        """Simulates until so many more rounds are complete."""
        until = self.completed + rounds
        while self.completed < until:
            self.simulation.env.step()


@pytest.fixture(scope="module")
def under_way(tmp_path_factory):
    run = UnderWay(tmp_path_factory.mktemp("run"))
    run.go_on(3)  # heads are chosen and peers drawn; what is compiled or allocated once is there
    yield run
    run.recorder.close()
    for learner in (run.learner, run.apart):
        learner.close()


def test_facade_round_event_by_event(ratio, benchmark, under_way):
    learner = under_way.apart  # waves of the run's own learner would sweep its pending jobs along
    starts = [learner.init_models(node)[0] for node in range(cell.NODES)]

    def waves() -> None:
        for _ in range(ROUNDS):
            cell.whole_round(learner, starts, common=True)

    before = under_way.completed
    under_way.go_on()
    assert under_way.completed == before + ROUNDS
    ratio(under_way.go_on, waves, "the round's full waves alone", 7)
