"""Training and evaluation by native plans (native_plan.py), one node on each thread, on the CPU.

A node's whole training, and the features of all samples of an evaluation, are one native call each.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ddlsim.learning.backends.base import OTHER_KIND
from ddlsim.learning.backends.evaluating import losses_of, predictions_of
from ddlsim.learning.backends.one_by_one import (
    KINDS,
    allocate_outputs,
    load_start,
    store_outcome,
    telling_batches_of_one,
)
from ddlsim.learning.backends.workers import Workers, WorkspaceOf
from ddlsim.learning.batches import Batches
from ddlsim.learning.dropout import dropout_keys
from ddlsim.learning.inputs import Inputs, gathered
from ddlsim.learning.job_types import LossSpec, TestSpec, TrainSpec, architecture_of
from ddlsim.learning.node_datasets import NodeDatasets
from ddlsim.tasks import label_of
from ddlsim.tasks.classification import Classification

if TYPE_CHECKING:
    from ddlsim.scenario.model import Training

MOST_AUGMENTED_BYTES = 2**28
"""Augmented images of one training, which a native call takes all at once."""


class NativeBackend:
    """See base.py: Backend.

    Args:
        workers: threads with modules.
        data: the nodes' samples and the clusters' evaluation sets.
        training: scenario section `training`.
        chunk: samples per forward pass in evaluations.
    """

    name = "native"

    def __init__(self, workers: Workers, data: NodeDatasets, training: "Training", chunk: int):
        self._workers = workers
        self._data = data
        self._training = training
        self._chunk = chunk
        self._reasons: dict[tuple, str] = {}  # by architecture, shape and type of samples

    def use_training(self, training: "Training") -> None:
        """See Backend."""
        self._training = training

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        """See Backend."""
        if kind not in KINDS:
            return [OTHER_KIND] * len(jobs)
        if kind == TrainSpec.kind:
            return [self._why_not_train(job) for job in jobs]
        return [self._why_not_evaluate(job) for job in jobs]

    def run(self, kind: str, jobs: Sequence[Any]) -> list[Any]:
        """See Backend."""
        if kind == TrainSpec.kind:
            allocate_outputs(jobs)
            return self._workers.map(self._train, jobs, (self.name, kind))
        evaluate = losses_of if kind == LossSpec.kind else predictions_of
        compute = lambda workspace_of, job: evaluate(job, workspace_of, self._data, self._chunk)  # noqa: E731
        return self._workers.map(compute, jobs, (self.name, kind))

    def close(self) -> None:
        """Nothing to do: the threads are shared, and the one-by-one backend ends them."""

    def _train(self, workspace_of: WorkspaceOf, job: TrainSpec) -> None:
        workspace = workspace_of(job.architecture)
        moments = load_start(workspace, job, self._training)
        inputs, labels, batches = self._samples(job)
        plan = workspace.plan(inputs)
        assert plan is not None, "why_not has found that there is one"
        keys = [] if job.seed is None else dropout_keys(len(workspace.dropouts), job.seed)
        control = None if job.control is None else workspace.over_all_columns(job.control.values())
        kept = workspace.buffers_outside(job.only)
        steps = (inputs, labels, batches, self._training, job.only, moments, job.rates, job.proximal, control, keys)
        with telling_batches_of_one(job):
            plan.train(*steps)
        for layer in workspace.module.modules():
            if isinstance(layer, torch.nn.BatchNorm2d) and layer.num_batches_tracked is not None:
                layer.num_batches_tracked.add_(len(batches))
        for columns, values in kept:
            columns.copy_(values)
        store_outcome(workspace, job, moments)

    def _samples(self, job: TrainSpec) -> tuple[torch.Tensor, torch.Tensor, Batches]:
        """What the batches hold: all samples of the node, or augmented ones, batch after batch."""
        inputs, labels = self._data.train[job.node]
        if self._training.augmentation == "none" or job.seed is None:
            return gathered(inputs, labels, job.batches)
        augment = self._data.augmenter(self._training.augmentation, job.seed)
        places = [torch.from_numpy(batch) for batch in job.batches]
        images = torch.cat([augment(inputs[rows]) for rows in places]).contiguous()  # crops come channel by channel
        return images, labels[torch.cat(places)], Batches(np.arange(len(images)), job.batches.ends)

    def _why_not_train(self, job: TrainSpec) -> str:
        training = self._training
        if why := training.optimizer.why_not_native:
            return why
        if training.accumulate > 1:
            return "gradients are accumulated"
        if training.precision != "float32":
            return f"the precision is {training.precision}"
        if job.private is not None:
            return "private training clips the gradient of every sample"
        if job.objective is not None:
            return "the algorithm has a loss of its own"
        if training.augmentation != "none" and self._bytes(job) > MOST_AUGMENTED_BYTES:
            return "its augmented images do not fit into memory at once"
        if type(self._data.task).loss is not Classification.loss:  # the loss of native training
            return f"the task is {label_of(self._data.task)}"
        inputs, labels = self._data.train[job.node]
        if labels.dim() > 1:
            return "samples have several labels each"
        return self._no_plan(job.architecture, inputs)

    def _bytes(self, job: TrainSpec) -> int:
        """Of all images that a training sees."""
        return 4 * len(job.batches.rows) * math.prod(self._data.train[job.node][0].shape[1:])

    def _why_not_evaluate(self, job: LossSpec | TestSpec) -> str:
        if isinstance(job, LossSpec):
            samples = self._data.local(job.split, job.node)
        elif job.precision != "float32":
            return f"the precision is {job.precision}"
        else:
            samples = self._data.evaluation(job.split, job.cluster)
        inputs = samples[0]
        reasons = (self._no_plan(architecture_of(model), inputs) for model in job.models)
        return next(filter(None, reasons), "")

    def _no_plan(self, architecture: str, inputs: Inputs) -> str:
        """Why an architecture has no plan for samples; looked at once, on a thread that will compute with it."""
        key = (architecture, inputs.shape[1:], inputs.dtype)
        if key not in self._reasons:
            ask = lambda workspace_of, name: workspace_of(name).why_no_plan(inputs)  # noqa: E731
            (self._reasons[key],) = self._workers.map(ask, [architecture], (self.name, "plan"))
        return self._reasons[key]
