"""Measurements of models between evaluations, for monitoring: computed in waves like all jobs, written afterwards."""

from typing import TYPE_CHECKING

from ddlsim.tasks.metric import Metric

if TYPE_CHECKING:
    from ddlsim.evaluation.monitor import Records, Tester
    from ddlsim.learning.job_types import Model
    from ddlsim.learning.jobs import Job
    from ddlsim.learning.optimizing.state import Kept


class Measurements:
    """Validation metric and loss of models that nodes hold only within a round.

    Args:
        learner: see learning/learner.py.
        recorder: where rows go.
        metric: what models are judged by.
    """

    def __init__(self, learner: "Tester", recorder: "Records", metric: Metric):
        self._learner = learner
        self._recorder = recorder
        self._metric = metric
        self._open: list[tuple[float, int, int, str, Job]] = []

    def take(self, time_s: float, node: int, completed: int, name: str, model: "Model", kept: "Kept | None") -> None:
        """Measures a model on a node's validation samples; costs no simulated time.

        Args:
            time_s: of the rows.
            node: the node that has the samples.
            completed: the rows' round.
            name: the rows are <metric>_<name> (accuracy_before_merge) and loss_<name>.
            model: what to measure.
            kept: what the learner keeps of the node's trainings.
        """
        job = self._learner.test([model], node, "own validation", kept)
        self._open.append((time_s, node, completed, name, job))

    def write(self) -> None:
        """Writes the rows of everything measured since the last time."""
        if not self._open:
            return
        found = self._learner.resolve([job for *_, job in self._open])
        metric = self._metric
        for (time_s, node, completed, name, _), ((values, loss, _),) in zip(self._open, found, strict=True):
            if metric.higher_is_better:  # an error says what the loss says
                self._recorder.row(time_s, node, completed, f"{metric.name}_{name}", values[0])
            self._recorder.row(time_s, node, completed, f"loss_{name}", loss)
        self._open.clear()
