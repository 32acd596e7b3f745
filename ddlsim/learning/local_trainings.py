"""Local trainings of all nodes: their batches, random numbers, learning rates and privacy, from the scenario.

A request of an algorithm becomes a specification of a training: the rows that it reads, and the rows that it will fill.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.accounting import Releases
from ddlsim.learning.architecture import Architecture, latent_size
from ddlsim.learning.bank import Params, Rows
from ddlsim.learning.batches import Batches, batches_per_pass, draw_batches
from ddlsim.learning.datasets import NodeDatasets
from ddlsim.learning.job_types import Model, TrainSpec
from ddlsim.learning.layout import Entry, Part
from ddlsim.learning.objective import Objective
from ddlsim.learning.optimizing.schedules import rates
from ddlsim.learning.optimizing.state import KeptRows, LocalState, OptimizerState
from ddlsim.learning.optimizing.updates import updates_of
from ddlsim.learning.private_steps import PrivateSteps, draw_poisson_batches, sample_rate
from ddlsim.learning.row_operations import PoisonedNodes
from ddlsim.learning.training_context import TrainingContext

if TYPE_CHECKING:
    from ddlsim.scenario.model import Privacy
    from ddlsim.scenario.model import Training as Settings


@dataclass(frozen=True)
class Request:
    """Request of an algorithm for a training.

    Args:
        node: the node that has the samples.
        model: model at the start, part by part.
        batches: sample indices per step.
        only: part that is trained alone; None for all.
        local_state: state that the node kept from its last training.
        objective: the loss; None for the task's loss.
        seed: of the random numbers drawn in it; None if none are drawn.
        rates: learning rate per update.
        proximal: mu of the proximal term.
        control: row added to every gradient; None if nothing is added.
        labels: labels whose mean features are returned.
        last_pass: number of steps, the last ones, whose features count in these means.
        private: clipping and noise of the gradients; None without them.
    """

    node: int
    model: Model
    batches: Batches
    only: str | None
    local_state: LocalState
    objective: Objective | None
    seed: int | None
    rates: Sequence[float]
    proximal: float
    control: Params | None
    labels: Sequence[int]
    last_pass: int
    private: PrivateSteps | None = None


@dataclass(frozen=True)
class Training:
    """A training that can be enqueued.

    Args:
        spec: its specification.
        reads: handles to the rows that it reads.
        writes: handles to those that it fills.
        trained: the resulting model; parts that are not trained are unchanged.
        local_state: state that the node keeps afterwards.
        means: by label the mean of its features.
    """

    spec: TrainSpec
    reads: list[Params]
    writes: list[Params]
    trained: Model
    local_state: LocalState
    means: dict[int, Params]


def make_training(
    rows: Rows, asked: Request, kept_rows: KeptRows, mean_part: Part | None, local_part: Part
) -> Training:
    """Number the rows of a training: the trained parts, moments, means, own buffers.

    Args:
        rows: of the run.
        asked: the request, see Request.
        kept_rows: rows that the optimizer keeps of each part.
        mean_part: part of the mean of a label's features; None if no labels are requested.
        local_part: the architecture's own buffers of a node, if it has any.
    """
    model, local_state = asked.model, asked.local_state
    moves = [asked.only in (None, params.part.name) for params in model]
    trained = tuple(rows.new(params.part) if own else params for params, own in zip(model, moves, strict=True))
    moments = [
        tuple(rows.new(row) if own else None for row in kept_rows.of(params.part))
        for params, own in zip(model, moves, strict=True)
    ]
    means = {} if mean_part is None else {label: rows.new(mean_part) for label in asked.labels}
    local = rows.new(local_part) if local_part.size else None
    before = [local_state.moments.get(params.part.name) for params in model] if kept_rows.kept else []
    targets = dict(asked.objective.targets) if asked.objective else {}
    spec = TrainSpec(
        node=asked.node,
        architecture=model[0].part.architecture,
        model=tuple(params.serial for params in model),
        sizes=tuple(params.size for params in model),
        trained=tuple(params.serial if own else None for params, own in zip(trained, moves, strict=True)),
        batches=asked.batches,
        only=asked.only,
        moments=tuple(each and OptimizerState(each.steps, tuple(row.serial for row in each.rows)) for each in before),
        new_moments=tuple(_number(row) for of_part in moments for row in of_part),
        objective=asked.objective and asked.objective.without_targets(),
        targets={label: params.serial for label, params in targets.items()},
        seed=asked.seed,
        rates=tuple(asked.rates),
        proximal=asked.proximal,
        control=_number(asked.control),
        means={label: params.serial for label, params in means.items()},
        last_pass=asked.last_pass,
        local=_number(local_state.local),
        new_local=_number(local),
        private=asked.private,
    )
    reads = [
        *model,
        *(row for each in before if each for row in each.rows),
        *targets.values(),
        local_state.local,
        asked.control,
    ]
    made = [params for params, own in zip(trained, moves, strict=True) if own]
    writes = [*made, *(row for of_part in moments for row in of_part), *means.values(), local]
    moments_then = _moments_then(asked, moves, moments) if kept_rows.kept else local_state.moments
    keeps = LocalState(moments_then, local, local_state.batches + len(asked.batches))
    return Training(spec, _held(reads), _held(writes), trained, keeps, means)


def _moments_then(asked: Request, moves: Sequence[bool], rows: Sequence[tuple]) -> dict[str, OptimizerState]:
    """Return the optimizer's state of each part after the training."""
    found = dict(asked.local_state.moments)
    for params, own, new in zip(asked.model, moves, rows, strict=True):
        if own:
            last = asked.local_state.moments.get(params.part.name)
            found[params.part.name] = OptimizerState(len(asked.rates) + (last.steps if last else 0), new)
    return found


def _number(params: Params | None) -> int | None:
    return None if params is None else params.serial


def _held(handles: Sequence[Params | None]) -> list[Params]:
    return [params for params in handles if params is not None]


class LocalTrainings:
    """Draws the random choices of trainings, in the order in which trainings are requested.

    Args:
        rows: of the run.
        data: samples of all nodes.
        architecture_of: returns the architecture that a node trains.
        settings: scenario section `training`.
        privacy: scenario section `privacy`, if gradients are private; None if they are not.
        poisoned: data on which attacked nodes train instead of their own; None if all nodes are honest.
    """

    def __init__(
        self,
        rows: Rows,
        data: NodeDatasets,
        architecture_of: Callable[[int], Architecture],
        settings: "Settings",
        privacy: "Privacy | None",
        poisoned: PoisonedNodes | None,
    ):
        self._rows, self._data, self._architecture_of = rows, data, architecture_of
        self._privacy = privacy
        self._poisoned = poisoned
        self._mean_parts: dict[str, Part] = {}
        self.use(settings)

    def use(self, settings: "Settings") -> None:
        """Trainings that are made from now on have these settings."""
        self._settings, self._kept_rows = settings, KeptRows(settings)

    def make(
        self,
        node: int,
        model: Model,
        steps: int,
        rng: np.random.Generator,
        only: str | None,
        local_state: LocalState,
        objective: Objective | None,
        terms: TrainingContext,
    ) -> Training:
        """Return a training that can be enqueued; for the arguments see Learner.train_towards.

        Raises:
            DdlsimError: if gradients are private and the algorithm defines its own loss.
        """
        settings, architecture = self._settings, self._architecture_of(node)
        private = None
        if self._privacy is None:
            samples = self._data.num_samples("train", node)
            batches = draw_batches(rng, samples, settings.batch_size, steps, settings.drop_last)
        else:
            private, batches = self._private_steps(self._privacy, node, steps, rng, objective)
        noisy = settings.augmentation != "none" or architecture.layout.draws_noise or architecture.draws_shared
        seed = int(rng.integers(2**63 - 1)) if noisy else None
        last_pass = min(steps, self.steps_per_epoch(node))
        data = node if self._poisoned is None else self._poisoned.data_of(node, terms.round_num)
        labels = self._labels_of(data, batches[-last_pass:]) if objective and objective.class_means else []
        asked = Request(
            node=data,
            model=model,
            batches=batches,
            only=only,
            local_state=local_state,
            objective=objective,
            seed=seed,
            rates=self.learning_rates(steps, local_state, terms),
            proximal=settings.proximal + terms.proximal,
            control=terms.control,
            labels=labels,
            last_pass=last_pass,
            private=private,
        )
        mean_part = self._mean_part(architecture, node) if labels else None
        return make_training(self._rows, asked, self._kept_rows, mean_part, architecture.layout.local)

    def steps_per_epoch(self, node: int) -> int:
        """Mini-batches in one pass over a node's training samples."""
        samples = self._data.num_samples("train", node)
        return batches_per_pass(samples, self._settings.batch_size, self._settings.drop_last)

    def learning_rates(self, steps: int, local_state: LocalState | None, terms: TrainingContext) -> list[float]:
        """Return the learning rate of every update of a training.

        Args:
            steps: its mini-batches.
            local_state: state that the node kept from its last training.
            terms: its place in the run.
        """
        settings, batches = self._settings, 0 if local_state is None else local_state.batches
        starts = range(0, updates_of(steps, settings.accumulate) * settings.accumulate, settings.accumulate)
        per_round = settings.schedule is None or settings.schedule.per == "round"
        total = terms.rounds if per_round else terms.steps
        updates = [(terms.round_num, batches + start) for start in starts]
        return rates(settings.schedule, settings.learning_rate, updates, total)

    def one_release(self, node: int) -> Releases:
        """Return the release of a node's samples by one step of private training."""
        assert self._privacy is not None
        rate = sample_rate(self._data.num_samples("train", node), self._settings.batch_size)
        return Releases(self._privacy.noise_multiplier, rate, 1)

    def _private_steps(
        self, privacy: "Privacy", node: int, steps: int, rng: np.random.Generator, objective: Objective | None
    ) -> tuple[PrivateSteps, Batches]:
        """Return the clipping and noise of a training's gradients, and its batches."""
        if objective is not None:
            raise DdlsimError(
                "privacy: this algorithm trains with a loss of its own, of which there is no gradient per sample. Use "
                "privacy.kind: message, or an algorithm that trains with the task's loss (el, dpsgd, dac, facade, ...)."
            )
        samples, batch_size = self._data.num_samples("train", node), self._settings.batch_size
        batches = draw_poisson_batches(rng, samples, batch_size, steps)
        expected, seed = samples * sample_rate(samples, batch_size), int(rng.integers(2**63 - 1))
        return PrivateSteps(privacy.clip, privacy.noise_multiplier, expected, seed), batches

    def _labels_of(self, node: int, batches: Sequence[np.ndarray]) -> list[int]:
        """The labels that occur in mini-batches, ascending."""
        labels = self._data.train[node][1]
        return labels[torch.from_numpy(np.concatenate(batches)).to(labels.device)].unique().tolist()

    def _mean_part(self, architecture: Architecture, node: int) -> Part:
        """Return the part of a row that holds one mean of features."""
        name = architecture.layout.architecture
        if name not in self._mean_parts:
            inputs = self._data.train[node][0]
            size = latent_size(architecture.module(torch.device("cpu")), inputs.shape[1:], inputs.dtype)
            self._mean_parts[name] = Part(name, "class mean", (Entry("mean", (size,), 0, size, True),))
        return self._mean_parts[name]
