"""The two ways to compute with many models of one architecture at once, from a matrix [N, P] of a model in every row.

`ByLayers` calls the module with stacked tensors (learning/stacking) and takes plain autograd's gradients of the sum of
all losses: rows never mix, so these are every model's own. `ByVmap` is torch.func.vmap, which knows more operations and
needs about four times as many kernels for a step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from ddlsim.learning.backends.stacked_buffers import Matrices, StackedBuffers
from ddlsim.learning.backends.workspace import autocast
from ddlsim.learning.layout import Entry
from ddlsim.learning.stacking.stacked import Stacked
from ddlsim.learning.stacking.tensor import spread
from ddlsim.learning.tested import Loss

if TYPE_CHECKING:
    from ddlsim.scenario.model import Training

Gradients = Callable[..., tuple[torch.Tensor, ...]]
"""(trained values [N, W], untrained parameters [N, V], buffers [N, F] and [N, I] (stacked_buffers.py), images
[N, b, C, H, W], labels [N, b]) -> gradients [N, W], and the buffers after the step."""


@dataclass(frozen=True)
class Step:
    """What a step of training computes.

    Args:
        module: its structure is used.
        loss: what training lowers.
        training: scenario section `training`.
        trained: the trained parameters, with their columns in [N, W].
        fixed: the others, with their columns in [N, V].
        buffers: what moves besides.
    """

    module: nn.Module
    loss: Loss
    training: "Training"
    trained: Sequence[Entry]
    fixed: Sequence[Entry]
    buffers: StackedBuffers


class Way(Protocol):
    """One of the two; without state."""

    name: ClassVar[str]
    """For messages."""

    def __hash__(self) -> int:
        """All of one kind are one."""

    def gradients(self, step: Step) -> Gradients:
        """The gradient of every row's loss on its own batch."""

    def apply(
        self, module: nn.Module, entries: Sequence[Entry], flats: torch.Tensor, values: torch.Tensor, shared: bool
    ) -> torch.Tensor:
        """What modules make of values, without gradients: [N, n, ...].

        Args:
            module: in eval mode.
            entries: its tensors, with their columns.
            flats: [N, P].
            values: [n, ...] for all of them if `shared`, else [N, n, ...].
        """


@dataclass(frozen=True)
class ByLayers:
    """See Way."""

    name: ClassVar = "layer by layer"

    def gradients(self, step: Step) -> Gradients:
        """See Way."""

        def gradients(own: torch.Tensor, others: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
            floats, numbers, images, labels = rest
            count = len(own)
            leaves = {name: each.requires_grad_() for name, each in _apart(own, step.trained).items()}
            plain = {**leaves, **_apart(others, step.fixed), **step.buffers.stacked_views(floats, numbers)}
            tensors: dict[str, torch.Tensor] = {name: Stacked(each, count) for name, each in plain.items()}
            with torch.enable_grad():
                with autocast(step.training.precision, own.device):
                    outputs = functional_call(step.module.train(), tensors, (Stacked(images, count),))
                    losses = step.loss(outputs, Stacked(labels, count))
                found = torch.autograd.grad(spread(losses, count).sum(), list(leaves.values()), materialize_grads=True)
            moved = {name: spread(each.detach(), count) for name, each in tensors.items() if name not in leaves}
            return torch.cat([each.flatten(1) for each in found], dim=1), *step.buffers.stacked_gathered(
                moved, floats, numbers
            )

        return gradients

    def apply(
        self, module: nn.Module, entries: Sequence[Entry], flats: torch.Tensor, values: torch.Tensor, shared: bool
    ) -> torch.Tensor:
        """See Way."""
        count = len(flats)
        tensors: dict[str, Any] = {name: Stacked(each, count) for name, each in _apart(flats, entries).items()}
        with torch.no_grad():
            found = functional_call(module, tensors, (values if shared else Stacked(values, count),))
        return spread(found, count)


@dataclass(frozen=True)
class ByVmap:
    """See Way."""

    name: ClassVar = "torch.func.vmap"

    def gradients(self, step: Step) -> Gradients:
        """See Way."""

        def loss(own: torch.Tensor, others: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, Matrices]:
            floats, numbers, images, labels = rest
            tensors = {**_views(step.trained, own), **_views(step.fixed, others), **step.buffers.views(floats, numbers)}
            outputs = functional_call(step.module, tensors, (images,))  # leaves the buffers' new values in `tensors`
            return step.loss(outputs, labels), step.buffers.gathered(tensors, floats, numbers)

        stacked = vmap(grad(loss, has_aux=True))

        def gradients(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            step.module.train()
            with autocast(step.training.precision, inputs[0].device):
                found, moved = stacked(*inputs)
            return found, *moved

        return gradients

    def apply(
        self, module: nn.Module, entries: Sequence[Entry], flats: torch.Tensor, values: torch.Tensor, shared: bool
    ) -> torch.Tensor:
        """See Way."""
        call = lambda flat, x: functional_call(module, _views(entries, flat), (x,))  # noqa: E731
        return vmap(call, in_dims=(0, None if shared else 0))(flats, values)


def _views(entries: Sequence[Entry], flat: torch.Tensor) -> dict[str, torch.Tensor]:
    return {entry.name: entry.view(flat) for entry in entries}


def _apart(matrix: torch.Tensor, entries: Sequence[Entry]) -> dict[str, torch.Tensor]:
    """Tensors of all models by name, [N, *shape] each in one piece, as layers take them: one copy of the matrix.

    Args:
        matrix: [N, P], of nothing but these entries.
        entries: side by side.
    """
    if not entries:
        return {}
    count, sizes = len(matrix), [entry.stop - entry.start for entry in entries]
    pieces = matrix.new_empty(matrix.numel()).split([count * size for size in sizes])
    torch.split_with_sizes_copy(
        matrix.detach(), sizes, dim=1, out=[piece.view(count, size) for piece, size in zip(pieces, sizes, strict=True)]
    )
    return {entry.name: piece.view(count, *entry.shape) for entry, piece in zip(entries, pieces, strict=True)}
