"""Computation on threads, each with its own module per architecture: training and evaluation one node after the other.

Small models leave a many-threaded operator mostly waiting, so a wave gives every core its own nodes. One operator
thread per node also fixes the order of every floating-point sum: the same numbers on one core and on many.

Losses and predictions are computed one model after the other; job_types.py describes the jobs.
"""

import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TypeVar

import numpy as np
import torch

from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.torch_state import same_defaults
from ddlsim.learning.architecture import Architecture
from ddlsim.learning.augmenting import drawing
from ddlsim.learning.backends.base import OTHER_KIND, Backend
from ddlsim.learning.backends.step_graphs import Function, step_graphs_of
from ddlsim.learning.backends.workspace import ClassMeans, ModelWorkspace, local_steps, loss_function
from ddlsim.learning.bank import Row, architecture_of
from ddlsim.learning.datasets import Inputs, NodeDatasets, Samples, batch_of, gathered
from ddlsim.learning.dropout import dropout_keys, seed_dropouts
from ddlsim.learning.job_types import LossSpec, TestSpec, TrainSpec
from ddlsim.learning.losses import EvalResult, MetricSum
from ddlsim.learning.optimizing.state import LiveState
from ddlsim.learning.optimizing.table import SGD, Adam, AdamW
from ddlsim.learning.optimizing.updates import training_loss
from ddlsim.learning.private_steps import PrivateGradients
from ddlsim.learning.training_inputs import NOT_COMPUTED, Batches
from ddlsim.scenario.sections import Training
from ddlsim.tasks.builtin import Classification

Job = TypeVar("Job")
Found = TypeVar("Found")
WorkspaceOf = Callable[[str], ModelWorkspace]
"""Architecture -> a module to compute with."""
HELD_S = 0.7e-3
"""Seconds for which a job holds Python's interpreter, about: with more threads than a job's seconds divided by
this, some threads would wait."""


class Workers:
    """Computes jobs side by side; on a GPU one after the other, since there one job's operators use all of it.

    Args:
        architectures: by name.
        device: device of the modules.
        threads: number of threads.
    """

    def __init__(self, architectures: Mapping[str, Architecture], device: torch.device, threads: int):
        self.architectures = architectures
        self.device = device
        self._local = threading.local()
        self._threads = threads
        self._worth: dict[Hashable, int] = {}  # by kind of job how many threads it keeps busy
        self._ending = False  # after an interrupt: no job starts another pass of a model
        self._pool = None
        if device.type == "cpu":
            self._pool = ThreadPoolExecutor(threads, "wave", initializer=torch.set_num_threads, initargs=(1,))

    def map(self, function: Callable[[WorkspaceOf, Job], Found], jobs: Iterable[Job], kind: Hashable) -> list[Found]:
        """Return a function's result for each job, in order; its first argument returns the thread's own modules.

        If jobs fail, the error of the first one is raised.

        Args:
            kind: of the jobs; the number of threads is the one that was worthwhile for this kind the last time.
        """
        jobs = list(jobs)
        found: dict[int, Found] = {}
        failed: dict[int, Exception] = {}
        left = deque(range(len(jobs)))  # a future for each job would cost more than the training of a small model
        self._ending = False

        def compute() -> float:
            """One job after the other, until none is left; returns the thread's own time."""
            start = time.thread_time()
            with suppress(IndexError), same_defaults("the model"):
                while True:
                    place = left.popleft()
                    try:
                        found[place] = function(self.workspace, jobs[place])
                    except Exception as error:
                        failed[place] = error
                        left.clear()  # those before it have been taken
            return time.thread_time() - start

        if self._pool is None:
            compute()
        elif jobs:
            threads = [self._pool.submit(compute) for _ in range(min(self._worth.get(kind, self._threads), len(jobs)))]
            try:
                own_s = sum(map(_result, threads))
            except KeyboardInterrupt:
                left.clear()
                self._ending = True
                wait(threads)
                raise
            self._worth[kind] = max(1, min(self._threads, round(own_s / len(jobs) / HELD_S)))
        if failed:
            raise failed[min(failed)]
        return [found[place] for place in range(len(jobs))]

    def workspace(self, architecture: str) -> ModelWorkspace:
        """This thread's module of an architecture."""
        if self._ending:
            raise CancelledError
        workspaces = self._local.__dict__.setdefault("workspaces", {})
        if architecture not in workspaces:
            workspaces[architecture] = ModelWorkspace(self.architectures[architecture], self.device)
        return workspaces[architecture]

    def close(self) -> None:
        """End the threads."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)


def _result(thread: "Future[float]") -> float:
    """Wait for a thread's result; Python handles a signal that came just before a wait only at the end of the wait."""
    while True:
        with suppress(TimeoutError):
            return thread.result(1.0)


def samples_of(job: LossSpec | TestSpec, data: NodeDatasets) -> Samples:
    """Return the samples on which a job evaluates its models."""
    return data.local(job.split, job.node) if isinstance(job, LossSpec) else data.evaluation(job.split, job.cluster)


@torch.no_grad()
def losses_of(job: LossSpec, workspace_of: WorkspaceOf, data: NodeDatasets, chunk: int) -> list[float]:
    """Per model the mean over batches of the batch-mean loss, in eval mode; sums in float64."""
    images, labels = samples_of(job, data)
    found, core, seen = [], None, None
    for model, batches in zip(job.models, job.batches, strict=True):
        workspace = workspace_of(architecture_of(model))
        if len(model) > 1 and model[0] is core and batches is seen:
            workspace.load(model[1:], start=core.size)
        else:
            workspace.load(model, job.local)
            core, seen = model[0], batches
            rows = torch.from_numpy(np.concatenate(batches)).to(images.device)
            features = torch.cat([workspace.features(images[part]) for part in rows.split(chunk)])
        losses = data.loss(workspace.outputs(features, images), labels[rows], reduction="none")
        per_batch = losses.double().split([len(batch) for batch in batches])
        found.append(float(torch.stack([batch.mean() for batch in per_batch]).mean()))
    return found


@torch.no_grad()
def predictions_of(job: TestSpec, workspace_of: WorkspaceOf, data: NodeDatasets, chunk: int) -> list[EvalResult]:
    """Return the task's metrics and the mean loss of each model on the whole evaluation set."""
    images, labels = samples_of(job, data)
    tallies = [MetricSum(data.task, 1, labels.device) for _ in job.models]
    for first in range(0, len(labels), chunk):
        x, y = images[first : first + chunk], labels[first : first + chunk]
        core = None
        for tally, model in zip(tallies, job.models, strict=True):
            workspace = workspace_of(architecture_of(model))
            if len(model) > 1 and model[0] is core:
                workspace.load(model[1:], start=core.size)
            else:
                workspace.load(model, job.local)
                core, features = model[0], workspace.features(x, job.precision)
            outputs = workspace.outputs(features, x, job.precision)
            tally.add(outputs[None], y[None], data.loss(outputs, y, reduction="sum")[None])
    return [tested for tally in tallies for tested in tally.results()]


KINDS = (TrainSpec.kind, LossSpec.kind, TestSpec.kind)


class OneByOneBackend(Backend):
    """Backend that computes one node on each thread with PyTorch's operators; it takes every model.

    Args:
        workers: threads with modules.
        data: the nodes' samples and the clusters' evaluation sets.
        training: scenario section `training`.
        chunk: samples per forward pass in evaluations.
    """

    name = "one by one"

    def __init__(self, workers: Workers, data: NodeDatasets, training: Training, chunk: int):
        self._workers = workers
        self._data = data
        self._training = training
        self._chunk = chunk
        self._graphs = step_graphs_of(workers.device, 1)

    def use_training(self, training: Training) -> None:
        self._training, self._graphs = training, step_graphs_of(self._workers.device, 1)

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        return ["" if kind in KINDS else OTHER_KIND] * len(jobs)

    def run(self, kind: str, jobs: Sequence[Any]) -> list[Any]:
        if kind == TrainSpec.kind:
            allocate_outputs(jobs)
            for job in jobs:
                if job.loss is not None:
                    job.loss.values().fill_(NOT_COMPUTED)
            return self._workers.map(self._train, jobs, (self.name, kind))
        evaluate = losses_of if kind == LossSpec.kind else predictions_of
        compute = lambda workspace_of, job: evaluate(job, workspace_of, self._data, self._chunk)  # noqa: E731
        return self._workers.map(compute, jobs, (self.name, kind))

    def close(self) -> None:
        """End the threads, which all backends share."""
        self._workers.close()

    def _train(self, workspace_of: WorkspaceOf, job: TrainSpec) -> None:
        workspace = workspace_of(job.architecture)
        moments = load_start(workspace, job, self._training)
        if job.seed is not None:
            seed_dropouts(workspace.dropouts.values(), job.seed, len(job.skipped))
        task_loss = training_loss(self._data.loss, self._training.label_smoothing)
        means = ClassMeans(job.means, len(job.batches) - job.last_pass)
        targets = {label: row.values() for label, row in job.targets.items()}
        loss_of = loss_function(workspace.module, job.objective, targets, task_loss, means)
        private, device = None, workspace.flat.device
        if job.private is not None:
            private = PrivateGradients(job.private, workspace.module, task_loss, device, not workspace.dropouts)
        control = None if job.control is None else job.control.values()
        repeated: Callable[[Function], Function] | None = None
        if self._graphs.records and workspace.repeats and job.objective is None and job.private is None:
            key = job.architecture, job.only
            repeated = lambda step: self._graphs.wave(key, step, 1, len(job.batches))  # noqa: E731
        steps = self._batches(job), self._training, loss_of, job.only, moments, job.rates, job.proximal, control
        seed = job.seed + len(job.skipped) if workspace.draws_shared and job.seed is not None else None
        with explain_batch_of_one(job), nullcontext() if seed is None else drawing(seed, device):
            losses = local_steps(workspace, *steps, private, repeated)
        means.store(job.means)
        store_outcome(workspace, job, moments)
        if losses and job.loss is not None:
            job.loss.values().copy_(torch.stack(losses).mean())

    def _batches(self, job: TrainSpec) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """The samples and labels of every step, as many views of each as the objective wants."""
        views, kind = job.objective.views if job.objective else 1, self._training.augmentation
        augment = None
        if kind != "none" and job.seed is not None:
            augment = self._data.augmenter(kind, job.seed, job.node, job.skipped, views)
        for batch in job.batches:
            inputs, labels = batch_of(*self._data.train[job.node], batch)
            yield augment(inputs, views) if augment else repeated(inputs, views), repeated(labels, views)


@contextmanager
def explain_batch_of_one(job: TrainSpec) -> Iterator[None]:
    """Turn BatchNorm's error for a mini-batch of one sample into a ScenarioError that names the cure."""
    try:
        yield
    except ValueError as error:
        if not re.search("more than (1|one) value per channel", str(error)) or min(map(len, job.batches)) > 1:
            raise
        text = f"node {job.node} has a mini-batch of one sample, on which the model's BatchNorm cannot be trained"
        raise ScenarioError(f"training.batch_size: {text}. Set training.drop_last: true, or change it.") from error


def allocate_outputs(jobs: Sequence[TrainSpec]) -> None:
    """Allocate places for all rows to be filled; banks may grow here, so it is done before views of them are taken."""
    for job in jobs:
        outputs: list[Row | None] = [*job.trained, *job.new_moments, *job.means.values(), job.new_local, job.loss]
        for row in outputs:
            if row is not None:
                row.allocate()


def load_start(workspace: ModelWorkspace, job: TrainSpec, training: Training) -> LiveState | None:
    """Load the start of a training; return the optimizer's state, if any."""
    workspace.load(job.model, job.local)
    if not job.moments:
        return None
    return LiveState(training.optimizer, job.moments, job.sizes, workspace.flat.device, job.new_moments)


def store_outcome(workspace: ModelWorkspace, job: TrainSpec, moments: LiveState | None) -> None:
    """Write the results of a training to its rows."""
    workspace.store(job.trained, job.sizes, job.new_local)
    if moments is not None:
        moments.store(job.new_moments)


def repeated(values: torch.Tensor, times: int) -> torch.Tensor:
    """Repeat a batch several times."""
    return values.repeat(times, *[1] * (values.dim() - 1))


MOST_AUGMENTED_BYTES = 2**28
"""Augmented images of one training, which a native call takes all at once."""


class NativeBackend(OneByOneBackend):
    """Backend with native plans, on the CPU.

    A training, and the features of an evaluation's samples, are one native call each (native_plan.py). If the plan
    computes the core alone (native_core.py), they are one call per batch and direction, and PyTorch computes the rest.
    """

    name = "native"

    def __init__(self, workers: Workers, data: NodeDatasets, training: Training, chunk: int):
        super().__init__(workers, data, training, chunk)
        self._reasons: dict[tuple, str] = {}  # by architecture, extent of the plan, shape and type of samples

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        return [self._why_not(job) if kind in KINDS else OTHER_KIND for job in jobs]

    def _train(self, workspace_of: WorkspaceOf, job: TrainSpec) -> None:
        workspace = workspace_of(job.architecture)
        samples = self._data.train[job.node][0]
        plan = workspace.plan(samples) if self._fits_plan(job) else None
        if plan is None:
            with workspace.native_core(samples):
                super()._train(workspace_of, job)
            return
        moments = load_start(workspace, job, self._training)
        inputs, labels, batches = self._samples(job)
        keys = [] if job.seed is None else dropout_keys(len(workspace.dropouts), job.seed, len(job.skipped))
        control = None if job.control is None else workspace.over_all_columns(job.control.values())
        kept = workspace.buffers_outside(job.only)
        steps = (inputs, labels, batches, self._training, job.only, moments, job.rates, job.proximal, control, keys)
        with explain_batch_of_one(job):
            loss = plan.train(*steps)
        for layer in workspace.module.modules():
            if isinstance(layer, torch.nn.BatchNorm2d) and layer.num_batches_tracked is not None:
                layer.num_batches_tracked.add_(len(batches))
        for columns, values in kept:
            columns.copy_(values)
        store_outcome(workspace, job, moments)
        if job.loss is not None:
            job.loss.values().fill_(loss)

    def _samples(self, job: TrainSpec) -> tuple[torch.Tensor, torch.Tensor, Batches]:
        """Return the samples that the batches index: all samples of the node, or augmented ones, batch after batch."""
        inputs, labels = self._data.train[job.node]
        if self._training.augmentation == "none" or job.seed is None:
            return gathered(inputs, labels, job.batches)
        augment = self._data.augmenter(self._training.augmentation, job.seed, job.node, job.skipped)
        places = [torch.from_numpy(batch) for batch in job.batches]
        images = torch.cat([augment(inputs[rows]) for rows in places]).contiguous()  # crops come channel by channel
        return images, labels[torch.cat(places)], Batches(np.arange(len(images)), job.batches.ends)

    def _fits_plan(self, job: TrainSpec) -> bool:
        """Whether plans can compute the whole training, its loss and updates included."""
        training, (inputs, labels), rule = self._training, self._data.train[job.node], self._training.optimizer
        num_bytes = 4 * len(job.batches.rows) * math.prod(inputs.shape[1:])  # of all images that the training sees
        return (
            (type(rule) in (Adam, AdamW) or (type(rule) is SGD and not rule.nesterov))
            and rule.moments is not None
            and training.accumulate == 1
            and job.objective is None
            and (training.augmentation == "none" or num_bytes <= MOST_AUGMENTED_BYTES)
            and type(self._data.task).loss is Classification.loss
            and labels.dim() == 1
        )

    def _why_not(self, job: TrainSpec | LossSpec | TestSpec) -> str:
        if isinstance(job, TrainSpec):
            if job.private is not None:
                return "private training clips the gradient of every sample"
            names, samples, whole = [job.architecture], self._data.train[job.node], self._fits_plan(job)
            precision: str = self._training.precision
        else:
            names, samples, whole = [*map(architecture_of, job.models)], samples_of(job, self._data), True
            precision = job.precision if isinstance(job, TestSpec) else "float32"
        if precision != "float32":
            return f"the precision is {precision}"
        return next(filter(None, (self._no_plan(name, samples[0], whole) for name in names)), "")

    def _no_plan(self, architecture: str, inputs: Inputs, whole: bool = True) -> str:
        """Return the reason why an architecture has no plan for samples; examined once, on a worker thread."""
        key = (architecture, whole, inputs.shape[1:], inputs.dtype)
        if key not in self._reasons:
            ask = lambda workspace_of, name: workspace_of(name).why_no_plan(inputs, whole)  # noqa: E731
            (self._reasons[key],) = self._workers.map(ask, [architecture], (self.name, "plan"))
        return self._reasons[key]
