"""Evaluations of a run. They take no simulated time and influence only the stop at a target.

A loss of nan (a model that has diverged) is worse than every other loss. Measurements of models between evaluations
are computed in waves like all jobs, and written afterwards.
"""

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.attacks.forgeries import BACKDOOR
from ddlsim.attacks.node_attacks import Attackers
from ddlsim.engine.monitor import OracleSimilarities, Population, Records, RoundTimes
from ddlsim.learning.training_inputs import NOT_COMPUTED
from ddlsim.node.candidates import SELECTION_BATCHES, EvaluationCandidates, Snapshot
from ddlsim.node.ports import Model, Params
from ddlsim.scenario.sections import Evaluation
from ddlsim.tasks import Task, metrics
from ddlsim.tasks.base import CONSENSUS, TRAIN_LOSS, VALIDATION, VALIDATION_LOSS, Metric

if TYPE_CHECKING:
    from ddlsim.learning.jobs import Job
    from ddlsim.learning.learner import Learner
    from ddlsim.learning.losses import EvalResult
    from ddlsim.learning.optimizing.state import LocalState

Tested = Mapping[int, tuple[Model, Any]]
"""Node -> the model with which it was tested, and the state that the node keeps from its trainings."""

MOST_OPEN = 20_000
"""Number of training losses that are held before they are written between evaluations."""


class TrainingLosses:
    """Mean losses over the local steps of each node and round. Backends compute them while they train; they are read at
    evaluations, so that no wave of trainings runs earlier for them.

    Args:
        learner: reads losses.
        recorder: destination of rows.
    """

    def __init__(self, learner: "Learner", recorder: Records):
        self._learner, self._recorder = learner, recorder
        self._open: list[tuple[int, int, float, int, Sequence[Params]]] = []  # round, node, time, steps, losses

    def take(self, time_s: float, node: int, completed: int, steps: int, losses: Sequence[Params]) -> None:
        """Note a finished training, of as many pieces of equal length as there are losses."""
        self._open.append((completed, node, time_s, steps, losses))

    def write(self, completed: int, least: int = 0) -> None:
        """Write the losses of these completed rounds, if at least `least` are held."""
        if len(self._open) <= least:
            return
        due = [one for one in self._open if one[0] <= completed]
        self._open = [one for one in self._open if one[0] > completed]
        handles = [loss for *_, losses in due for loss in losses]
        values = iter(self._learner.value(self._learner.training_losses(handles)) if handles else ())
        sums: dict[tuple[int, int], list[float]] = {}  # round and node -> time, steps, sum of losses
        for round_num, node, time_s, steps, losses in due:
            loss = sum(next(values) for _ in losses) / len(losses)
            before = sums.get((round_num, node), (0, 0, 0.0))
            sums[round_num, node] = [time_s, before[1] + steps, before[2] + steps * loss]
        for (round_num, node), (time_s, total, loss) in sorted(sums.items()):
            if loss != NOT_COMPUTED:
                mean = math.inf if math.isnan(loss) else loss / total  # a mean must not skip a diverged model
                self._recorder.training_row(time_s, node, round_num, TRAIN_LOSS, mean)


class Measurements:
    """Validation metric and loss of models that nodes hold only within a round.

    Args:
        learner: measures models.
        recorder: destination of rows.
        metric: metric of the rows.
    """

    def __init__(self, learner: "Learner", recorder: Records, metric: Metric):
        self._learner = learner
        self._recorder = recorder
        self._metric = metric
        self._open: list[tuple[float, int, int, str, Job]] = []
        self.losses = TrainingLosses(learner, recorder)

    def take(
        self, time_s: float, node: int, completed: int, name: str, model: Model, local_state: "LocalState | None"
    ) -> None:
        """Measure a model on a node's validation samples; takes no simulated time.

        Args:
            time_s: time of the rows.
            node: the node that has the samples.
            completed: the rows' round.
            name: the rows are <metric>_<name> (accuracy_before_merge) and loss_<name>.
            model: the measured model.
            local_state: the learner's state of the node's trainings.
        """
        job = self._learner.test([model], node, "own validation", local_state)
        self._open.append((time_s, node, completed, name, job))

    def write(self) -> None:
        """Write the rows of everything measured since the last call."""
        if not self._open:
            return
        found = self._learner.resolve([job for *_, job in self._open])
        metric = self._metric
        for (time_s, node, completed, name, _), ((values, loss, _),) in zip(self._open, found, strict=True):
            if metric.higher_is_better:  # an error would repeat the loss
                self._recorder.row(time_s, node, completed, f"{metric.name}_{name}", values[0])
            self._recorder.row(time_s, node, completed, f"loss_{name}", loss)
        self._open.clear()


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """Outcome of one evaluation of all nodes.

    Args:
        round: rounds completed; one more than the rounds of the run for the last exchange of an algorithm.
        time_s: simulated seconds when the last node had completed them.
        bytes_sent: bytes that all nodes together had sent when each had completed them.
        judged_by: metric of the values.
        values: of each node, float [N]; nan for nodes that have not joined yet, infinity for an error of nan.
        attacked: attackers, which are excluded from means.
    """

    round: int
    time_s: float
    bytes_sent: int
    judged_by: Metric
    values: np.ndarray
    attacked: tuple[int, ...] = ()

    @property
    def honest(self) -> np.ndarray:
        """The values of honest nodes, float [N]; nan for the others."""
        return metrics.without(self.values, self.attacked)

    @property
    def mean(self) -> float:
        """Mean over all honest nodes."""
        return float(metrics.over_nodes(self.honest))

    def reaches(self, target: float) -> bool:
        """Whether the mean over the honest nodes that have joined reaches the target, as in reports."""
        return metrics.first_reaching([self.mean], target, falling=self.judged_by.falling) is not None


@dataclass(eq=False)
class Evaluator:
    """Collects snapshots of a round and evaluates when every node that took part has one.

    Args:
        compute: tests models.
        recorder: destination of rows.
        evaluation: scenario section `evaluation`.
        rounds: rounds of the run.
        test_set: number of each node's test set: its cluster, or itself; int [N].
        task: the learning task.
        rng: (purpose, node, rounds completed) -> a stream of random numbers.
        measurements: measurements between evaluations.
        similarities: true similarities, written at every evaluation.
        on_evaluated: called with every outcome.
        on_model: called with every tested node, its snapshot, the chosen one of its candidates, and its learner's
            state.
        attackers: the attackers; None: all nodes are honest.
        stops_early: whether nodes may stop before the last round, so that `has_measured` is needed.

    Attributes:
        evaluated: completed rounds at the last evaluation.
        target_reached: whether the run should end now.
        measures_start: whether models are tested before the first round.
        compares_models: whether snapshots need the compared state, see Algorithm.seen.
    """

    compute: "Learner"
    recorder: Records
    evaluation: Evaluation
    rounds: int
    test_set: np.ndarray
    task: Task
    rng: Callable[[str, int, int], np.random.Generator]
    measurements: Measurements
    similarities: OracleSimilarities
    on_evaluated: Callable[[Evaluated], None] = lambda _: None
    on_model: Callable[[int, Snapshot, Model, Any], None] = lambda *_: None
    attackers: Attackers | None = None
    stops_early: bool = False

    def __post_init__(self) -> None:
        self.evaluated, self.target_reached = 0, False
        self.measures_start = self.evaluation.initial
        self._schedules: list[tuple[int, int, int]] = []  # first round, rounds between evaluations, rounds of the run
        self.use(self.evaluation, self.rounds, -1, self.similarities)
        self._metrics = self.task.metrics
        self._open: dict[int, dict[int, Snapshot]] = {}
        self._measured: dict[int, list[weakref.ref[Params]]] = {}

    def due(self, completed: int) -> bool:
        """Whether the run is evaluated when this many rounds are completed; a final exchange counts as one more."""
        every, rounds = next(rest for first, *rest in self._schedules if completed >= first)
        return completed >= rounds or completed % every == 0

    def use(self, evaluation: Evaluation, rounds: int, after: int, similarities: OracleSimilarities) -> None:
        """Replace the target from now on, and the evaluated rounds for more than `after` rounds."""
        self._schedules.insert(0, (after + 1, evaluation.every, rounds))  # newest first
        self._stop_at = evaluation.wanted if evaluation.stop_at_target else None
        self.similarities = similarities
        self.compares_models = bool(similarities.chosen)

    def write_measurements(self, completed: int) -> None:
        """Write the measurements between evaluations; all nodes have completed so many rounds."""
        self.measurements.write()
        self.measurements.losses.write(completed, MOST_OPEN)

    def completed(self, node: int, completed: int, population: Population) -> None:
        """Take the snapshot of a node that has completed a due round."""
        self._open.setdefault(completed, {})[node] = population.snapshot(node, completed)

    def close_complete(self, population: Population) -> None:
        """Evaluate every open round that no node is still on the way to; absent nodes count with their current state.

        Nodes that joined or returned in a later round count with their state when they completed that round, if they
        have; nodes that have not joined yet are left out. A node that returns and completes such a round later is not
        measured again in it, because the others would then count with their later state.
        """
        for completed in sorted(self._open):
            if population.any_on_the_way_to(completed):
                return
            snapshots = self._open.pop(completed)
            self.evaluated = completed
            for node in population.joined():
                taken = snapshots.get(node)
                is_server = taken is not None and taken.serving is None  # its last messages have been sent by now
                if taken is None or is_server:
                    open_rounds = [] if is_server else sorted(self._open.items())
                    later = next((snapshot[node] for _, snapshot in open_rounds if node in snapshot), None)
                    snapshots[node] = later or population.snapshot(node, completed)
                elif taken.of_server:  # one model at one time, not at each node's completion
                    snapshots[node] = replace(taken, serving=population.served(node))
            outcome = self._evaluate(completed, dict(sorted(snapshots.items())))
            if outcome is None:
                continue
            self.on_evaluated(outcome)
            self.target_reached |= self._stop_at is not None and outcome.reaches(self._stop_at)

    def has_measured(self, node: int, snapshot: Snapshot) -> bool:
        """Whether a node was last tested with the same models."""
        if snapshot.serving is None:
            return True
        models, _ = self._candidates(snapshot, snapshot.serving)
        return list(map(id, _parts(models))) == [id(each()) for each in self._measured.get(node, ())]

    def _evaluate(self, completed: int, taken: dict[int, Snapshot]) -> Evaluated | None:
        served = {
            node: self._candidates(snapshot, snapshot.serving)
            for node, snapshot in taken.items()
            if snapshot.serving is not None
        }
        snapshots = {node: taken[node] for node in served}
        if self.stops_early:
            self._measured = {node: list(map(weakref.ref, _parts(serving))) for node, (serving, _) in served.items()}
        tests = [
            self.compute.test(
                serving.models, int(self.test_set[node]), local_state=local_state, precision=self.evaluation.precision
            )
            for node, (serving, local_state) in served.items()
        ]
        choices = [self._enqueue_choice(node, completed, *of_node) for node, of_node in served.items()]
        chosen_by = [job for job in choices if job is not None]
        found = self.compute.resolve([*tests, *chosen_by])
        losses = dict(zip(map(id, chosen_by), found[len(tests) :], strict=True))
        values = np.full(len(self.test_set), np.nan)
        tested_models: dict[int, tuple[Model, Any]] = {}
        for (node, snapshot), tested, choice in zip(snapshots.items(), found, choices, strict=False):
            lowest = _lowest([loss for _, loss, _ in tested])
            chosen = lowest if choice is None else _lowest(losses[id(choice)])
            values[node] = self._write(node, completed, snapshot, tested, chosen, lowest)
            serving, local_state = served[node]
            tested_models[node] = serving.models[chosen], local_state
            self.on_model(node, snapshot, serving.models[chosen], local_state)
        if self.evaluation.validation:
            self._write_validation(completed, snapshots, tested_models)
        if self.attackers is not None and self.attackers.backdoor is not None:
            self._write_backdoor(completed, snapshots, tested_models)
        for node in taken.keys() - snapshots.keys():  # a server has bytes, but no model
            self.recorder.row(taken[node].time_s, node, completed, "bytes_sent", taken[node].bytes_sent)
        self.similarities.write(completed, snapshots)
        self.measurements.losses.write(completed)
        self._write_consensus(completed, snapshots, tested_models)
        self.recorder.flush()
        if not snapshots:  # a server alone: no node has joined yet
            return None
        return Evaluated(
            round=completed,
            time_s=max(snapshot.time_s for snapshot in snapshots.values()),
            bytes_sent=sum(snapshot.bytes_sent for snapshot in taken.values()),
            judged_by=self._metrics[0],
            values=values,
            attacked=() if self.attackers is None else self.attackers.nodes,
        )

    def _write_backdoor(self, completed: int, snapshots: dict[int, Snapshot], models: Tested) -> None:
        """Write each node's share of test samples of other classes that are classified as the backdoor's target."""
        jobs = [
            self.compute.test([model], int(self.test_set[node]), BACKDOOR, local_state)
            for node, (model, local_state) in models.items()
        ]
        for node, ((_, _, confusion),) in zip(models, self.compute.resolve(jobs), strict=True):
            assert confusion is not None, "a backdoor needs classes"
            success = float(metrics.accuracy(confusion))  # all samples are labeled with the target
            self.recorder.row(snapshots[node].time_s, node, completed, "backdoor_success", success)

    def _write_validation(self, completed: int, snapshots: dict[int, Snapshot], models: Tested) -> None:
        """Write metrics and loss of the tested models on each node's validation samples."""
        jobs = [self.compute.test([model], node, "own validation", state) for node, (model, state) in models.items()]
        for node, ((values, loss, _),) in zip(models, self.compute.resolve(jobs), strict=True):
            time_s = snapshots[node].time_s
            for metric, value in zip(self._metrics, values, strict=True):
                self.recorder.row(time_s, node, completed, f"{VALIDATION}{metric.name}", value)
            self.recorder.row(time_s, node, completed, VALIDATION_LOSS, math.inf if math.isnan(loss) else loss)

    def _write_consensus(self, completed: int, snapshots: dict[int, Snapshot], models: Tested) -> None:
        """Write each honest node's squared distance to the average of their tested models."""
        attackers = () if self.attackers is None else self.attackers.nodes
        honest = [node for node in models if node not in attackers]
        if not self.evaluation.consensus_distance or len(honest) < 2:
            return
        job = self.compute.consensus_distances([models[node][0] for node in honest])
        for node, value in zip(honest, self.compute.value(job) if job else (), strict=False):
            self.recorder.training_row(snapshots[node].time_s, node, completed, CONSENSUS, value)

    def _candidates(self, snapshot: Snapshot, serving: EvaluationCandidates) -> tuple[EvaluationCandidates, Any]:
        """Return the tested models of a node, and the learner's state of its trainings."""
        if self.evaluation.evaluated_model == "best" and snapshot.best is not None:
            return EvaluationCandidates([snapshot.best]), snapshot.best_local_state
        return serving, snapshot.local_state

    def _enqueue_choice(
        self, node: int, completed: int, serving: EvaluationCandidates, local_state: Any
    ) -> "Job | None":
        if len(serving.models) == 1 or serving.choose == "lowest_test_loss":
            return None
        split = "train" if serving.choose == "train_loss" else "validation"
        rng = self.rng("evaluation batches", node, completed)
        return self.compute.losses(node, serving.models, SELECTION_BATCHES, rng, True, split, local_state)

    def _write(
        self, node: int, completed: int, snapshot: Snapshot, tested: "list[EvalResult]", chosen: int, lowest: int
    ) -> float:
        def row(name: str, value: Any) -> None:
            self.recorder.row(snapshot.time_s, node, completed, name, value)

        values, loss, confusion = tested[chosen]
        for metric, value in zip(self._metrics, values, strict=True):
            row(metric.name, value)
        if self.task.records_loss:
            row("test_loss", math.inf if math.isnan(loss) else loss)  # a mean must not skip a diverged model
        if confusion is not None:
            row("confusion", confusion.tolist())
        row("bytes_sent", snapshot.bytes_sent)
        if len(tested) > 1:
            row(f"{self._metrics[0].name}_lowest_test_loss", tested[lowest][0][0])
            row("evaluated_head", chosen)
        return values[0]


def _parts(serving: EvaluationCandidates) -> list[Params]:
    """Return all parts of all candidates."""
    return [params for model in serving.models for params in model]


def _lowest(losses: Sequence[float]) -> int:
    """Return the index of the lowest loss; nan is lowest only if all are nan."""
    return int(np.argmin(np.where(np.isnan(losses), np.inf, losses)))


Monitor = Evaluator | RoundTimes
"""Measures the completed rounds of a run."""
