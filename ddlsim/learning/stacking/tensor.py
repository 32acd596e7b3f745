"""One tensor of each of N models, held as one plain tensor in one of two layouts.

`rows`, [N, *shape], suits batched matrix products. `channels`, [b, N * C, ...], suits convolutions with N groups, group
normalization with N times as many groups and batch normalization over N times as many channels: the models are adjacent
channels of the same images, and no activation is moved between layers. A module computes with such tensors as with
one model's tensors: it sees the shape of one.

Elementwise functions compute in whichever layout their arguments have.
"""

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self

import torch
from torch.nn import functional as F


class NotStackable(Exception):
    """Raised for an operation of a module that cannot be computed for many models at once."""


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
    """The tensor that it is a view of, and its views: an operation in place would have to change them."""

    @staticmethod
    def __new__(cls, plain: torch.Tensor, count: int, joined: bool = False) -> "StackedTensor":
        shape = plain.shape[1:]
        if joined:
            shape = torch.Size((len(plain), plain.shape[1] // count, *plain.shape[2:]))
        stacked = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=plain.dtype, device=plain.device)
        stacked.plain, stacked.count, stacked.joined = plain, count, joined
        stacked.related = []
        return stacked

    def __init__(self, plain: torch.Tensor, count: int, joined: bool = False):
        """Do nothing; `__new__` does all, since it sets a tensor's shape."""

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

    def assign_(self, other: "StackedTensor") -> Self:
        """Take over the values of another tensor of the same shape, for an operation in place."""
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


def expand_rows(value: torch.Tensor, count: int) -> torch.Tensor:
    """The rows of a tensor, [N, *shape]; one that all models share is repeated, without a copy."""
    return value.rows if isinstance(value, StackedTensor) else value.expand(count, *value.shape)


def first_batched(*values: object) -> StackedTensor:
    """Return the first stacked tensor among the arguments."""
    return next(value for value in values if isinstance(value, StackedTensor))


def batched(x: StackedTensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], StackedTensor]]:
    """Return one batch of images for a layer without weights, without a copy in either layout.

    Args:
        x: of tensors [b, C, ...].

    Returns:
        [b, N * C, ...] or [N * b, C, ...], and what makes a stacked tensor of the layer's output.
    """
    if x.joined:
        return x.plain, lambda found: x.like(found, joined=True)
    return x.plain.flatten(0, 1), lambda found: x.like(found.unflatten(0, (x.count, -1)))


_ACTIVATIONS = (
    "relu relu6 gelu silu mish elu selu celu leaky_relu hardswish hardsigmoid hardtanh softplus softsign sigmoid "
    "logsigmoid tanh"
)
_FUNCTIONS = (
    "exp expm1 log log1p sqrt rsqrt square abs neg __neg__ sign sin cos erf reciprocal clamp clamp_min clamp_max clip "
    "maximum minimum lerp addcmul addcdiv nan_to_num floor ceil round remainder __mod__ pow __pow__ __rpow__"
)
_ARITHMETIC = (
    "add sub subtract mul multiply div divide true_divide rsub __radd__ __rsub__ __rmul__ __rtruediv__ __rdiv__"
)
_LOGIC = (
    "where masked_fill isnan isfinite eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ logical_and "
    "logical_or logical_not bitwise_and bitwise_or bitwise_xor __and__ __or__ __xor__ __invert__ __lshift__ __rshift__"
)
_COPIES = "float double half bfloat16 long int bool type_as to detach clone contiguous zeros_like ones_like"
NAMES = frozenset(f"{_ACTIVATIONS} {_FUNCTIONS} {_ARITHMETIC} {_LOGIC} {_COPIES}".split())
OPERATORS = {"__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div"}
"""Operators in place, and the operation of each."""


def rule_of(name: str, func: Any) -> Callable[..., Any] | None:
    """Return the rule that computes a function, or None if it has none. Functions in place replace the values of a
    tensor.
    """
    if name in NAMES:
        return partial(apply, func)
    plain = OPERATORS.get(name, name.removesuffix("_"))
    if plain not in NAMES:
        return None
    out_of_place = getattr(torch.Tensor, plain, None) or getattr(F, plain)
    return partial(_in_place, out_of_place)


def _in_place(out_of_place: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> StackedTensor:
    if not isinstance(x, StackedTensor):
        raise NotStackable("an operation in place on what all models share")
    return x.assign_(apply(out_of_place, x, *args, **kwargs))


def apply(func: Any, *args: Any, inplace: bool = False, **kwargs: Any) -> StackedTensor:
    """Compute an elementwise function in a layout that its arguments have."""
    every = [*args, *kwargs.values()]
    stacked = [each for each in every if isinstance(each, StackedTensor)]
    shared = [each for each in every if isinstance(each, torch.Tensor) and not isinstance(each, StackedTensor)]
    joined = _side_by_side(stacked, shared)
    dims = max(each.dim() for each in (*stacked, *shared))
    plain = partial(_plain, joined=joined, dims=dims)
    found = func(*map(plain, args), **{key: plain(each) for key, each in kwargs.items()})
    result = stacked[0].like(found, joined)
    first = args[0] if args else None
    return first.assign_(result) if inplace and isinstance(first, StackedTensor) else result


def _side_by_side(stacked: list[StackedTensor], shared: list[torch.Tensor]) -> bool:
    """Whether all these can be combined in the layout [b, N * C, ...], and one of them has it."""
    first = next((each for each in stacked if each.joined), None)
    if first is None:
        return False
    dims, width = first.dim(), first.shape[1]
    of_channels = (each.dim() < dims - 1 or (each.dim() <= dims and each.shape[1 - dims] == 1) for each in shared)
    return all(each.dim() == dims and each.shape[1] == width for each in stacked) and all(of_channels)


def _plain(value: Any, joined: bool, dims: int) -> Any:
    """An argument as the plain function takes it."""
    if not isinstance(value, StackedTensor):
        return value
    if joined:
        return value.channels
    rows, missing = value.rows, dims - value.dim()
    return rows.reshape(len(rows), *[1] * missing, *rows.shape[1:]) if missing else rows
