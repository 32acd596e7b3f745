"""One architecture as functions of a matrix [N, P] that holds a model in every row (torch.func.vmap).

Rows never mix, so every model gets the numbers that it gets alone, up to the order of sums inside a kernel. A module
whose operations vmap does not know, or that does not do the same stacked, is found out on the first models it meets:
they are computed both ways (`why_not`).
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from ddlsim.learning.backends.workspace import ModelWorkspace, autocast
from ddlsim.learning.bank import Row
from ddlsim.learning.layout import CORE, HEAD, MODEL, Entry, Layout
from ddlsim.learning.tested import Loss

if TYPE_CHECKING:
    from ddlsim.scenario.model import Training

Gradients = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(trained values [N, W], the others [N, P - W], images [N, b, C, H, W], labels [N, b]) -> gradients [N, W]."""

SAME = 1e-3
"""How far stacked values may lie from those of one model alone, relative to the largest: a wrong one is far beyond."""

SAME_BF16 = 5e-2
"""The same for gradients of a forward pass in bfloat16, whose values have three digits."""

TRAINING, EVALUATION = "training", "evaluation"


class StackedModels:
    """What many models of one architecture compute side by side.

    Args:
        workspace: a module on the device, whose structure is used; `why_not` loads models into it.
        loss: what training lowers.
        training: scenario section `training`.
    """

    def __init__(self, workspace: ModelWorkspace, loss: Loss, training: "Training"):
        self.workspace = workspace
        self.layout: Layout = workspace.layout
        self._loss = loss
        self._training = training
        self._gradients_of = cache(self._make_gradients)
        self.reasons: dict[str, str] = {}
        """What `why_not` has found, about TRAINING and EVALUATION; a resumed run begins with it."""
        if self.layout.local.size or not all(entry.trainable for entry in self.layout.parts[MODEL].entries):
            self.reasons[TRAINING] = "it keeps statistics that move during training"
        if self.layout.predicts_with_local:
            self.reasons[EVALUATION] = "each node has buffers of its own"

    def trained_columns(self, only: str | None) -> slice:
        """The columns of a whole model's row that are trained; one range, since there are no buffers between them."""
        chosen = self._trained_entries(only)
        return slice(chosen[0].start, chosen[-1].stop)

    def _trained_entries(self, only: str | None) -> list[Entry]:
        return [e for e in self.layout.parts[MODEL].entries if only is None or e.name.startswith(only + ".")]

    def use_training(self, loss: Loss, training: "Training") -> None:
        """Gradients from now on are those of another loss."""
        self._loss, self._training = loss, training
        self._gradients_of = cache(self._make_gradients)

    def places(self, only: str | None, apart: bool) -> list[tuple[str, slice]]:
        """Names and columns, among the trained ones, of every parameter if `apart`, else of all together."""
        first = self.trained_columns(only)
        if not apart:
            return [("", slice(0, first.stop - first.start))]
        return [(e.name, slice(e.start - first.start, e.stop - first.start)) for e in self._trained_entries(only)]

    def views(self, only: str | None, apart: bool, matrix: torch.Tensor) -> list[torch.Tensor]:
        """A matrix [N, W] over the trained columns as its parameters, [N, *shape] each, if `apart`; else as it is."""
        if not apart:
            return [matrix]
        each = zip(self._trained_entries(only), self.places(only, apart), strict=True)
        return [matrix[:, columns].view(len(matrix), *entry.shape) for entry, (_, columns) in each]

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
        """What `why_not` has found, about training or evaluation; None: it has not been asked yet."""
        return self.reasons.get(TRAINING if training else EVALUATION)

    def why_not(
        self, models: Sequence[tuple[Row, ...]], images: torch.Tensor, labels: torch.Tensor | None = None
    ) -> str:
        """Why these models have to be computed one by one; empty where they need not. The answer is kept.

        Args:
            models: two or more, already computed.
            images: a few that each of them sees, [N, b, C, H, W].
            labels: [N, b], if training is asked about; None: evaluation.
        """
        about = EVALUATION if labels is None else TRAINING
        if about not in self.reasons:
            try:
                if labels is None:
                    same = self._same_outputs(models, images)
                else:
                    same = self._same_gradients(models, images, labels)
                self.reasons[about] = "" if same else "stacked it computes something else"
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # whatever a module of a user's does that vmap cannot
                text = textwrap.shorten(str(error), 100, placeholder=" ...")
                self.reasons[about] = f"torch.func.vmap: {type(error).__name__}: {text}"
        return self.reasons[about]

    def _make_gradients(self, only: str | None) -> Gradients:
        module, loss_of, start = self.workspace.module, self._loss, self.trained_columns(only).start
        training = self._training
        entries = self.layout.parts[MODEL].entries

        def loss(own: torch.Tensor, others: torch.Tensor, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            flat = torch.cat([others[:start], own, others[start:]])
            return loss_of(functional_call(module, _views(entries, flat), (images,)), labels)

        stacked = vmap(grad(loss))

        def gradients(*inputs: torch.Tensor) -> torch.Tensor:
            module.train()
            with autocast(training.precision, inputs[0].device):
                return stacked(*inputs)

        return gradients

    def _apply(self, part: str, flats: torch.Tensor, values: torch.Tensor, values_dim: int | None) -> torch.Tensor:
        submodule: nn.Module = getattr(self.workspace.module.eval(), part)
        entries = [
            replace(entry, name=entry.name.removeprefix(part + ".")) for entry in self.layout.parts[part].entries
        ]
        call = lambda flat, x: functional_call(submodule, _views(entries, flat), (x,))  # noqa: E731
        return vmap(call, in_dims=(0, values_dim))(flats, values)

    def _same_gradients(self, models: Sequence[tuple[Row, ...]], images: torch.Tensor, labels: torch.Tensor) -> bool:
        rows = stack_models(models)
        found = self.gradients(None)(rows, rows[:, :0], images, labels)
        for model, x, y, row in zip(models, images, labels, found, strict=True):
            self.workspace.load(model)
            parameters = self.workspace.trained()
            with autocast(self._training.precision, x.device):
                loss = self._loss(self.workspace.module.train()(x), y)
            alone = torch.autograd.grad(loss, parameters, materialize_grads=True)
            expected = torch.cat([gradient.reshape(-1) for gradient in alone])  # in the order of the columns
            if not _same(row, expected, SAME if self._training.precision == "float32" else SAME_BF16):
                return False
        return True

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


def _views(entries: Sequence[Entry], flat: torch.Tensor) -> dict[str, torch.Tensor]:
    return {entry.name: entry.view(flat) for entry in entries}


def _same(found: torch.Tensor, expected: torch.Tensor, most: float = SAME) -> bool:
    finite = expected[expected.isfinite()]
    within = most * (finite.abs().max().item() if finite.numel() else 1.0) + 1e-6
    return found.shape == expected.shape and torch.allclose(found, expected, atol=within, rtol=0, equal_nan=True)
