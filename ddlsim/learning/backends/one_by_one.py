"""Training and evaluation with PyTorch's operators, one node after the other on each thread: takes every model."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ddlsim.errors import ScenarioError
from ddlsim.learning.backends.base import OTHER_KIND
from ddlsim.learning.backends.evaluating import losses_of, predictions_of
from ddlsim.learning.backends.workers import Workers, WorkspaceOf
from ddlsim.learning.backends.workspace import ClassMeans, ModelWorkspace, local_steps, loss_function
from ddlsim.learning.bank import Row
from ddlsim.learning.dropout import seed_dropouts
from ddlsim.learning.job_types import LossSpec, TestSpec, TrainSpec
from ddlsim.learning.node_datasets import NodeDatasets
from ddlsim.learning.optimizing.smoothing import training_loss
from ddlsim.learning.optimizing.state import OpenState
from ddlsim.learning.private_steps import PrivateGradients

if TYPE_CHECKING:
    from ddlsim.scenario.model import Training

KINDS = (TrainSpec.kind, LossSpec.kind, TestSpec.kind)


class OneByOneBackend:
    """See base.py: Backend.

    Args:
        workers: threads with modules.
        data: the nodes' samples and the clusters' evaluation sets.
        training: scenario section `training`.
        chunk: samples per forward pass in evaluations.
    """

    name = "one by one"

    def __init__(self, workers: Workers, data: NodeDatasets, training: "Training", chunk: int):
        self._workers = workers
        self._data = data
        self._training = training
        self._chunk = chunk

    def use_training(self, training: "Training") -> None:
        """See Backend."""
        self._training = training

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        """See Backend."""
        return ["" if kind in KINDS else OTHER_KIND] * len(jobs)

    def run(self, kind: str, jobs: Sequence[Any]) -> list[Any]:
        """See Backend."""
        if kind == TrainSpec.kind:
            allocate_outputs(jobs)
            return self._workers.map(self._train, jobs, (self.name, kind))
        evaluate = losses_of if kind == LossSpec.kind else predictions_of
        compute = lambda workspace_of, job: evaluate(job, workspace_of, self._data, self._chunk)  # noqa: E731
        return self._workers.map(compute, jobs, (self.name, kind))

    def close(self) -> None:
        """See Backend."""
        self._workers.close()

    def _train(self, workspace_of: WorkspaceOf, job: TrainSpec) -> None:
        workspace = workspace_of(job.architecture)
        moments = load_start(workspace, job, self._training)
        if job.seed is not None:
            seed_dropouts(workspace.dropouts.values(), job.seed)
        task_loss = training_loss(self._data.loss, self._training.label_smoothing)
        means = ClassMeans(job.means, len(job.batches) - job.last_pass)
        loss_of = loss_function(workspace, job.objective, job.targets, task_loss, means)
        private, device = None, workspace.flat.device
        if job.private is not None:
            private = PrivateGradients(job.private, workspace.module, task_loss, device, not workspace.dropouts)
        control = None if job.control is None else job.control.values()
        steps = (
            self._batches(job),
            self._training,
            loss_of,
            job.only,
            moments,
            job.rates,
            job.proximal,
            control,
            private,
        )
        with telling_batches_of_one(job), self._workers.drawing(job.seed if workspace.draws_shared else None):
            local_steps(workspace, *steps)
        means.store(job.means)
        store_outcome(workspace, job, moments)

    def _batches(self, job: TrainSpec) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The samples and labels of every step, as many views of each as the objective wants."""
        views, kind = job.objective.views if job.objective else 1, self._training.augmentation
        augment = None if kind == "none" or job.seed is None else self._data.augmenter(kind, job.seed)
        inputs, labels = self._data.train[job.node]
        for batch in job.batches:
            places = torch.from_numpy(batch).to(inputs.device)
            seen = augment(inputs[places], views) if augment else _repeated(inputs[places], views)
            yield seen, _repeated(labels[places], views)


@contextmanager
def telling_batches_of_one(job: TrainSpec) -> Iterator[None]:
    """Where BatchNorm refuses a mini-batch of one sample, a ScenarioError that says what to do about it."""
    try:
        yield
    except ValueError as error:
        if not re.search("more than (1|one) value per channel", str(error)) or min(map(len, job.batches)) > 1:
            raise
        raise ScenarioError(
            f"training.batch_size: node {job.node} has a mini-batch of one sample, on which the model's BatchNorm "
            "cannot be trained. Set training.drop_last: true, which leaves a smaller last batch out, choose another "
            "training.batch_size, or give each node at least two samples."
        ) from error


def allocate_outputs(jobs: Sequence[TrainSpec]) -> None:
    """Gives all rows to be filled their places; banks may grow here, so it is done before views of them are taken."""
    for job in jobs:
        outputs: list[Row | None] = [*job.trained, *job.new_moments, *job.means.values(), job.new_local]
        for row in outputs:
            if row is not None:
                row.allocate()


def load_start(workspace: ModelWorkspace, job: TrainSpec, training: "Training") -> OpenState | None:
    """Loads what a training begins with; returns what the optimizer remembers, if anything."""
    workspace.load(job.model)
    workspace.load_local(job.local)
    if not job.moments:
        return None
    return OpenState(training.optimizer, job.moments, job.sizes, workspace.flat.device)


def store_outcome(workspace: ModelWorkspace, job: TrainSpec, moments: OpenState | None) -> None:
    """Writes what a training has made to its rows."""
    workspace.store(job.trained, job.sizes)
    workspace.store_local(job.new_local)
    if moments is not None:
        moments.store(job.new_moments)


def _repeated(values: torch.Tensor, times: int) -> torch.Tensor:
    """A batch [b, ...] several times behind itself, [times * b, ...]."""
    return values.repeat(times, *[1] * (values.dim() - 1))
