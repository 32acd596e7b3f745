"""Training and evaluation on a GPU: nodes of one architecture stacked into one model; one kernel serves them all.

A wave's models are the rows of one matrix [N, P] (stacked_training.py); a step is the gradient (stacked_models.py) of
every row's loss on its own batch, followed by one update of the matrix. Steps whose shapes repeat are launched as one
CUDA graph (step_graphs.py). BatchNorm's statistics and the counters of dropout are values that a step takes and returns
(stacked_steps.py), and every node's images are augmented with the node's own random numbers, in one pass. Losses and
predictions are computed likewise (stacked_evaluation.py).

Jobs that cannot be stacked are passed on: losses that may hold values of one node (closures), optimizers that do not
update each value by itself or whose kept state is not one moment or two, models that predict with buffers of the node's
own, and modules that neither method of stacked_steps.py can compute. So are trainings of models of which a stack would
hold only one: with PyTorch's own loop they need the model and its gradients besides their rows. `make_backends` lists
the backends of each device.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ddlsim.learning.architecture import Architecture
from ddlsim.learning.backends.base import OTHER_KIND, Backend, Dispatcher
from ddlsim.learning.backends.device import CudaGauge, Memory, device_time
from ddlsim.learning.backends.row_arithmetic import RowArithmetic
from ddlsim.learning.backends.sample_pool import SamplePool
from ddlsim.learning.backends.stacked_evaluation import stacked_losses, stacked_predictions
from ddlsim.learning.backends.stacked_models import EVALUATION, StackedModels, about_training
from ddlsim.learning.backends.stacked_training import StackedTraining, rates_of
from ddlsim.learning.backends.step_graphs import step_graphs_of
from ddlsim.learning.backends.threads import KINDS, NativeBackend, OneByOneBackend, Workers, samples_of
from ddlsim.learning.bank import Row, architecture_of
from ddlsim.learning.datasets import NodeDatasets
from ddlsim.learning.job_types import LossSpec, TestSpec, TrainSpec
from ddlsim.learning.optimizing.state import counted_steps
from ddlsim.learning.optimizing.updates import training_loss
from ddlsim.scenario.sections import Training

STACK_BYTES = 2**29
"""Most bytes of the models of one matrix: so many keep a device busy, and a step's copies of them need several times as
much."""

NUM_TRIED = 2
"""Models, and steps of each (or images, for evaluations), with which the stacking of an architecture is tried."""


class StackedBackend(Backend):
    """Backend that computes all nodes of a wave in one stacked model.

    Args:
        workers: modules on the device; float32 there means float32 from now on, not TF32, and the same bits every time.
        data: the nodes' samples and the clusters' evaluation sets, on the device.
        training: scenario section `training`.
        alone: computes jobs that prove not to be stackable.
    """

    name = "stacked"

    def __init__(self, workers: Workers, data: NodeDatasets, training: Training, alone: Backend):
        self._alone = alone
        self._data = data
        self._training = training
        self._device = device = workers.device
        self._memory = Memory(CudaGauge(device) if device.type == "cuda" else None)
        self._pool = SamplePool(data.train)
        self._pools = {"train": self._pool}
        loss = training_loss(data.loss, training.label_smoothing)
        self._stacked = {
            name: StackedModels(workers.workspace(name), loss, training, data.num_classes)
            for name in workers.architectures
        }
        self.reasons = {name: models.reasons for name, models in self._stacked.items()}
        """Per architecture the reasons found about training and evaluation; filled as it goes."""
        self._waves = self._new_waves()
        if device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.deterministic = True

    def use_training(self, training: Training) -> None:
        self._training = training
        for models in self._stacked.values():
            models.use_training(training_loss(self._data.loss, training.label_smoothing), training)
        self._waves = self._new_waves()

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        if kind not in KINDS:
            return [OTHER_KIND] * len(jobs)
        if kind == TrainSpec.kind:
            reasons: dict[int, str] = {}
            for places in self._alike(jobs):
                reason = self._why_not_train([jobs[place] for place in places])
                reasons.update(dict.fromkeys(places, reason))
            return [reasons[place] for place in range(len(jobs))]
        known = self._reasons_against(jobs)
        if not any(known.values()):
            return [""] * len(jobs)
        return [next(filter(None, (known[architecture_of(model)] for model in job.models)), "") for job in jobs]

    def run(self, kind: str, jobs: Sequence[Any]) -> list[Any]:
        if kind == TrainSpec.kind:
            for places in self._alike(jobs):
                group = [jobs[place] for place in places]
                architecture = group[0].architecture
                models = self._stacked[architecture]
                most = _most_in_matrix(models)
                for first in range(0, len(group), most):
                    some, train = group[first : first + most], partial(self._train, models)
                    self._memory.in_pieces((kind, architecture, some[0].only), some, train, measured=True)
            return [None] * len(jobs)
        return self._memory.in_pieces(kind, jobs, partial(self._evaluate, kind))

    def _train(self, models: StackedModels, jobs: Sequence[TrainSpec]) -> None:
        try:
            self._waves.train(models, jobs)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # other shapes than the first ones
            models.cannot(about_training(jobs[0]), error)
            self._alone.run(TrainSpec.kind, jobs)

    def _evaluate(self, kind: str, jobs: Sequence[Any]) -> list[Any]:
        given = jobs, self._stacked, self._data, self._memory
        try:
            return stacked_losses(*given, self._pools) if kind == LossSpec.kind else stacked_predictions(*given)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            for name in {architecture_of(model) for job in jobs for model in job.models}:
                self._stacked[name].cannot(EVALUATION, error)
            return list(self._alone.run(kind, jobs))

    def _new_waves(self) -> StackedTraining:
        graphs = step_graphs_of(self._device, len(self._data.train))
        return StackedTraining(self._training, self._data, self._pool, graphs)

    # -- training --------------------------------------------------------------------------------------------------

    def _alike(self, jobs: Sequence[TrainSpec]) -> list[list[int]]:
        """Places of jobs that can be steps of one matrix."""
        found: dict[Hashable, list[int]] = defaultdict(list)
        for place, job in enumerate(jobs):
            pool = self._pool.pool_of[job.node]
            ends = job.batches.ends if self._training.accumulate > 1 else ()
            rates = rates_of(self._training, job)
            key: tuple = (job.architecture, pool, ends, job.only, len(job.sizes), len(job.moments), rates, job.proximal)
            key += (job.control is None, self._reason_alone(job))
            if job.objective is not None:
                targets = tuple(sorted((label, id(row.bank)) for label, row in job.targets.items()))
                key += (job.objective.identity, targets)
            found[key].append(place)

        def order(place: int) -> tuple:
            batches, steps = jobs[place].batches, counted_steps(self._training.optimizer, jobs[place].moments)
            return len(batches), batches.ends, steps

        return [sorted(places, key=order, reverse=True) for places in found.values()]

    def _reason_alone(self, job: TrainSpec) -> str:
        """Return the reason why a job trains alone with any model; empty if there is no such reason."""
        if job.private is not None:
            return "private training clips the gradient of every sample"
        models = self._stacked[job.architecture]
        if reason := models.alone or ("" if _most_in_matrix(models) > 1 else "its models are too large for a stack"):
            return reason
        optimizer = self._training.optimizer
        if not optimizer.by_value or (job.moments and optimizer.moments is None):
            return f"the optimizer is {optimizer.name}"
        alone = job.objective is not None and job.objective.identity is None
        return "the loss may hold values of one node: it is no method or function of a module" if alone else ""

    def _why_not_train(self, group: Sequence[TrainSpec]) -> str:
        if reason_alone := self._reason_alone(group[0]):
            return reason_alone
        models = self._stacked[group[0].architecture]
        if not group[0].batches or not models.trained_entries(group[0].only):
            return "there is nothing to train"
        if (known := models.reasons.get(about_training(group[0]))) is not None:
            return known
        few = [job for job in group if job.batches.ends[:NUM_TRIED] == group[0].batches.ends[:NUM_TRIED]][:NUM_TRIED]
        return models.why_not_train(few, self._waves.first_samples(few, NUM_TRIED))

    # -- evaluation ------------------------------------------------------------------------------------------------

    def _reasons_against(self, jobs: Sequence[LossSpec | TestSpec]) -> dict[str, str]:
        """Return per architecture of the jobs the reason why it cannot be stacked; empty if it can."""
        met: dict[str, list[tuple[tuple[Row, ...], torch.Tensor]]] = defaultdict(list)
        names = {architecture_of(model) for job in jobs for model in job.models}
        known = {name: self._stacked[name].reasons.get(EVALUATION) for name in names}
        found = {name: reason for name, reason in known.items() if reason is not None}
        if len(found) == len(names):
            return found
        for job in jobs:
            images, _ = samples_of(job, self._data)
            for model in job.models:
                if (name := architecture_of(model)) not in found:
                    met[name].append((model, images[:NUM_TRIED]))
        for name, asked in met.items():
            first = asked[0]
            last = next(each for each in reversed(asked) if each[1].shape == first[1].shape)
            seen = torch.stack([first[1], last[1]])
            found[name] = self._stacked[name].why_not_evaluate([first[0], last[0]], seen)
        return found


def _most_in_matrix(models: StackedModels) -> int:
    """Number of models of this architecture that one matrix holds."""
    return STACK_BYTES // (4 * models.layout.size)


def make_backends(
    architectures: Mapping[str, Architecture],
    data: NodeDatasets,
    training: Training,
    chunk: int,
    device: torch.device,
    threads: int,
    stacked: bool | None = None,
    asynchronous: bool | None = None,
) -> Dispatcher:
    """The backends of a device, in order.

    Args:
        architectures: by name.
        data: the nodes' samples and the clusters' evaluation sets, on the device.
        training: scenario section `training`.
        chunk: images per forward pass in evaluations; stacked models decide by the memory that they need.
        device: where everything lives.
        threads: CPU threads of a wave.
        stacked: whether waves are stacked; None: on a GPU.
        asynchronous: whether waves are launched when they are full, see jobs.py; None for only on a GPU.
    """
    fast: Backend
    reasons: dict[str, dict[str, str]]
    workers = Workers(architectures, device, threads)
    alone = OneByOneBackend(workers, data, training, chunk)
    if device.type == "cuda" if stacked is None else stacked:
        stacking = StackedBackend(workers, data, training, alone)
        fast, reasons = stacking, stacking.reasons
    else:
        fast, reasons = NativeBackend(workers, data, training, chunk), {}
    backends = [RowArithmetic(), fast, alone]
    asynchronous = device.type == "cuda" if asynchronous is None else asynchronous
    return Dispatcher(backends, reasons, asynchronous, device_time(device))
