"""One architecture as functions of a matrix [N, P] that holds a model in every row (torch.func.vmap).

Rows never mix, so every model gets the numbers that it gets alone, up to the order of sums inside a kernel. A module
whose operations vmap does not know, or that does not do the same stacked, is found out on the first models it meets:
they are computed both ways (`why_not_train`, `why_not_evaluate`).
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from ddlsim.learning.backends.stacked_buffers import Matrices, StackedBuffers
from ddlsim.learning.backends.workspace import ModelWorkspace, autocast
from ddlsim.learning.bank import Row
from ddlsim.learning.dropout import seed_dropouts
from ddlsim.learning.job_types import TrainSpec
from ddlsim.learning.layout import CORE, HEAD, MODEL, Entry, Layout, named_tensors
from ddlsim.learning.tested import Loss

if TYPE_CHECKING:
    from ddlsim.scenario.model import Training

Gradients = Callable[..., tuple[torch.Tensor, ...]]
"""(trained values [N, W], untrained parameters [N, V], buffers [N, F] and [N, I] (stacked_buffers.py), images
[N, b, C, H, W], labels [N, b]) -> gradients [N, W], and the buffers after the step."""

Columns = slice | torch.Tensor
"""Columns of a whole model's row: a range where they lie side by side, else their numbers."""

SAME = 1e-3
"""How far stacked values may lie from those of one model alone, relative to the largest: a wrong one is far beyond."""

SAME_BF16 = 5e-2
"""The same for gradients of a forward pass in bfloat16, whose values have three digits."""

TRAINING, EVALUATION = "training", "evaluation"


class StackedModels:
    """What many models of one architecture compute side by side.

    Args:
        workspace: a module on the device, whose structure is used; it is loaded to be compared with.
        loss: what training lowers.
        training: scenario section `training`.
    """

    def __init__(self, workspace: ModelWorkspace, loss: Loss, training: "Training"):
        self.workspace = workspace
        self.layout: Layout = workspace.layout
        self._loss = loss
        self._training = training
        self._gradients_of = cache(self._make_gradients)
        self.buffers = StackedBuffers(workspace)
        self.reasons: dict[str, str] = {}
        """What has been found out, about TRAINING and EVALUATION; a resumed run begins with it."""
        if self.layout.predicts_with_local:
            self.reasons[EVALUATION] = "each node has buffers of its own"

    def trained_entries(self, only: str | None) -> list[Entry]:
        """The parameters that are trained (None: all), with their columns in a whole model's row."""
        return [e for e in self._parameters() if only is None or e.name.startswith(only + ".")]

    def split(self, only: str | None, whole: torch.Tensor) -> tuple[Columns, torch.Tensor, torch.Tensor]:
        """Of models [N, P]: which columns are trained, their values [N, W] and the parameters that are not, [N, V]."""
        trained = self.trained_entries(only)
        others = [entry for entry in self._parameters() if entry not in trained]
        columns = _columns(trained, whole.device)
        return columns, whole[:, columns].clone(), whole[:, _columns(others, whole.device)]

    def _parameters(self) -> list[Entry]:
        return [entry for entry in self.layout.parts[MODEL].entries if entry.trainable]

    def use_training(self, loss: Loss, training: "Training") -> None:
        """Gradients from now on are those of another loss."""
        self._loss, self._training = loss, training
        self._gradients_of = cache(self._make_gradients)

    def places(self, only: str | None, apart: bool) -> list[tuple[str, slice]]:
        """Names and columns, among the trained ones, of every parameter if `apart`, else of all together."""
        each = _side_by_side(self.trained_entries(only))
        if not apart:
            return [("", slice(0, each[-1].stop))]
        return [(entry.name, slice(entry.start, entry.stop)) for entry in each]

    def views(self, only: str | None, apart: bool, matrix: torch.Tensor) -> list[torch.Tensor]:
        """A matrix [N, W] over the trained columns as its parameters, [N, *shape] each, if `apart`; else as it is."""
        if not apart:
            return [matrix]
        each = _side_by_side(self.trained_entries(only))
        return [matrix[:, entry.start : entry.stop].view(len(matrix), *entry.shape) for entry in each]

    def gradients(self, only: str | None) -> Gradients:
        """The gradient of every row's loss on its own batch, by the part that is trained (None: all)."""
        return self._gradients_of(only)

    @torch.no_grad()
    def features(self, cores: torch.Tensor, images: torch.Tensor, shared: bool) -> torch.Tensor:
        """What cores make of images, in eval mode.

        Args:
            cores: [U, P_core].
            images: [n, C, H, W] for all of them if `shared`, else [U, n, C, H, W].

        Returns:
            [U, n, ...].
        """
        return self._apply(CORE, cores, images, None if shared else 0)

    @torch.no_grad()
    def outputs(self, heads: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """What heads [N, P_head] make of features [N, n, ...], in eval mode: [N, n, classes]."""
        return self._apply(HEAD, heads, features, 0)

    def known_reason(self, training: bool) -> str | None:
        """What has been found out about training or evaluation; None: it has not been asked yet."""
        return self.reasons.get(TRAINING if training else EVALUATION)

    def why_not_train(self, jobs: Sequence[TrainSpec], images: torch.Tensor, labels: torch.Tensor) -> str:
        """Why these models have to be trained one by one; empty where they need not. The answer is kept.

        Args:
            jobs: two or more, whose models are known.
            images: those of one step of each of them, [N, b, C, H, W].
            labels: [N, b].
        """
        return self._found_out(TRAINING, lambda: self._same_step(jobs, images, labels))

    def why_not_evaluate(self, models: Sequence[tuple[Row, ...]], images: torch.Tensor) -> str:
        """The same of evaluation.

        Args:
            models: two or more, already computed.
            images: a few that each of them sees, [N, b, C, H, W].
        """
        return self._found_out(EVALUATION, lambda: self._same_outputs(models, images))

    def _found_out(self, about: str, same: Callable[[], bool]) -> str:
        if about not in self.reasons:
            try:
                self.reasons[about] = "" if same() else "stacked it computes something else"
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever a module of a user's does that vmap cannot
                text = textwrap.shorten(str(error), 100, placeholder=" ...")
                self.reasons[about] = f"torch.func.vmap: {type(error).__name__}: {text}"
        return self.reasons[about]

    def _make_gradients(self, only: str | None) -> Gradients:
        module, loss_of, training, buffers = self.workspace.module, self._loss, self._training, self.buffers
        chosen = self.trained_entries(only)
        trained = _side_by_side(chosen)
        fixed = _side_by_side([entry for entry in self._parameters() if entry not in chosen])

        def loss(own: torch.Tensor, others: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, Matrices]:
            floats, numbers, images, labels = rest
            tensors = {**_views(trained, own), **_views(fixed, others), **buffers.views(floats, numbers)}
            outputs = functional_call(module, tensors, (images,))  # leaves the buffers' new values in `tensors`
            return loss_of(outputs, labels), buffers.gathered(tensors, floats, numbers)

        stacked = vmap(grad(loss, has_aux=True))

        def gradients(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            module.train()
            with autocast(training.precision, inputs[0].device):
                found, moved = stacked(*inputs)
            return found, *moved

        return gradients

    def _apply(self, part: str, flats: torch.Tensor, values: torch.Tensor, values_dim: int | None) -> torch.Tensor:
        submodule: nn.Module = getattr(self.workspace.module.eval(), part)
        entries = [
            replace(entry, name=entry.name.removeprefix(part + ".")) for entry in self.layout.parts[part].entries
        ]
        call = lambda flat, x: functional_call(submodule, _views(entries, flat), (x,))  # noqa: E731
        return vmap(call, in_dims=(0, values_dim))(flats, values)

    def _same_step(self, jobs: Sequence[TrainSpec], images: torch.Tensor, labels: torch.Tensor) -> bool:
        whole, local = stack_models([job.model for job in jobs]), self.buffers.local([job.local for job in jobs])
        _, weights, others = self.split(None, whole)
        buffers = self.buffers.read(whole, local, [job.seed for job in jobs])
        stacked = self.gradients(None)(weights, others, *buffers, images, labels)
        most = SAME if self._training.precision == "float32" else SAME_BF16
        for job, x, y, *rows in zip(jobs, images, labels, *stacked, strict=True):
            alone = self._step_alone(job, x, y)
            if not (_same(rows[0], alone[0], most) and _same(rows[1], alone[1], most) and rows[2].equal(alone[2])):
                return False
        return True

    def _step_alone(self, job: TrainSpec, images: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """A model's gradients [W] of one batch and its buffers then, [F] and [I], as PyTorch computes them."""
        workspace = self.workspace
        workspace.load(job.model)
        workspace.load_local(job.local)
        if job.seed is not None:
            seed_dropouts(workspace.dropouts.values(), job.seed)
        parameters = workspace.trained()
        with autocast(self._training.precision, images.device):
            loss = self._loss(workspace.module.train()(images), labels)
        alone = torch.autograd.grad(loss, parameters, materialize_grads=True)
        tensors = named_tensors(workspace.module)
        none = torch.empty(0, device=images.device)  # samples may be token ids
        moved = self.buffers.gathered(tensors, none, none.long())
        found = torch.cat([gradient.reshape(-1) for gradient in alone]), *(each.clone() for each in moved)
        workspace.gather_buffers()
        return found

    @torch.no_grad()
    def _same_outputs(self, models: Sequence[tuple[Row, ...]], images: torch.Tensor) -> bool:
        rows, core, head = stack_models(models), self.layout.parts[CORE].size, self.layout.parts[HEAD].size
        found = self.outputs(rows[:, core : core + head], self.features(rows[:, :core], images, False))
        for model, x, outputs in zip(models, images, found, strict=True):
            self.workspace.load(model)
            if not _same(outputs, self.workspace.module.eval()(x)):
                return False
        return True


def stack_models(models: Sequence[tuple[Row, ...]]) -> torch.Tensor:
    """The values of models with equally many parts as a matrix [N, P]."""
    return torch.cat([stack_params(parts) for parts in zip(*models, strict=True)], dim=1)


def stack_params(rows: Sequence) -> torch.Tensor:
    """The values of rows of one size as a matrix [N, P]."""
    return torch.stack([params.values() for params in rows])


def _side_by_side(entries: Sequence[Entry]) -> list[Entry]:
    """The same entries in a row that holds nothing else."""
    found: list[Entry] = []
    start = 0
    for entry in entries:
        stop = start + entry.stop - entry.start
        found.append(replace(entry, start=start, stop=stop))
        start = stop
    return found


def _columns(entries: Sequence[Entry], device: torch.device) -> Columns:
    if not entries:
        return slice(0, 0)
    if all(one.stop == other.start for one, other in pairwise(entries)):
        return slice(entries[0].start, entries[-1].stop)
    return torch.cat([torch.arange(entry.start, entry.stop, device=device) for entry in entries])


def _views(entries: Sequence[Entry], flat: torch.Tensor) -> dict[str, torch.Tensor]:
    return {entry.name: entry.view(flat) for entry in entries}


def _same(found: torch.Tensor, expected: torch.Tensor, most: float = SAME) -> bool:
    finite = expected[expected.isfinite()]
    within = most * (finite.abs().max().item() if finite.numel() else 1.0) + 1e-6
    return found.shape == expected.shape and torch.allclose(found, expected, atol=within, rtol=0, equal_nan=True)
