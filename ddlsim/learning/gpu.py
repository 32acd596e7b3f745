"""Waves on a GPU: nodes of one architecture stacked into one model, so that one kernel serves them all.

A wave's models are the rows of one matrix [N, P]; a step is the vectorised gradient (stacked.py) of every row's loss on
its own batch, and one update of the matrix. Steps whose shapes repeat are launched as one CUDA graph (step_graphs.py).
Losses and predictions are computed likewise (stacked_evaluating.py). What cannot be stacked trains one by one:
BatchNorm, whose statistics move during training, nodes whose batches differ in size, objectives of an algorithm's own,
augmented images, dropout, whose masks are a node's own, and modules whose operations vmap does not know.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from ddlsim.learning.architecture import Architecture
from ddlsim.learning.bank import Params
from ddlsim.learning.cpu import allocate_outputs, train_on
from ddlsim.learning.evaluating import losses_of, predictions_of
from ddlsim.learning.kinds import LossJob, Model, Tested, TestJob, TrainJob, architecture_of
from ddlsim.learning.moments import OpenMoments, rows_kept
from ddlsim.learning.sample_pool import SamplePool
from ddlsim.learning.shards import Shards
from ddlsim.learning.stacked import StackedModels, stack_models
from ddlsim.learning.stacked_evaluating import stacked_losses, stacked_predictions
from ddlsim.learning.step_graphs import CudaRecorder, StepGraphs
from ddlsim.learning.worker import Template, make_optimizer

LOOKED_AT = 2
"""Models, and images of each, on which it is seen whether an architecture can be stacked."""


class GpuWaves:
    """Runs waves of jobs stacked on one device.

    Args:
        architectures: by name.
        shards: the nodes' samples and the clusters' evaluation sets, on the device.
        training: scenario section `training`.
        chunk: images per forward pass in evaluations.
        device: where everything lives; float32 there means float32 from now on, not TF32, and the same bits every time.
    """

    def __init__(
        self, architectures: Mapping[str, Architecture], shards: Shards, training, chunk: int, device: torch.device
    ):
        self._shards = shards
        self._training = training
        self._chunk = chunk
        self._device = device
        self._pool = SamplePool(shards.train)
        self._stacked = {
            name: StackedModels(Template(architecture, device), shards.loss)
            for name, architecture in architectures.items()
        }
        self._graphs = StepGraphs(CudaRecorder(device) if device.type == "cuda" else None)
        self.one_by_one: Counter[str] = Counter()  # jobs that were not stacked, by kind and reason
        if device.type == "cuda":
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            torch.backends.cudnn.deterministic = True

    def train(self, jobs: Sequence[TrainJob]) -> None:
        """Runs every job's steps and fills its outputs."""
        alike: dict[tuple, list[TrainJob]] = defaultdict(list)
        for job in jobs:
            sizes = tuple(len(batch) for batch in job.batches)
            steps = tuple(0 if kept is None else kept.steps for kept in job.moments)
            pool = self._pool.pool_of[job.node]
            alike[job.architecture, pool, sizes, job.only, len(job.sizes), steps, self._own_way(job)].append(job)
        for (architecture, *_, own_way), group in alike.items():
            models = self._stacked[architecture]
            reason = own_way or self._why_not_stacked(models, group)
            if reason:
                self._train_one_by_one(models.template, group, reason)
            else:
                _halving(group, partial(self._train_stacked, models))

    def losses(self, jobs: Sequence[LossJob]) -> list[list[float]]:
        """The values of the jobs."""
        look = lambda job: self._shards.local(job.split, job.node)[0]  # noqa: E731
        return self._evaluate(jobs, look, stacked_losses, losses_of)

    def test(self, jobs: Sequence[TestJob]) -> list[list[Tested]]:
        """The values of the jobs."""
        look = lambda job: self._shards.evaluation(job.split, job.cluster)[0]  # noqa: E731
        return self._evaluate(jobs, look, stacked_predictions, predictions_of)

    def close(self) -> None:
        """Nothing to end."""

    # -- training --------------------------------------------------------------------------------------------------

    def _own_way(self, job: TrainJob) -> str:
        """Why a job trains alone whatever its model; empty for the others."""
        if job.objective is not None:
            return "the algorithm has a loss of its own"
        if job.seed is not None:
            return "images are augmented" if self._training.augmentation != "none" else "the model drops values"
        steps = {0 if kept is None else kept.steps for kept in job.moments}
        return "its parts have trained for different numbers of steps" if job.only is None and len(steps) > 1 else ""

    def _why_not_stacked(self, models: StackedModels, group: Sequence[TrainJob]) -> str:
        if len(group) < LOOKED_AT:
            return "no other node trained at that time with batches of these sizes"
        if not group[0].batches:
            return "there is nothing to train"
        if (known := models.known_reason(training=True)) is not None:
            return known
        few = group[:LOOKED_AT]
        rows = self._pool.rows([job.node for job in few], [job.batches[:1] for job in few])
        images, labels = self._pool.gather(few[0].node, rows[0][:, :LOOKED_AT])
        return models.why_not([job.model for job in few], images, labels)

    def _train_one_by_one(self, template: Template, group: Sequence[TrainJob], reason: str) -> None:
        self.one_by_one[f"training: {reason}"] += len(group)
        for job, held in [(job, allocate_outputs(job)) for job in group]:
            train_on(template, job, held, self._shards, self._training)

    def _train_stacked(self, models: StackedModels, jobs: Sequence[TrainJob]) -> None:
        whole, only = stack_models([job.model for job in jobs]), jobs[0].only
        trained = models.trained_columns(only)
        weights = whole[:, trained].clone()
        others = torch.cat([whole[:, : trained.start], whole[:, trained.stop :]], dim=1)
        moments = self._open_moments(jobs)
        state = None
        if moments:
            kept = [torch.stack(rows)[:, trained] for rows in zip(*(each.flats for each in moments), strict=True)]
            state = [(moments[0].steps_at(trained.start), kept)]
        update = make_optimizer([weights], self._training, state)
        gradients, key = models.gradients(only), (models.layout.architecture, only)
        for rows in self._pool.rows([job.node for job in jobs], [job.batches for job in jobs]):
            images, labels = self._pool.gather(jobs[0].node, rows)
            found = self._graphs.call(key, gradients, weights, others, images, labels)
            with torch.no_grad():
                update([found])
        whole[:, trained] = weights
        outputs = [allocate_outputs(job) for job in jobs]  # only now: a wave that runs out of memory begins again
        _store(jobs, outputs, whole)
        for row, (job, own, held) in enumerate(zip(jobs, moments, outputs, strict=False)):
            for flat, values in zip(own.flats, kept, strict=True):
                flat[trained] = values[row]
            own.store(held[len(job.sizes) :])

    def _open_moments(self, jobs: Sequence[TrainJob]) -> list[OpenMoments]:
        count = rows_kept(self._training)
        return [OpenMoments(job.moments, job.sizes, count, self._device) for job in jobs if job.moments]

    # -- evaluation ------------------------------------------------------------------------------------------------

    def _evaluate(self, jobs: Sequence, images_of: Callable, stacked: Callable, alone: Callable) -> list:
        """Values of jobs: together those whose models can be stacked, the others one after the other."""
        reasons = self._reasons_against(jobs, images_of)
        values: list = [None] * len(jobs)
        together = []
        for index, job in enumerate(jobs):
            reason = next((reasons[name] for name in map(architecture_of, job.models) if reasons[name]), "")
            if reason:
                self.one_by_one[f"evaluation: {reason}"] += 1
                values[index] = alone(job, lambda name: self._stacked[name].template, self._shards, self._chunk)
            else:
                together.append(index)
        run = lambda some: stacked([jobs[index] for index in some], self._stacked, self._shards, self._chunk)  # noqa: E731
        for index, value in zip(together, _halving(together, run) if together else [], strict=True):
            values[index] = value
        return values

    def _reasons_against(self, jobs: Sequence, images_of: Callable) -> dict[str, str]:
        """Why the architectures that the jobs ask about cannot be stacked; empty for those that can."""
        met: dict[str, list[tuple[Model, torch.Tensor]]] = defaultdict(list)
        found = {}
        for job in jobs:
            for model in job.models:
                name = architecture_of(model)
                found[name] = self._stacked[name].known_reason(training=False)
                if found[name] is None:
                    met[name].append((model, images_of(job)[:LOOKED_AT]))
        for name, asked in met.items():
            first = asked[0]
            last = next(each for each in reversed(asked) if each[1].shape == first[1].shape)
            models, images = zip(first, last, strict=True)
            found[name] = self._stacked[name].why_not(models, torch.stack(images))
        return found


def _store(jobs: Sequence[TrainJob], outputs: Sequence[Sequence[Params | None]], whole: torch.Tensor) -> None:
    """Writes the rows of a matrix [N, P] to the models that the jobs promised, all in one launch."""
    pairs = [
        (params.values(), part)
        for job, row, held in zip(jobs, whole, outputs, strict=True)
        for params, part in zip(held[: len(job.sizes)], row.split(job.sizes), strict=True)
        if params is not None
    ]
    if pairs:
        torch._foreach_copy_(*map(list, zip(*pairs, strict=True)))


def _halving(jobs: Sequence, run: Callable[[Sequence], list | None]) -> list:
    """The values of jobs, run together, or in halves as often as the device's memory does not suffice."""
    try:
        return run(jobs) or []
    except torch.OutOfMemoryError:
        if len(jobs) == 1:
            raise
    torch.cuda.empty_cache()
    middle = len(jobs) // 2
    return [*_halving(jobs[:middle], run), *_halving(jobs[middle:], run)]
