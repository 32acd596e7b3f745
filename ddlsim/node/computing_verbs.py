"""Verbs of a node that compute on its samples: training, in one call or in pieces, and losses of candidates."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation.errors import DdlsimError
from ddlsim.learning.training_inputs import Objective, TrainingContext, no_samples
from ddlsim.node import arguments
from ddlsim.node.candidates import BestModel
from ddlsim.node.collective_verbs import CollectiveVerbs, Verb
from ddlsim.node.parameters import Deferred
from ddlsim.node.ports import Model, Params, Ports

if TYPE_CHECKING:
    from ddlsim.learning.optimizing.state import LocalState


class ComputingVerbs(CollectiveVerbs):
    """Verbs that compute on the node's samples.

    Args:
        node_id, ports, times_lost: as of ParameterOps.
        best: record in which each local training is validated; None: no validation.

    Attributes:
        round_num: current round; the engine updates it.
        local_state: the learner's state of the node's trainings.
    """

    def __init__(self, node_id: int, ports: Ports, best: BestModel | None = None, times_lost: int = 0):
        super().__init__(node_id, ports, times_lost)
        self._log, self._released, self._best = ports.log, ports.released, best
        self.round_num, self.open_verbs = 0, 0
        self.local_state: LocalState | None = None
        self._pieces: tuple[int, Model] | None = None  # of an unfinished training the steps done, and the start

    def train(
        self,
        model: "Model",
        steps: int | None = None,
        only: str | None = None,
        objective: Objective | None = None,
        after_step: "Callable[[Model], Model] | None" = None,
        proximal: float = 0.0,
        control: "Params | None" = None,
        steps_of_run: int | None = None,
        of: int | None = None,
    ) -> Verb:
        """Run local SGD steps on this node's samples; outcome: the trained model, part by part.

        With an objective that collects class means the outcome is (model, {label: mean of its features}).

        With early stopping, or if the best model is evaluated, one more pass is made over the node's validation
        samples.

        Args:
            model: parts in order, (core, head, ...) or (model,).
            steps: number of mini-batches; local_steps by default.
            only: "core", "head", ... to train that part and freeze the others.
            objective: loss to minimize; None: the task's loss. Each view of an image takes the time of an image.
            after_step: change of the model after every step, at no simulated time, such as the correction of its
                gradient by a control variate. Each step is then a separate pass over the samples, so it draws its
                mini-batch from all of them, and with training.optimizer_state `fresh` it has a new optimizer. Not with
                an objective that collects class means; see Algorithm.splits_local_steps.
            proximal: mu of a term `mu / 2 |w - w_0|^2` in the loss, with the given model as w_0; added to
                training.proximal.
            control: vector added to every gradient: a control variate, over the trained values of a model of one part
                (see `trained_values`).
            steps_of_run: mini-batches that the algorithm trains on in all rounds, which give a schedule `per: step`
                its length; local_steps in each by default.
            of: mini-batches of a training that is cut into pieces, of which this call computes the next `steps`. It has
                one optimizer, one order of samples and one series of random numbers, so its pieces compute the same as
                one call. A node that leaves starts it again.

        Raises:
            DdlsimError: the model has no part `only`, the training has fewer steps left than `steps`, or steps is not a
                whole number, or the node is a server.
        """
        arguments.check_has_samples(self.id, self.is_server, "train")
        if only is not None:
            arguments.check_part(only, model)
        compute = self._compute
        steps = self.local_steps if steps is None else arguments.step_count(steps)
        done, start = self._pieces if of is not None and self._pieces else (0, model)
        of = steps if of is None else arguments.step_count(of)
        if done or of != steps:
            arguments.check_piece(steps, done, of, after_step is not None)
        is_last = done + steps == of
        batches = compute.batches_in("validation", self.id) if self._best is not None and is_last else 0
        passes = steps * (1 if objective is None else objective.views)
        duration_s = self._clock.computing_s(self.id, passes, batches)
        if self._attack is not None:
            duration_s += self._attack.delay_s(self.round_num)
            if self._attack.idles(self.round_num) and not (objective is not None and objective.class_means):
                return self._after(duration_s, lambda: model)
        rng = self._batch_rng("training batches")
        loss = objective, self._loss_terms(proximal, control, steps_of_run, of, done)
        if after_step is None:
            trained, local_state, means = compute.train_towards(
                self.id, model, steps, rng, only, self.local_state, *loss
            )
            losses = [local_state.loss] if local_state is not None else []
        else:
            assert objective is None or not objective.class_means
            trained, local_state, means, losses = model, self.local_state, {}, []
            for _ in range(steps):
                trained, local_state, means = compute.train_towards(self.id, trained, 1, rng, only, local_state, *loss)
                trained = after_step(trained)
                losses += [] if local_state is None else [local_state.loss]
        validation = None
        if self._best is not None and is_last:
            validation = compute.losses(self.id, [trained], batches, None, split="validation", local_state=local_state)
        outcome = (trained, means) if objective is not None and objective.class_means else trained
        if self._starts is not None:
            self._starts.trained(trained, start)
        pieces = None if is_last else (done + steps, start)

        def finish() -> Any:
            self.local_state, self._pieces = local_state, pieces
            if losses and steps:
                self._log.trained(self._clock.now_s, self.id, self.round_num + 1, steps, losses)
            if self._released is not None:
                self._released(self.id, self.round_num, steps)
            if self._best is not None and validation is not None:
                self._best.trained(trained, validation, local_state)
            return outcome

        return self._after(duration_s, finish)

    @property
    def learning_rate(self) -> float:
        """The scenario's learning rate (node 0's) at the start of the run, the same on all nodes and in all
        rounds, independent of schedules and branches: see `learning_rates`.
        """
        return self._compute.learning_rate

    def learning_rates(self, steps: int | None = None) -> list[float]:
        """Return the learning rate of every update of the next training (of local_steps mini-batches by default)."""
        steps = self.local_steps if steps is None else steps
        return self._compute.learning_rates(self.id, steps, self.local_state, self._loss_terms())

    def losses(
        self,
        models: "Sequence[Model]",
        batches: int | None,
        *,
        common: bool = False,
        split: str = "train",
        later: bool = False,
        takes_time: bool = True,
    ) -> Verb:
        """Compute the mean loss of each model over mini-batches of this node's samples; outcome: a list of floats.

        Args:
            models: candidates.
            batches: mini-batches per model, at most one pass over the data; None: one pass.
            common: the same mini-batches for all models.
            split: "train" or "validation".
            later: whether the outcome is a `Deferred`, for a node that does not need the losses yet.
            takes_time: whether the device is charged for the forward passes.

        Raises:
            DdlsimError: there are no such samples, or the number of mini-batches is 0.
        """
        arguments.check_has_samples(self.id, self.is_server, "losses")
        compute = self._compute
        if split not in ("train", "validation"):
            raise DdlsimError(f"node.losses: expected the split train or validation, got {split!r}.")
        one_pass = compute.batches_in(split, self.id)
        if not one_pass:
            raise no_samples(self.id, split)
        if batches is not None and batches < 1:
            raise DdlsimError(f"node.losses: expected at least one mini-batch, or None for one pass, got {batches}.")
        batches = one_pass if batches is None else min(batches, one_pass)
        job = compute.losses(self.id, models, batches, self._batch_rng("loss batches"), common, split, self.local_state)
        value = Deferred(lambda: compute.value(job))
        duration_s = self._clock.computing_s(self.id, 0.0, len(models) * batches if takes_time else 0)
        return self._after(duration_s, (lambda: value) if later else value)

    def _loss_terms(
        self,
        proximal: float = 0.0,
        control: "Params | None" = None,
        of_run: int | None = None,
        of: int | None = None,
        done: int = 0,
    ) -> TrainingContext:
        rounds = self._run.rounds
        of_run = rounds * self.local_steps if of_run is None else of_run
        return TrainingContext(self.round_num, rounds, of_run, proximal, control, of, done)

    def _batch_rng(self, purpose: str) -> np.random.Generator | None:
        """Return the stream that draws mini-batches; None if there are no samples to draw."""
        return self.rng(purpose) if self._compute.draws_numbers else None

    def _after(self, seconds: float, result: Callable[[], Any]) -> Verb:
        self.open_verbs += 1
        return self._clock.after(seconds), result
