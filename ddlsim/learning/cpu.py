"""Waves on a CPU: nodes side by side, one thread and one model instance each.

Small models leave a many-threaded operator mostly waiting, so a wave gives every core its own nodes. One operator
thread per node also fixes the order of every floating-point sum: the same numbers on one core and on many. Where a
model's layers have a native plan (native_plan.py), a node's whole training, and the features of all images of an
evaluation, are one native call each; what else is trained or evaluated goes through PyTorch's operators.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from ddlsim.learning.architecture import Architecture
from ddlsim.learning.bank import Params
from ddlsim.learning.evaluating import losses_of, predictions_of
from ddlsim.learning.kinds import LossJob, Tested, TestJob, TrainJob
from ddlsim.learning.moments import OpenMoments, rows_kept
from ddlsim.learning.noise import seed_dropouts
from ddlsim.learning.shards import Shards
from ddlsim.learning.worker import ClassMeans, Template, loss_function, sgd_steps


class CpuWaves:
    """Runs waves of jobs over a pool of threads.

    Args:
        architectures: by name.
        shards: the nodes' samples and the clusters' evaluation sets.
        training: scenario section `training`.
        chunk: images per forward pass in evaluations.
        threads: number of threads.
    """

    def __init__(self, architectures: Mapping[str, Architecture], shards: Shards, training, chunk: int, threads: int):
        self._architectures = architectures
        self._shards = shards
        self._training = training
        self._chunk = chunk
        self._local = threading.local()
        self._build_lock = threading.Lock()
        self.through_pytorch: Counter[str] = Counter()  # trainings without a native plan, by the reason
        self._pool = ThreadPoolExecutor(threads, "wave", initializer=torch.set_num_threads, initargs=(1,))

    def train(self, jobs: Sequence[TrainJob]) -> None:
        """Runs every job's steps and fills its outputs."""
        outputs = [allocate_outputs(job) for job in jobs]
        self.through_pytorch.update(filter(None, self._pool.map(self._train_one, jobs, outputs)))

    def losses(self, jobs: Sequence[LossJob]) -> list[list[float]]:
        """The values of the jobs."""
        return list(self._pool.map(lambda job: losses_of(job, self._template, self._shards, self._chunk), jobs))

    def test(self, jobs: Sequence[TestJob]) -> list[list[Tested]]:
        """The values of the jobs."""
        return list(self._pool.map(lambda job: predictions_of(job, self._template, self._shards, self._chunk), jobs))

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)

    def _template(self, architecture: str) -> Template:
        """This thread's module of an architecture."""
        templates = self._local.__dict__.setdefault("templates", {})
        if architecture not in templates:
            with self._build_lock:  # module constructors draw from torch's global generator
                templates[architecture] = Template(self._architectures[architecture], torch.device("cpu"))
        return templates[architecture]

    def _train_one(self, job: TrainJob, outputs: list[Params | None]) -> str:
        return train_on(self._template(job.architecture), job, outputs, self._shards, self._training)


def allocate_outputs(job: TrainJob) -> list[Params | None]:
    """Gives the job's outputs their rows; banks may grow here, so it is done before workers take views of them."""
    held = job.outputs()
    for params in held:
        if params is not None:
            params.allocate()
    return held


def train_on(template: Template, job: TrainJob, outputs: list[Params | None], shards: Shards, training) -> str:
    """Runs one training job on a template; returns why PyTorch did it, or nothing after a native plan."""
    template.load(job.model)
    template.load_local(job.local)
    moments, parts = None, len(job.sizes)
    if job.moments:
        moments = OpenMoments(job.moments, job.sizes, rows_kept(training), template.flat.device)
    images, labels = shards.train[job.node]
    reason = _why_no_plan(template, job, shards, training)
    if not reason:
        template.plan(images).train(images, labels, job.batches, training, job.only, moments)
    else:
        means = _train_with_torch(template, job, shards, training, moments)
        first = parts + (parts * rows_kept(training) if moments is not None else 0)
        means.store(outputs[first : first + len(job.mean_labels)])
    template.store(outputs[:parts], job.sizes)
    if template.layout.local.size:
        template.store_local(outputs[-1])
    if moments is not None:
        moments.store(outputs[parts:])
    return reason


def _why_no_plan(template: Template, job: TrainJob, shards: Shards, training) -> str:
    if job.objective is not None:
        return "the algorithm has a loss of its own"
    if job.seed is not None:
        return "images are augmented" if training.augmentation != "none" else "the model drops values"
    if shards.task != "classification":
        return f"the task is {shards.task}"
    images, labels = shards.train[job.node]
    if labels.dim() > 1:
        return "samples have several labels each"
    return template.why_no_plan(images)


def _train_with_torch(template: Template, job: TrainJob, shards: Shards, training, moments: OpenMoments | None):
    """The steps with PyTorch's operators; returns the means of features that were gathered."""
    if job.seed is not None:
        seed_dropouts(template.dropouts, job.seed)
    means = ClassMeans(job.mean_labels, len(job.batches) - job.last_pass)
    loss_of = loss_function(template, job.objective, shards.loss, means)
    sgd_steps(template, _batches(job, shards, training), training, loss_of, job.only, moments)
    return means


def _batches(job: TrainJob, shards: Shards, training) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The images and labels of every step, as many views of each as the objective wants."""
    views = job.objective.views if job.objective else 1
    augment = None if training.augmentation == "none" else shards.augmenter(training.augmentation, job.seed)
    images, labels = shards.train[job.node]
    for batch in job.batches:
        rows = torch.from_numpy(batch).to(images.device)
        yield (
            augment(images[rows], views) if augment else _repeated(images[rows], views),
            _repeated(labels[rows], views),
        )


def _repeated(values: torch.Tensor, times: int) -> torch.Tensor:
    """A batch [b, ...] several times behind itself, [times * b, ...]."""
    return values.repeat(times, *[1] * (values.dim() - 1))
