"""A run in steps of some rounds, in this process or on workers of Ray."""

from collections.abc import Sequence
from pathlib import Path

from ddlsim import assembly, runs
from ddlsim.runs.cluster.cluster import Executor
from ddlsim.runs.loading import make_learner
from ddlsim.runs.options import Options
from ddlsim.runs.recorder import Recorder
from ddlsim.scenario import load


class UnderWay:
    """A run paused between two rounds; must be closed.

    Args:
        folder: of its metrics; created.
        scenario: path of a scenario.
        settings: changes of its keys.
        executor: of the jobs.
        threads: of a wave in this process; None for all cores.

    Attributes:
        completed: rounds.
        learner, recorder, simulation: the run's.
        prepared: its data.
    """

    def __init__(
        self,
        folder: Path,
        scenario: Path,
        settings: Sequence[str] = (),
        executor: Executor | None = None,
        threads: int | None = None,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        self.scenario = load(scenario, settings)
        self.prepared = runs.prepare(runs.load_data(self.scenario, None, True, False))
        self.completed = 0
        self.learner = make_learner(
            self.scenario, self.prepared, "cpu", Options(executor=executor or Executor(), threads=threads)
        )
        self.recorder = Recorder(folder / "metrics.jsonl")
        self.simulation = assembly.build_simulation(
            self.scenario, self.prepared, self.learner, self.recorder, on_round=self._count
        )

    def _count(self, completed: int, *_: object) -> None:
        self.completed = completed

    def go_on(self, rounds: int) -> None:
        """Simulate so many more rounds, and wait for all work of the workers."""
        until = self.completed + rounds
        while self.completed < until:
            self.simulation.env.step()
        if self.learner.backends is not None:  # the run learns
            self.learner.jobs.settle()
            self.learner.backends.about_end()  # workers answer after all earlier work
        self.recorder.flush()

    def close(self) -> None:
        """End threads and processes."""
        self.recorder.close()
        self.learner.close()
