"""The training of many nodes as the rows of one matrix.

Nodes may have different numbers of steps, and batches of different sizes. The nodes with the most steps are the first
rows, so the rows that still train are always a range from the first one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, groupby, starmap

import numpy as np
import torch

from ddlsim.kernels.matrices import uploaded
from ddlsim.learning.augmenting import augment_together
from ddlsim.learning.backends.sample_pool import Gathered, SamplePool
from ddlsim.learning.backends.stacked_models import StackedModels, stack_models
from ddlsim.learning.backends.stacked_steps import Gradients
from ddlsim.learning.backends.step_graphs import StepGraphs
from ddlsim.learning.backends.threads import allocate_outputs
from ddlsim.learning.bank import stacked_rows, store_rows
from ddlsim.learning.datasets import NodeDatasets
from ddlsim.learning.job_types import TrainSpec
from ddlsim.learning.optimizing.state import StackedState
from ddlsim.learning.optimizing.updates import Updates
from ddlsim.scenario.sections import Training

PREPARED_BYTES = 2**27
"""Most bytes of images that are gathered and augmented at once; a step's images always are."""

MOST_CHAINED = 16
"""Most steps of one graph, whose recording takes several times as long as its steps."""


@dataclass(frozen=True)
class Span:
    """Consecutive steps with the same rows and batch sizes.

    Args:
        steps: their numbers.
        runs: ranges of rows with one batch size, from the first row on; and that size.
    """

    steps: range
    runs: tuple[tuple[slice, int], ...]

    @property
    def rows(self) -> int:
        """Number of rows that train."""
        return self.runs[-1][0].stop


@lru_cache(maxsize=64)
def spans_of(ends: tuple[tuple[int, ...], ...]) -> tuple[Span, ...]:
    """Return the spans of a training.

    Args:
        ends: of the batches of every row (Batches.ends), rows with more steps first.
    """
    sizes = {own: np.diff(own, prepend=0).tolist() for own in {*ends}}
    at_steps = [tuple(sizes[own][step] for own in ends if step < len(own)) for step in range(len(ends[0]))]
    found: list[Span] = []
    first = 0
    for of_rows, same in groupby(at_steps):
        steps, first = range(first, first + len(list(same))), first
        runs, start = [], 0
        for size, rows in groupby(of_rows):
            stop = start + len(list(rows))
            runs.append((slice(start, stop), size))
            start = stop
        found.append(Span(steps, tuple(runs)))
        first = steps.stop
    return tuple(found)


class StackedTraining:
    """Trains the nodes of a wave.

    Args:
        training: scenario section `training`.
        data: the nodes' samples, on the device.
        pool: the same samples.
        graphs: call the gradients.
    """

    def __init__(self, training: Training, data: NodeDatasets, pool: SamplePool, graphs: StepGraphs):
        self._training = training
        self._data = data
        self._pool = pool
        self._graphs = graphs

    def train(self, models: StackedModels, jobs: Sequence[TrainSpec]) -> None:
        """Run trainings of one architecture, those with more steps first."""
        wave = _Wave(self._training, models, jobs, self._graphs)
        spans = spans_of(tuple(job.batches.ends for job in jobs))
        for span, samples in zip(spans, self._samples(jobs, spans), strict=True):
            wave.run(span, samples)
        wave.store()

    def _samples(self, jobs: Sequence[TrainSpec], spans: Sequence[Span]) -> Iterator[list[Iterator[Gathered]]]:
        """Yield per span, for each run, the images [m, n, b, C, H, W] and labels [m, n, b] of its steps in blocks."""
        kind, views = self._training.augmentation, _views(jobs[0])
        augmenters = [
            self._data.augmenter(kind, job.seed, job.node, job.skipped, views)
            for job in (jobs if kind != "none" else ())
            if job.seed is not None
        ]
        nodes = [job.node for job in jobs]
        asked = [
            (nodes[rows], _indices(jobs[rows], span.steps, size, views)) for span in spans for rows, size in span.runs
        ]
        indices = iter(self._pool.rows(asked))
        for span in spans:
            yield [self._prepared(jobs[0].node, next(indices), augmenters[rows]) for rows, _ in span.runs]

    def first_samples(self, jobs: Sequence[TrainSpec], steps: int) -> list[Gathered]:
        """Return images [n, b, C, H, W] and labels [n, b] of the first steps of trainings with equal batches there."""
        steps = min(steps, len(jobs[0].batches))
        views, sizes = _views(jobs[0]), jobs[0].batches.sizes[:steps]
        nodes = [job.node for job in jobs]
        asked = [(nodes, _indices(jobs, range(step, step + 1), size, views)) for step, size in enumerate(sizes)]
        return [self._pool.gather(nodes[0], rows[0]) for rows in self._pool.rows(asked)]

    def _prepared(self, node: int, indices: torch.Tensor, augmenters: Sequence) -> Iterator[Gathered]:
        """Yield the samples of rows [steps, n, b] of the pool, of several steps at once."""
        image_bytes = 4 * self._data.train[node][0].shape[1:].numel()
        at_once = max(1, PREPARED_BYTES // max(1, indices[0].numel() * image_bytes))
        for some in indices.split(at_once):
            images, labels = self._pool.gather(node, some)
            if augmenters:
                images = augment_together(augmenters, images)
            yield images, labels


def _views(job: TrainSpec) -> int:
    """Copies of every image in a batch."""
    return job.objective.views if job.objective else 1


def _indices(jobs: Sequence[TrainSpec], steps: range, size: int, views: int) -> np.ndarray:
    """Sample indices of the batches of some steps, all of one size: int64 [steps, n, views * size]."""
    found = []
    for job in jobs:
        stop = job.batches.ends[steps.stop - 1]
        found.append(job.batches.rows[stop - len(steps) * size : stop])
    return np.tile(np.stack(found).reshape(len(jobs), len(steps), size).transpose(1, 0, 2), views)


class _Wave:
    """Models under training: their trained values [N, W], the other parameters [N, V], and their buffers."""

    def __init__(self, training: Training, models: StackedModels, jobs: Sequence[TrainSpec], graphs: StepGraphs):
        first, device = jobs[0], models.workspace.flat.device
        self._models, self._jobs, self._graphs = models, jobs, graphs
        self._key = models.key(first)
        self._whole = stack_models([job.model for job in jobs])
        self._trained, weights, self._others = models.split(first.only, self._whole)
        self._weights = weights = graphs.in_place(self._key, weights)
        self._local = models.buffers.local([job.local for job in jobs])
        self._buffers: tuple[torch.Tensor, ...] = models.buffers.read(self._whole, self._local, jobs)
        self._further = models.further_inputs(jobs, weights)
        self._state, apart = None, training.weight_decay_on == "weights"  # else one tensor, which is quicker
        if first.moments:
            entries, before = models.trained_entries(first.only), [job.moments for job in jobs]
            self._state = StackedState(training.optimizer, before, first.sizes, self._trained, entries, device)
            apart = apart or self._state.parts_differ
        self._named = partial(models.named, first.only, apart)
        control = None
        if first.control is not None:
            control = self._parameters(stacked_rows([job.control for job in jobs if job.control is not None]))
        named = self._named(weights)
        rates, shares = _rates(training, jobs, device)
        self._updates = Updates(training, named, rates, first.proximal, control, self._state, True, shares)
        self._losses = torch.zeros(len(jobs), device=device)
        self._class_sums: torch.Tensor | None = None
        self._num_steps = np.array([len(job.batches) for job in jobs])

    def run(self, span: Span, samples: Sequence[Iterator[Gathered]]) -> None:
        """Train in the steps of a span."""
        self._updates.keep_first(span.rows)
        self._buffers = tuple(each.clone() for each in self._buffers)  # from a graph's memory, see StepGraphs
        objective = self._jobs[0].objective
        if len(span.runs) == 1 and self._updates.subtracts and not (objective and objective.class_means):
            self._run_chains(span, samples[0])
            return
        function, count = self._models.gradients(self._jobs[0]), len(span.steps)
        step_by_step = [chain.from_iterable(starmap(zip, blocks)) for blocks in samples]
        waves = [self._graphs.wave(self._key, function, rows.stop - rows.start, count) for rows, _ in span.runs]
        for step in span.steps:
            results = []
            for (rows, _), gradients, batches in zip(span.runs, waves, step_by_step, strict=True):
                inputs = self._weights, self._others, *self._buffers
                found = gradients(
                    *(each[rows] for each in inputs), *next(batches), *(each[rows] for each in self._further)
                )
                results.append(found if len(waves) == 1 else tuple(each.clone() for each in found))
            self._take(step, span.rows, [_joined(parts) for parts in zip(*results, strict=True)])

    def _run_chains(self, span: Span, blocks: Iterator[Gathered]) -> None:
        """Train in the steps of a span whose updates are plain: several steps are one function, and so one graph."""
        rows, gradients = slice(0, span.rows), self._models.gradients(self._jobs[0])
        for images, labels in blocks:
            for some in zip(images.split(MOST_CHAINED), labels.split(MOST_CHAINED), strict=True):
                steps = len(some[0])
                wave = self._graphs.wave((self._key, steps), partial(_chained, gradients), span.rows, len(span.steps))
                inputs = self._weights, self._others, *self._buffers, *self._further
                weights, others, floats, numbers, *further = (each[rows] for each in inputs)
                rates = self._updates.next_rates(steps).expand(span.rows, steps)
                batches = (each.transpose(0, 1) for each in some)
                weights[:], floats, numbers, losses = wave(weights, others, floats, numbers, rates, *batches, *further)
                self._keep(span.rows, floats, numbers, losses)

    def _parameters(self, matrix: torch.Tensor) -> list[torch.Tensor]:
        """Return the parameters in a matrix [N, W] as the updates take them."""
        return [values for _, _, values in self._named(matrix)]

    def _take(self, step: int, rows: int, results: Sequence[torch.Tensor]) -> None:
        """Take the results of a step's gradients for the first rows."""
        found, floats, numbers, losses, *sums = results
        self._keep(rows, floats, numbers, losses)
        if sums:
            self._add_class_sums(step, rows, sums[0])
        self._updates.take(self._parameters(found))

    def _keep(self, rows: int, floats: torch.Tensor, numbers: torch.Tensor, losses: torch.Tensor) -> None:
        """Keep the buffers of the first rows, and add their losses [rows]."""
        new = zip((floats, numbers), self._buffers, strict=True)
        self._buffers = tuple(_joined([own, old[rows:]]) for own, old in new)
        self._losses[:rows] += losses

    def _add_class_sums(self, step: int, rows: int, sums: torch.Tensor) -> None:
        """Add class sums [n, C, D + 1] of a step, of the rows for which it is in the last pass over their samples."""
        counts = step >= self._num_steps[:rows] - [job.last_pass for job in self._jobs[:rows]]
        if self._class_sums is None:
            self._class_sums = sums.new_zeros(len(self._jobs), *sums.shape[1:])
        if counts.all():
            self._class_sums[:rows] += sums
        elif counts.any():
            self._class_sums[:rows] += sums * uploaded(counts, sums.device)[:, None, None]

    def store(self) -> None:
        """Write the results to the rows that the jobs fill, a launch per part."""
        self._updates.finish()
        jobs, whole, local = self._jobs, self._whole, self._local
        whole[:, self._trained] = self._weights
        self._models.buffers.write(self._buffers, jobs[0].only, whole, local)
        allocate_outputs(jobs)  # only now, because a wave that runs out of memory starts again
        for part, values in enumerate(whole.split(jobs[0].sizes, dim=1)):
            store_rows([job.trained[part] for job in jobs], values)
        store_rows([job.new_local for job in jobs], local)
        steps = uploaded(self._num_steps, whole.device)
        store_rows([job.loss for job in jobs], (self._losses / steps)[:, None])
        self._store_means()
        if self._state is not None:
            self._state.store([job.new_moments for job in jobs])

    def _store_means(self) -> None:
        """Write the class means to the rows that the jobs fill."""
        found = [(place, label, row) for place, job in enumerate(self._jobs) for label, row in job.means.items()]
        if found and self._class_sums is not None:
            places, labels, rows = zip(*found, strict=True)
            device = self._class_sums.device
            chosen = self._class_sums[uploaded(np.array(places), device), uploaded(np.array(labels), device)]
            store_rows(rows, chosen[:, :-1] / chosen[:, -1:].clamp(min=1))


def _chained(
    gradients: Gradients,
    weights: torch.Tensor,
    others: torch.Tensor,
    floats: torch.Tensor,
    numbers: torch.Tensor,
    rates: torch.Tensor,
    images: torch.Tensor,
    labels: torch.Tensor,
    *further: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Do plain updates of stacked models; for the tensors see stacked_steps.py.

    Args:
        rates: learning rates, [N, steps].
        images: [N, steps, b, C, H, W].
        labels: [N, steps, b].

    Returns:
        Weights and buffers afterwards, and the sum of the losses [N].
    """
    total: torch.Tensor = torch.zeros_like(rates[:, 0])
    for step in range(rates.shape[1]):
        found, floats, numbers, losses, *_ = gradients(
            weights, others, floats, numbers, images[:, step], labels[:, step], *further
        )
        weights = torch.addcmul(weights, found, rates[:, step, None], value=-1)
        total = total + losses
    return weights, floats, numbers, total


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Rows of several matrices as one."""
    parts = [part for part in parts if len(part)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def rates_of(training: Training, job: TrainSpec) -> tuple[float, ...]:
    """Return the learning rates that all rows of one matrix must have; empty if each row may have its own."""
    if training.optimizer.moments is not None:
        return ()
    return job.rates[:1] if len(set(job.rates)) == 1 else job.rates


def _rates(
    training: Training, jobs: Sequence[TrainSpec], device: torch.device
) -> tuple[Sequence[float], torch.Tensor | None]:
    """Return the learning rate per update, and the share of it that each model has, [updates, N]; None: all of it.

    With a rate per node the largest is taken, so that a model's numbers do not depend on the others in its matrix.
    """
    rates, peak = jobs[0].rates, training.learning_rate
    if not isinstance(peak, tuple) and all(job.rates == rates[: len(job.rates)] for job in jobs):
        return rates, None
    most = max(peak) if isinstance(peak, tuple) else peak
    shares = np.zeros((len(rates), len(jobs)), dtype=np.float32)
    for place, job in enumerate(jobs):
        shares[: len(job.rates), place] = np.array(job.rates) / most
    return [most] * len(rates), uploaded(shares, device)
