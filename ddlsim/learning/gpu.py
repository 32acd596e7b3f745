"""Waves on a GPU: nodes of one architecture stacked into one model, so that one kernel serves them all.

A wave's models are the rows of one matrix [N, P]; a step is the vectorised gradient (torch.func.vmap) of every row's
loss on its own batch, and one update of the matrix. Rows never mix, so the numbers are those of one node after the
other, up to the order of sums inside a kernel. What cannot be stacked (BatchNorm, whose statistics move during
training, nodes whose batches differ in size, objectives of an algorithm's own, augmented images, dropout, whose
masks are a node's own) trains one by one.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch.func import functional_call, grad, vmap

from ddlsim.learning.cpu import allocate_outputs, train_on
from ddlsim.learning.evaluating import losses_of, predictions_of
from ddlsim.learning.kinds import LossJob, Tested, TestJob, TrainJob
from ddlsim.learning.layout import MODEL, Architecture, Layout
from ddlsim.learning.moments import OpenMoments, rows_kept
from ddlsim.learning.shards import Shards
from ddlsim.learning.worker import Template, make_optimizer


class GpuWaves:
    """Runs waves of jobs stacked on one device.

    Args:
        architectures: by name.
        shards: the nodes' samples and the clusters' evaluation sets, on the device.
        training: scenario section `training`.
        chunk: images per forward pass in evaluations.
        device: where everything lives.
    """

    def __init__(
        self, architectures: Mapping[str, Architecture], shards: Shards, training, chunk: int,
        device: torch.device,
    ):  # fmt: skip
        self._shards = shards
        self._training = training
        self._chunk = chunk
        self._device = device
        self._templates = {name: Template(architecture, device) for name, architecture in architectures.items()}

    def train(self, jobs: Sequence[TrainJob]) -> None:
        """Runs every job's steps and fills its outputs."""
        alike: dict[tuple, list[TrainJob]] = defaultdict(list)
        for job in jobs:
            sizes = tuple(len(batch) for batch in job.batches)
            steps = tuple(0 if kept is None else kept.steps for kept in job.moments)
            plain = job.objective is None and job.seed is None
            alike[job.architecture, sizes, job.only, len(job.sizes), steps, plain].append(job)
        for (architecture, _, only, _, steps, plain), group in alike.items():
            template = self._templates[architecture]
            stackable = plain and all(entry.trainable for entry in template.layout.parts[MODEL].entries)
            stackable &= only is not None or len(set(steps)) < 2  # one step count for all that is trained
            outputs = [allocate_outputs(job) for job in group]
            if stackable and len(group) > 1:
                self._train_stacked(template, group, outputs, only)
            else:
                for job, held in zip(group, outputs, strict=True):
                    train_on(template, job, held, self._shards, self._training)

    def losses(self, jobs: Sequence[LossJob]) -> list[list[float]]:
        """The values of the jobs."""
        return [losses_of(job, self._templates.__getitem__, self._shards, self._chunk) for job in jobs]

    def test(self, jobs: Sequence[TestJob]) -> list[list[Tested]]:
        """The values of the jobs."""
        return [predictions_of(job, self._templates.__getitem__, self._shards, self._chunk) for job in jobs]

    def close(self) -> None:
        """Nothing to end."""

    def _train_stacked(self, template: Template, jobs: list[TrainJob], outputs: list, only: str | None) -> None:
        module, layout, loss_of = template.module.train(), template.layout, self._shards.loss
        entries = layout.parts[MODEL].entries
        stacked = torch.stack([torch.cat([params.values() for params in job.model]) for job in jobs])
        trained = _trained_columns(layout, only)
        weights = stacked[:, trained].clone()

        def loss(own: torch.Tensor, others: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            before, after = others[: trained.start], others[trained.stop :]
            flat = torch.cat([before, own, after])
            views = {e.name: flat[e.start : e.stop].view(e.shape) for e in entries}
            return loss_of(functional_call(module, views, (x,)), y)

        gradients = vmap(grad(loss), randomness="different")
        moments = self._open_moments(jobs)
        state = None
        if moments:
            kept = [torch.stack(rows)[:, trained] for rows in zip(*(each.flats for each in moments), strict=True)]
            state = [(moments[0].steps_at(trained.start), kept)]
        update = make_optimizer([weights], self._training, state)
        for step in range(len(jobs[0].batches)):
            x, y = self._batch(jobs, step)
            found = gradients(weights, stacked, x, y)
            with torch.no_grad():
                update([found])
        stacked[:, trained] = weights
        for row, (job, held) in enumerate(zip(jobs, outputs, strict=True)):
            if state:
                for flat, values in zip(moments[row].flats, kept, strict=True):
                    flat[trained] = values[row]
                moments[row].store(held[len(job.sizes) :])
            start = 0
            for params, size in zip(held[: len(job.sizes)], job.sizes, strict=True):
                if params is not None:
                    params.values().copy_(stacked[row, start : start + size])
                start += size

    def _open_moments(self, jobs: list[TrainJob]) -> list[OpenMoments]:
        count = rows_kept(self._training)
        return [OpenMoments(job.moments, job.sizes, count, self._device) for job in jobs if job.moments]

    def _batch(self, jobs: list[TrainJob], step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Every node's batch of one step: images [N, b, C, H, W], labels [N, b]."""
        pairs = []
        for job in jobs:
            images, labels = self._shards.train[job.node]
            rows = torch.from_numpy(job.batches[step]).to(images.device)
            pairs.append((images[rows], labels[rows]))
        return torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])


def _trained_columns(layout: Layout, only: str | None) -> slice:
    """The columns of the whole model's row that are trained; one range, since there are no buffers."""
    whole = layout.parts[MODEL]
    chosen = [entry for entry in whole.entries if only is None or entry.name.startswith(only + ".")]
    return slice(chosen[0].start, chosen[-1].stop)
