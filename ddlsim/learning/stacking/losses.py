"""Losses of every model, with the mean or the sum over its own samples."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from ddlsim.learning.stacking.tensor import NotStackable, StackedTensor, first_stacked, spread


def _reduced(x: StackedTensor, losses: torch.Tensor, reduction: str) -> StackedTensor:
    """Losses [N, ...] as asked for."""
    if reduction == "none":
        return x.like(losses)
    flat = losses.flatten(1)
    return x.like(flat.sum(dim=1) if reduction == "sum" else flat.mean(dim=1))


def _cross_entropy(
    outputs: torch.Tensor,
    labels: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> StackedTensor:
    first = first_stacked(outputs, labels)
    if outputs.dim() < 2 or isinstance(weight, StackedTensor) or (weight is not None and reduction == "mean"):
        raise NotStackable("a cross-entropy of a single sample, or a weighted mean")
    rows, classes = (spread(each, first.count) for each in (outputs, labels))
    each = F.cross_entropy(
        rows.flatten(0, 1),
        classes.flatten(0, 1),
        weight=weight,
        ignore_index=ignore_index,
        reduction="none",
        label_smoothing=label_smoothing,
    )
    losses = each.unflatten(0, (first.count, -1))
    if reduction == "mean" and not labels.is_floating_point():  # over the labels that count
        counted = (classes != ignore_index).flatten(1).sum(dim=1)
        return first.like(losses.flatten(1).sum(dim=1) / counted)
    return _reduced(first, losses, reduction)


def _elementwise(func: Callable[..., torch.Tensor]) -> Callable[..., StackedTensor]:
    def loss(
        outputs: torch.Tensor, targets: torch.Tensor, *args: Any, reduction: str = "mean", **kwargs: Any
    ) -> StackedTensor:
        if args or any(isinstance(each, torch.Tensor) for each in kwargs.values()) or outputs.shape != targets.shape:
            raise NotStackable(f"{func.__name__} with weights or other shapes")
        first = first_stacked(outputs, targets)
        losses = func(*(spread(each, first.count) for each in (outputs, targets)), reduction="none", **kwargs)
        return _reduced(first, losses, reduction)

    return loss


RULES: Mapping[str, Callable[..., Any]] = {
    "cross_entropy": _cross_entropy,
    **{
        func.__name__: _elementwise(func)
        for func in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits)
    },
}
"""By the name of the function of torch.nn.functional."""
