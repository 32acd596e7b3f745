"""Local trainings of all nodes: their batches, random numbers, learning rates and privacy, as the scenario has them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ddlsim.errors import DdlsimError
from ddlsim.learning.architecture import Architecture
from ddlsim.learning.attacking import PoisonedNodes
from ddlsim.learning.bank import Rows
from ddlsim.learning.batches import Batches, batches_per_pass, draw_batches
from ddlsim.learning.heads import latent_size
from ddlsim.learning.job_types import Model
from ddlsim.learning.layout import Entry, Part
from ddlsim.learning.node_datasets import NodeDatasets
from ddlsim.learning.objective import Objective
from ddlsim.learning.optimizing.schedules import rates
from ddlsim.learning.optimizing.state import Kept, KeptRows
from ddlsim.learning.optimizing.updates import updates_of
from ddlsim.learning.private_steps import PrivateSteps, draw_poisson_batches, sample_rate
from ddlsim.learning.terms import Terms
from ddlsim.learning.trainings import Request, Training, make_training
from ddlsim.privacy.accounting import Releases

if TYPE_CHECKING:
    from ddlsim.scenario.model import Training as Settings
    from ddlsim.scenario.privacy import Privacy


class LocalTrainings:
    """Draws what a training needs, in the order in which trainings are asked for.

    Args:
        rows: of the run.
        data: samples of all nodes.
        architecture_of: what a node trains.
        settings: scenario section `training`.
        privacy: scenario section `privacy`, if gradients are to be private; None: they are not.
        poisoned: data that attacked nodes train on in the place of their own; None: all nodes are honest.
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
        kept: Kept,
        objective: Objective | None,
        terms: Terms,
    ) -> Training:
        """A training that can be enqueued; for the arguments see Learner.train_towards.

        Raises:
            DdlsimError: gradients are to be private, and the algorithm has a loss of its own.
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
            kept=kept,
            objective=objective,
            seed=seed,
            rates=self.learning_rates(steps, kept, terms),
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

    def learning_rates(self, steps: int, kept: Kept | None, terms: Terms) -> list[float]:
        """The learning rate of every update of a training.

        Args:
            steps: its mini-batches.
            kept: what the node kept of its last training.
            terms: where in the run it stands.
        """
        settings, batches = self._settings, 0 if kept is None else kept.batches
        starts = range(0, updates_of(steps, settings.accumulate) * settings.accumulate, settings.accumulate)
        per_round = settings.schedule is None or settings.schedule.per == "round"
        total = terms.rounds if per_round else terms.steps
        updates = [(terms.round_num, batches + start) for start in starts]
        return rates(settings.schedule, settings.learning_rate, updates, total)

    def one_release(self, node: int) -> Releases:
        """What one step of private training releases of a node's samples."""
        assert self._privacy is not None
        rate = sample_rate(self._data.num_samples("train", node), self._settings.batch_size)
        return Releases(self._privacy.noise_multiplier, rate, 1)

    def _private_steps(
        self, privacy: "Privacy", node: int, steps: int, rng: np.random.Generator, objective: Objective | None
    ) -> tuple[PrivateSteps, Batches]:
        """How the gradients of a training are clipped and noised, and its batches."""
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
        """What a row with one mean of features holds."""
        name = architecture.layout.architecture
        if name not in self._mean_parts:
            inputs = self._data.train[node][0]
            size = latent_size(architecture.module(torch.device("cpu")), inputs.shape[1:], inputs.dtype)
            self._mean_parts[name] = Part(name, "class mean", (Entry("mean", (size,), 0, size, True),))
        return self._mean_parts[name]
