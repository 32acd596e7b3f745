"""Local trainings of all nodes: their batches, random numbers, learning rates and privacy, from the scenario.

A request of an algorithm becomes a training job: the rows that it reads, and the rows that it will fill.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from ddlsim.foundation.accounting import Releases
from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.architecture import Architecture
from ddlsim.learning.bank import Params, Rows
from ddlsim.learning.datasets import NodeDatasets
from ddlsim.learning.job_types import Model, TrainSpec
from ddlsim.learning.jobs import Job
from ddlsim.learning.layout import Entry, Part
from ddlsim.learning.model_sizes import latent_size
from ddlsim.learning.optimizing.schedules import rates
from ddlsim.learning.optimizing.state import LocalState, OptimizerState, StateRows, TrainingPlan
from ddlsim.learning.optimizing.updates import updates_of
from ddlsim.learning.private_steps import PrivateSteps, draw_poisson_batches, sample_rate
from ddlsim.learning.row_operations import PoisonedNodes
from ddlsim.learning.training_inputs import Batches, Objective, TrainingContext, batches_per_pass, draw_batches
from ddlsim.scenario.network_sections import Privacy
from ddlsim.scenario.per_node import of_node
from ddlsim.scenario.sections import Training as Settings

LOSS = Part("", "training loss", (Entry("loss", (1,), 0, 1, True),))

Training = tuple[Job, Model, LocalState, dict[int, Params]]
"""The job of an enqueued training, the resulting model (parts that are not trained are unchanged), the state that the
node keeps afterwards, and by label the means of its features."""


class LocalTrainings:
    """Draws the random choices of trainings, in the order in which trainings are requested.

    Args:
        rows: of the run.
        submit: enqueues a job, see RowOperations.
        data: samples of all nodes.
        architecture_of: returns the architecture that a node trains.
        settings: scenario section `training`, with the values of each node drawn.
        privacy: scenario section `privacy`, if gradients are private; None if they are not.
        poisoned: data sets of attacked nodes; None if all nodes are honest.
    """

    def __init__(
        self,
        rows: Rows,
        submit: Callable[..., Job],
        data: NodeDatasets,
        architecture_of: Callable[[int], Architecture],
        settings: Settings,
        privacy: Privacy | None,
        poisoned: PoisonedNodes | None,
    ):
        self._rows, self._submit = rows, submit
        self._data, self._architecture_of = data, architecture_of
        self._privacy = privacy
        self._poisoned = poisoned
        self._mean_parts: dict[str, Part] = {}
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Use these settings for trainings that are enqueued from now on."""
        self._settings, self._state_rows = settings, StateRows(settings)

    def enqueue(
        self,
        node: int,
        model: Model,
        steps: int,
        rng: np.random.Generator,
        only: str | None,
        local_state: LocalState,
        objective: Objective | None,
        context: TrainingContext,
    ) -> Training:
        """Enqueue a training; for the arguments see Learner.train_towards.

        Raises:
            DdlsimError: if gradients are private and the algorithm defines its own loss, or if a training cannot be cut
                into pieces.
        """
        settings, layout = self._settings, self._architecture_of(node).layout
        of, done = steps if context.of is None else context.of, context.done
        plan = local_state.unfinished if done else None
        if plan is None:
            plan = self._plan(node, of, rng, objective)
        is_last = done + steps == of
        if steps < of:
            self._check_piece(steps, is_last, objective, context)
        batches = plan.batches.between(done, done + steps)
        private = plan.private and replace(plan.private, seed=plan.private.seed + done)
        last_pass = min(steps, self.steps_per_epoch(node))
        data = node if self._poisoned is None else self._poisoned.data_of(node, context.round_num)
        rates = self.learning_rates(node, steps, local_state, context)
        parts = [params.row.part for params in model]
        moves = [only is None or only == part.name for part in parts]
        filled = [self._rows.new(part) if move else None for part, move in zip(parts, moves, strict=True)]
        trained = tuple([own or params for own, params in zip(filled, model, strict=True)])
        kept = self._state_rows.kept
        continues, writes_state = kept or done > 0, kept or not is_last
        keeps = continues or writes_state
        moments = self._new_moments(model, [move and writes_state for move in moves]) if keeps else [()] * len(model)
        means = self._new_means(node, data, batches[-last_pass:]) if objective and objective.class_means else {}
        last = local_state.moments if continues else {}
        local = self._rows.new(layout.local) if layout.local.size else None
        loss = self._rows.new(LOSS)
        job = self._submit(
            TrainSpec,
            node=data,
            architecture=parts[0].architecture,
            model=model,
            sizes=tuple([part.size for part in parts]),
            trained=tuple(filled),
            batches=batches,
            only=only,
            moments=tuple([last.get(part.name) for part in parts]) if keeps else (),
            new_moments=tuple([row for of_part in moments for row in of_part]),
            objective=objective and replace(objective, targets={}),  # these are rows
            targets=dict(objective.targets) if objective else {},
            seed=plan.seed,
            skipped=tuple(plan.batches.sizes[:done]) if done else (),
            rates=tuple(rates),
            proximal=settings.proximal + context.proximal,
            control=context.control,
            means=means,
            last_pass=last_pass,
            local=local_state.local,
            new_local=local,
            private=private,
            loss=loss,
        )
        states = dict(last) if writes_state else {}
        for part, move, rows in zip(parts, moves, moments, strict=True):
            if move and writes_state:
                before = last.get(part.name)
                states[part.name] = OptimizerState(len(rates) + (before.steps if before else 0), rows)
        unfinished = None if is_last else plan
        return job, trained, LocalState(states, local, local_state.batches + len(batches), unfinished, loss), means

    def batch_size(self, node: int) -> int:
        """Return the samples of a node's mini-batches."""
        return int(of_node(self._settings.batch_size, node))

    def steps_per_epoch(self, node: int) -> int:
        """Return the number of mini-batches in one pass over a node's training samples."""
        samples = self._data.num_samples("train", node)
        return batches_per_pass(samples, self.batch_size(node), self._settings.drop_last)

    def learning_rates(
        self, node: int, steps: int, local_state: LocalState | None, context: TrainingContext
    ) -> list[float]:
        """Return the learning rate of every update of a training.

        Args:
            node: the node that trains.
            steps: its mini-batches.
            local_state: state that the node kept from its last training.
            context: its place in the run.
        """
        settings, batches = self._settings, 0 if local_state is None else local_state.batches
        if settings.schedule is None:
            return [of_node(settings.learning_rate, node)] * updates_of(steps, settings.accumulate)
        starts = range(0, updates_of(steps, settings.accumulate) * settings.accumulate, settings.accumulate)
        total = context.rounds if settings.schedule.per == "round" else context.steps
        updates = [(context.round_num, batches + start) for start in starts]
        return rates(settings.schedule, of_node(settings.learning_rate, node), updates, total)

    def one_release(self, node: int) -> Releases:
        """Return the release of a node's samples by one step of private training."""
        assert self._privacy is not None
        rate = sample_rate(self._data.num_samples("train", node), self.batch_size(node))
        return Releases(self._privacy.noise_multiplier, rate, 1)

    def _plan(self, node: int, steps: int, rng: np.random.Generator, objective: Objective | None) -> TrainingPlan:
        """Draw the random choices of a training."""
        settings, architecture, private = self._settings, self._architecture_of(node), None
        if self._privacy is None:
            samples = self._data.num_samples("train", node)
            batches = draw_batches(rng, samples, self.batch_size(node), steps, settings.drop_last)
        else:
            private, batches = self._private_steps(self._privacy, node, steps, rng, objective)
        draws = settings.augmentation != "none" or architecture.layout.draws_noise or architecture.draws_shared
        return TrainingPlan(batches, int(rng.integers(2**63 - 1)) if draws else None, private)

    def _check_piece(self, steps: int, is_last: bool, objective: Objective | None, context: TrainingContext) -> None:
        """Raise DdlsimError if a training cannot be cut after these steps."""
        settings, text = self._settings, ""
        if settings.proximal or context.proximal or (objective and (objective.keeps_start or objective.class_means)):
            text = "a loss without the parameters at the start (training.proximal) and without class means"
        elif steps % settings.accumulate and not is_last:
            text = f"a multiple of training.accumulate ({settings.accumulate}) as steps, got {steps}"
        if text:
            raise DdlsimError(f"node.train: of: expected {text}. Train all steps in one call.")

    def _private_steps(
        self, privacy: Privacy, node: int, steps: int, rng: np.random.Generator, objective: Objective | None
    ) -> tuple[PrivateSteps, Batches]:
        """Return the clipping and noise of a training's gradients, and its batches."""
        if objective is not None:
            text = "this algorithm defines a loss, which has no gradient per sample"
            raise DdlsimError(f"privacy: {text}. Use privacy.kind: message, or another algorithm (el, dpsgd, ...).")
        samples, batch_size = self._data.num_samples("train", node), self.batch_size(node)
        batches = draw_poisson_batches(rng, samples, batch_size, steps)
        expected, seed = samples * sample_rate(samples, batch_size), int(rng.integers(2**63 - 1))
        return PrivateSteps(privacy.clip, privacy.noise_multiplier, expected, seed), batches

    def _new_moments(self, model: Model, moves: Sequence[bool]) -> list[tuple[Params | None, ...]]:
        """Return the rows of each part's moments after the training; None for parts that are not trained."""
        return [
            tuple(self._rows.new(row) if move else None for row in self._state_rows.of(params.part))
            for params, move in zip(model, moves, strict=True)
        ]

    def _new_means(self, node: int, data: int, batches: Sequence[np.ndarray]) -> dict[int, Params]:
        """Return the row of each label's mean, for the labels that occur in mini-batches, ascending."""
        labels = self._data.train[data][1]
        occurring = labels[torch.from_numpy(np.concatenate(batches)).to(labels.device)].unique().tolist()
        architecture = self._architecture_of(node)
        name = architecture.layout.architecture
        if name not in self._mean_parts:
            inputs = self._data.train[node][0]
            size = latent_size(architecture.module(torch.device("cpu")), inputs.shape[1:], inputs.dtype)
            self._mean_parts[name] = Part(name, "class mean", (Entry("mean", (size,), 0, size, True),))
        return {label: self._rows.new(self._mean_parts[name]) for label in occurring}
