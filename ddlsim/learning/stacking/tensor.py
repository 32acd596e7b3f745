"""One tensor of each of N models, held as one plain tensor in one of two layouts.

`rows`, [N, *shape], is what batched matrix products take. `channels`, [b, N * C, ...], is what convolutions with N
groups, group normalization with N times as many groups and batch normalization over N times as many channels take:
there the models lie side by side as channels of the same images, and no activation is moved between layers. A module
computes with such tensors as with those of one model: it sees the shape of one.
"""

import weakref
from collections.abc import Callable, Iterable
from typing import Self

import torch


class NotStackable(Exception):
    """What a module does that cannot be done for many models at once here."""


class StackedTensor(torch.Tensor):
    """N tensors of equal shapes; see stacked.py: Stacked for what can be computed with them.

    Args:
        plain: the values of all of them, a plain tensor.
        count: N.
        joined: whether the layout is `channels`, not `rows`.
    """

    plain: torch.Tensor
    count: int
    joined: bool
    related: "list[weakref.ref[StackedTensor]]"
    """What it is a view of, and its views: an operation in place would have to reach them."""

    @staticmethod
    def __new__(cls, plain: torch.Tensor, count: int, joined: bool = False) -> "StackedTensor":
        shape = plain.shape[1:]
        if joined:
            shape = torch.Size((len(plain), plain.shape[1] // count, *plain.shape[2:]))
        made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=plain.dtype, device=plain.device)
        made.plain, made.count, made.joined = plain, count, joined
        made.related = []
        return made

    def __init__(self, plain: torch.Tensor, count: int, joined: bool = False):
        """See the class; all is done in `__new__`, since a tensor's shape is."""

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({self.count} x {list(self.shape)}, {'channels' if self.joined else 'rows'})"

    @property
    def rows(self) -> torch.Tensor:
        """[N, *shape]; of the other layout a view."""
        return self.plain.unflatten(1, (self.count, -1)).transpose(0, 1) if self.joined else self.plain

    @property
    def channels(self) -> torch.Tensor:
        """[b, N * C, ...] of tensors [b, C, ...]; of the other layout mostly a copy."""
        return self.plain if self.joined else self.plain.transpose(0, 1).flatten(1, 2)

    def like(self, plain: torch.Tensor, joined: bool = False) -> Self:
        """Other values of as many models."""
        return type(self)(plain, self.count, joined)

    def take_over(self, other: "StackedTensor") -> Self:
        """Takes over another's values of the same shape, in the place of an operation that works in place."""
        if other.shape != self.shape or other.dtype != self.dtype:
            raise NotStackable(f"an operation in place that makes {list(other.shape)} of {list(self.shape)}")
        if any(each() is not None for each in self.related):
            raise NotStackable("an operation in place on a tensor that is seen in two ways")
        self.plain, self.joined = other.plain, other.joined
        return self


def relate(one: StackedTensor, views: Iterable[object]) -> None:
    """Notes that these are views of a tensor."""
    for view in views:
        if isinstance(view, StackedTensor) and view is not one:
            one.related.append(weakref.ref(view))
            view.related.append(weakref.ref(one))


def spread(value: torch.Tensor, count: int) -> torch.Tensor:
    """The rows of a tensor, [N, *shape]; one that all models share is repeated, without a copy."""
    return value.rows if isinstance(value, StackedTensor) else value.expand(count, *value.shape)


def first_stacked(*values: object) -> StackedTensor:
    """The first of some arguments that stands for many."""
    return next(value for value in values if isinstance(value, StackedTensor))


def batched(x: StackedTensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], StackedTensor]]:
    """As one batch of images that a layer without weights computes alike: without a copy in either layout.

    Args:
        x: of tensors [b, C, ...].

    Returns:
        [b, N * C, ...] or [N * b, C, ...], and what makes a stacked tensor of the layer's output.
    """
    if x.joined:
        return x.plain, lambda found: x.like(found, joined=True)
    return x.plain.flatten(0, 1), lambda found: x.like(found.unflatten(0, (x.count, -1)))
