"""A training step of many models of one architecture: its changing state, and two methods that compute it.

The state are the buffers of `state_dict()` (BatchNorm's running statistics and count of batches, and any others of a
module) and the counters of dropout. A training reads them into two matrices, one row per model: floating-point values
[N, F] and whole numbers [N, I]. A step takes both and returns new ones, so that it can be repeated and recorded.

`LayerRules` calls the module with stacked tensors (learning/stacking) and takes plain autograd's gradients of the sum
of all losses: rows never mix, so these are every model's own. `VmapFallback` is torch.func.vmap, which supports more
operations and needs about four times as many kernels for a step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional as F

from ddlsim.kernels.matrices import uploaded
from ddlsim.learning.backends.workspace import ModelWorkspace, autocast
from ddlsim.learning.bank import Row
from ddlsim.learning.dropout import first_counters
from ddlsim.learning.job_types import TrainSpec
from ddlsim.learning.layout import LOCAL, Entry
from ddlsim.learning.losses import Loss
from ddlsim.learning.stacking.layers import Stacked
from ddlsim.learning.stacking.tensor import expand_rows
from ddlsim.learning.training_inputs import MODEL, LocalStep, Objective
from ddlsim.scenario.sections import Training

Matrices = tuple[torch.Tensor, torch.Tensor]
"""Floating-point values, float32 [N, F], and whole numbers, int64 [N, I]."""


@dataclass(frozen=True)
class Buffer:
    """One buffer of a module.

    Args:
        name: its name in the module.
        shape: of the buffer.
        dtype: of the buffer.
        columns: its columns in the matrix of its kind.
        source: MODEL or LOCAL, whose row `entry` is of; empty: a dropout's counter.
        entry: its place in that row.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    columns: slice
    source: str = ""
    entry: Entry | None = None

    @property
    def is_float(self) -> bool:
        """Whether it is in the matrix of floating-point values."""
        return self.dtype.is_floating_point


class StackedBuffers:
    """Places of the buffers of one architecture.

    Args:
        workspace: a module of it.

    Attributes:
        found: the buffers, in order.
    """

    def __init__(self, workspace: ModelWorkspace):
        self._workspace = workspace
        self._dropouts = len(workspace.dropouts)
        layout = workspace.layout
        self.found: list[Buffer] = []
        self._sizes = [0, 0]
        for source, part in ((MODEL, layout.parts[MODEL]), (LOCAL, layout.local)):
            for entry in part.entries:
                if not entry.trainable:
                    self._add(entry.name, entry.shape, entry.dtype, source, entry)
        for name in workspace.dropouts:
            self._add(f"{name}.counter", (), torch.int64)

    def _add(
        self, name: str, shape: tuple[int, ...], dtype: torch.dtype, source: str = "", entry: Entry | None = None
    ) -> None:
        kind = int(not dtype.is_floating_point)
        start = self._sizes[kind]
        stop = self._sizes[kind] = start + torch.Size(shape).numel()
        self.found.append(Buffer(name, shape, dtype, slice(start, stop), source, entry))

    def local(self, rows: Sequence[Row | None]) -> torch.Tensor:
        """Return the nodes' own buffers, [N, P_local], from their rows; None in place of a row gives a fresh
        module's.
        """
        return torch.stack([self._workspace.values_of_local(row) for row in rows])

    def read(self, whole: torch.Tensor, local: torch.Tensor, jobs: Sequence[TrainSpec]) -> Matrices:
        """The buffers of models at the start of a training.

        Args:
            whole: their values, [N, P].
            local: the nodes' own buffers, as from `local`.
            jobs: their trainings, which seed their dropout.
        """
        device = whole.device
        floats, numbers = [whole[:, :0]], [torch.empty(len(whole), 0, dtype=torch.int64, device=device)]
        for buffer in self.found:
            if buffer.entry is not None:
                rows = whole if buffer.source == MODEL else local
                (floats if buffer.is_float else numbers).append(_of_type(rows, buffer.entry))
        if self._dropouts:
            counters = [
                [0] * self._dropouts if job.seed is None else first_counters(self._dropouts, job.seed, len(job.skipped))
                for job in jobs
            ]
            numbers.append(uploaded(np.array(counters, dtype=np.int64), device))
        return torch.cat(floats, dim=1), torch.cat([each.long() for each in numbers], dim=1)

    def write(self, moved: Sequence[torch.Tensor], only: str | None, whole: torch.Tensor, local: torch.Tensor) -> None:
        """Write the buffers after a training into rows, in place; of the trained part, or of all if None."""
        for buffer in self.found:
            if buffer.entry is not None and (only is None or buffer.name.startswith(only + ".")):
                values = moved[not buffer.is_float][:, buffer.columns].to(buffer.dtype)
                rows = whole if buffer.source == MODEL else local
                rows[:, buffer.entry.start : buffer.entry.stop] = _as_words(values, buffer.entry)

    def views(self, floats: torch.Tensor, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
        """The buffers of one model by name, copied from a row of each matrix, because modules change them in place."""
        return {name: values[0] for name, values in self.stacked_views(floats[None], numbers[None]).items()}

    def stacked_views(self, floats: torch.Tensor, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
        """The buffers of all models by name, [N, *shape].

        Each is copied by itself, because vmap's batch normalization changes statistics whose [N, C] is contiguous, and
        a copy of others.
        """
        found = {}
        for buffer in self.found:
            values = (floats if buffer.is_float else numbers)[:, buffer.columns].unflatten(1, buffer.shape or (1,))
            dtype = torch.float64 if buffer.is_float and floats.dtype == torch.float64 else buffer.dtype
            values = values.clone(memory_format=torch.contiguous_format).to(dtype)
            found[buffer.name] = values.view(len(values), *buffer.shape)
        return found

    def stacked_gathered(
        self, tensors: Mapping[str, torch.Tensor], floats: torch.Tensor, numbers: torch.Tensor
    ) -> Matrices:
        """Return the matrices of all models' buffers from buffers by name; matrices without columns are unchanged."""
        own = [
            [tensors[each.name].reshape(len(floats), -1) for each in self.found if each.is_float is kind]
            for kind in (True, False)
        ]
        return (
            torch.cat(own[0], dim=1) if own[0] else floats,
            torch.cat([values.long() for values in own[1]], dim=1) if own[1] else numbers,
        )

    def gathered(self, tensors: Mapping[str, torch.Tensor], floats: torch.Tensor, numbers: torch.Tensor) -> Matrices:
        """Return a row of each matrix from one model's buffers by name; rows without columns are unchanged."""
        rows = {each.name: tensors[each.name][None] for each in self.found}
        floats, numbers = self.stacked_gathered(rows, floats[None], numbers[None])
        return floats[0], numbers[0]


def _of_type(rows: torch.Tensor, entry: Entry) -> torch.Tensor:
    """The columns of an entry, [N, values] of its type."""
    columns = rows[:, entry.start : entry.stop]
    if entry.dtype == torch.float32:
        return columns
    # a copy: columns of one row count as contiguous, with the strides of the matrix
    words = columns.clone(memory_format=torch.contiguous_format)
    return words.view(entry.dtype)[:, : torch.Size(entry.shape).numel()]


def _as_words(values: torch.Tensor, entry: Entry) -> torch.Tensor:
    """Reverse the conversion: return the contents of the columns of an entry, float32 [N, columns]."""
    if entry.dtype == torch.float32:
        return values
    words = torch.zeros(len(values), entry.stop - entry.start, device=values.device)
    words.view(entry.dtype)[:, : values.shape[1]] = values
    return words


Gradients = Callable[..., tuple[torch.Tensor, ...]]
"""(trained values [N, W], untrained parameters [N, V], buffers [N, F] and [N, I], images
[N, b, C, H, W], labels [N, b], and the inputs of an objective: trained values at the start [N, W], targets [N, D] each)
-> gradients [N, W], the buffers after the step, losses [N], and class sums [N, C, D + 1] if the objective has class
means."""


Tensors = Sequence[torch.Tensor]
Named = Mapping[str, torch.Tensor]


class ModelLoss(nn.Module):
    """The loss of a model, as a module that holds the model.

    Args:
        module: the model.
        loss: (outputs, labels) -> the task's loss.
        objective: of the algorithm; None for the task's loss.
        labels: of the objective's targets.
        classes: number of classes, C.
    """

    def __init__(self, module: nn.Module, loss: Loss, objective: Objective | None, labels: Sequence[int], classes: int):
        super().__init__()
        self.module = module
        self._task_loss, self._objective, self._labels, self._classes = loss, objective, labels, classes

    def forward(self, images: torch.Tensor, labels: torch.Tensor, start: Named, targets: Tensors) -> Tensors:
        """Return the loss, and class sums if the objective collects features."""
        objective = self._objective
        sums: list[torch.Tensor] = []
        if objective is None:
            return (self._task_loss(self.module(images), labels),)
        aims = dict(zip(self._labels, targets, strict=True))
        collect = lambda x, y: sums.append(class_sums(x, y, self._classes))  # noqa: E731
        size = len(labels) // objective.views
        loss = objective.loss(LocalStep(self.module, images, labels, size, start, aims, self._task_loss, collect))
        return (loss, torch.stack(sums).sum(dim=0)) if objective.class_means else (loss,)

    def call(self, tensors: dict[str, torch.Tensor], batch: Tensors, further: Tensors, at_start: Callable) -> Tensors:
        """Return the same for a model of these tensors, by name; buffers that change are replaced in `tensors`.

        Args:
            tensors: parameters and buffers.
            batch: images and labels.
            further: what the objective needs, see Gradients.
            at_start: returns the trained tensors by name from the trained values at the start.
        """
        start: Named = {}
        targets = further
        if self._objective is not None and self._objective.keeps_start:
            start, targets = {**tensors, **at_start(further[0])}, further[1:]
        named = {f"module.{name}": each for name, each in tensors.items()}
        found = functional_call(self, named, (*batch, start, targets))
        tensors.update((name, named[f"module.{name}"]) for name in tensors)
        return found


def class_sums(features: torch.Tensor, labels: torch.Tensor, num_classes: int) -> torch.Tensor:
    """Sums of features [n, D] by label and, in the last column, numbers of samples: [C, D + 1]."""
    with torch.no_grad(), torch.autocast(features.device.type, enabled=False):
        counted = F.pad(features.detach().float(), (0, 1), value=1.0)
        return (labels[:, None] == torch.arange(num_classes, device=labels.device)).float().T @ counted


@dataclass(frozen=True)
class Step:
    """The computation of a training step.

    Args:
        loss: what training minimizes; the structure of its model is used.
        training: scenario section `training`.
        trained: the trained parameters, with their columns in [N, W].
        fixed: the others, with their columns in [N, V].
        buffers: the buffers and dropout counters, which change as well.
    """

    loss: ModelLoss
    training: Training
    trained: Sequence[Entry]
    fixed: Sequence[Entry]
    buffers: StackedBuffers


class LayerRules:
    """Computation layer by layer with stacked tensors."""

    name = "layer by layer"

    def gradients(self, step: Step) -> Gradients:
        """Return a function that computes the gradient of every row's loss on its own batch."""

        def gradients(own: torch.Tensor, others: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
            floats, numbers, images, labels, *further = rest
            count = len(own)
            leaves = {name: each.requires_grad_() for name, each in _apart(own, step.trained).items()}
            plain = {**leaves, **_apart(others, step.fixed), **step.buffers.stacked_views(floats, numbers)}
            tensors: dict[str, torch.Tensor] = {name: Stacked(each, count) for name, each in plain.items()}
            with torch.enable_grad():
                batch, needed = ([Stacked(each, count) for each in some] for some in ((images, labels), further))
                with autocast(step.training.precision, own.device):
                    losses, *sums = step.loss.train().call(tensors, batch, needed, at_start)
                found = torch.autograd.grad(
                    (of_rows := expand_rows(losses, count)).sum(), list(leaves.values()), materialize_grads=True
                )
            moved = {name: expand_rows(each.detach(), count) for name, each in tensors.items() if name not in leaves}
            buffers = step.buffers.stacked_gathered(moved, floats, numbers)
            results = of_rows.detach().float(), *(expand_rows(each, count) for each in sums)
            return torch.cat([each.flatten(1) for each in found], dim=1), *buffers, *results

        def at_start(values: Stacked) -> dict[str, torch.Tensor]:
            return {name: values.like(each) for name, each in _apart(values.rows, step.trained).items()}

        return gradients

    def apply(
        self, module: nn.Module, entries: Sequence[Entry], flats: torch.Tensor, values: torch.Tensor, shared: bool
    ) -> torch.Tensor:
        """Return the outputs of modules for values, without gradients: [N, n, ...].

        Args:
            module: in eval mode.
            entries: its tensors, with their columns.
            flats: [N, P].
            values: [n, ...] for all of them if `shared`, else [N, n, ...].
        """
        count = len(flats)
        tensors: dict[str, Any] = {name: Stacked(each, count) for name, each in _apart(flats, entries).items()}
        with torch.no_grad():
            found = functional_call(module, tensors, (values if shared else Stacked(values, count),))
        return expand_rows(found, count)


class VmapFallback:
    """Computation by torch.func.vmap, with the methods of LayerRules."""

    name = "torch.func.vmap"

    def gradients(self, step: Step) -> Gradients:
        def loss(own: torch.Tensor, others: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, Any]:
            floats, numbers, images, labels, *further = rest
            tensors = {**_views(step.trained, own), **_views(step.fixed, others), **step.buffers.views(floats, numbers)}
            found, *sums = step.loss.call(tensors, (images, labels), further, partial(_views, step.trained))
            return found, (step.buffers.gathered(tensors, floats, numbers), sums)

        stacked = vmap(grad_and_value(loss, has_aux=True))

        def gradients(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            step.loss.train()
            with autocast(step.training.precision, inputs[0].device):
                found, (losses, (moved, sums)) = stacked(*inputs)
            return found, *moved, losses.float(), *sums

        return gradients

    def apply(
        self, module: nn.Module, entries: Sequence[Entry], flats: torch.Tensor, values: torch.Tensor, shared: bool
    ) -> torch.Tensor:
        call = lambda flat, x: functional_call(module, _views(entries, flat), (x,))  # noqa: E731
        return vmap(call, in_dims=(0, None if shared else 0))(flats, values)


def _views(entries: Sequence[Entry], flat: torch.Tensor) -> dict[str, torch.Tensor]:
    return {entry.name: entry.view(flat) for entry in entries}


def _apart(matrix: torch.Tensor, entries: Sequence[Entry]) -> dict[str, torch.Tensor]:
    """Tensors of all models by name, [N, *shape] each in one piece, as layers take them: one copy of the matrix, or
    views of a single model.

    Args:
        matrix: [N, P], of nothing but these entries.
        entries: side by side.
    """
    if not entries:
        return {}
    count, sizes = len(matrix), [entry.stop - entry.start for entry in entries]
    if count == 1:
        return {entry.name: matrix.detach()[:, entry.start : entry.stop].view(1, *entry.shape) for entry in entries}
    pieces = matrix.new_empty(matrix.numel()).split([count * size for size in sizes])
    torch.split_with_sizes_copy(
        matrix.detach(), sizes, dim=1, out=[piece.view(count, size) for piece, size in zip(pieces, sizes, strict=True)]
    )
    return {entry.name: piece.view(count, *entry.shape) for entry, piece in zip(entries, pieces, strict=True)}


Method = LayerRules | VmapFallback


METHODS: tuple[Method, ...] = (LayerRules(), VmapFallback())
"""In the order in which they are tried."""
