"""Functions that rearrange values or reduce dimensions, applied to each model's tensor after the dimension of
models.
"""

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any

import torch
from torch.nn import functional as F

from ddlsim.learning.stacking.tensor import NotStackable, StackedTensor, expand_rows, first_batched

Dims = int | Sequence[int] | None


def _dim(x: StackedTensor, dim: int) -> int:
    """The dimension of the rows that is `dim` of one model's tensor."""
    return dim + 1 if dim >= 0 else dim + x.dim() + 1


def _numbers(given: Sequence[Any]) -> Sequence[int]:
    """Return sizes or dimensions, passed separately or as one sequence."""
    return given[0] if len(given) == 1 and not isinstance(given[0], int) else given


def _flatten(x: StackedTensor, start_dim: int = 0, end_dim: int = -1) -> StackedTensor:
    return x.like(x.rows.flatten(_dim(x, start_dim), _dim(x, end_dim)))


def _reshape(x: StackedTensor, *sizes: Any) -> StackedTensor:
    return x.like(x.rows.reshape(x.count, *_numbers(sizes)))


def _unflatten(x: StackedTensor, dim: int, sizes: Sequence[int]) -> StackedTensor:
    return x.like(x.rows.unflatten(_dim(x, dim), sizes))


def _transpose(x: StackedTensor, dim0: int, dim1: int) -> StackedTensor:
    return x.like(x.rows.transpose(_dim(x, dim0), _dim(x, dim1)))


def _permute(x: StackedTensor, *dims: Any) -> StackedTensor:
    return x.like(x.rows.permute(0, *(_dim(x, dim) for dim in _numbers(dims))))


def _unsqueeze(x: StackedTensor, dim: int) -> StackedTensor:
    return x.like(x.rows.unsqueeze(dim + 1 if dim >= 0 else dim))


def _squeeze(x: StackedTensor, dim: int | None = None) -> StackedTensor:
    dims = [place for place, size in enumerate(x.shape) if size == 1] if dim is None else [dim]
    return x.like(x.rows.squeeze([_dim(x, each) for each in dims]))


def _expand(x: StackedTensor, *sizes: Any) -> StackedTensor:
    wanted, rows = _numbers(sizes), x.rows
    missing = len(wanted) - x.dim()
    return x.like(rows.reshape(x.count, *[1] * missing, *rows.shape[1:]).expand(x.count, *wanted))


def _split(x: StackedTensor, size: int | list[int], dim: int = 0) -> tuple[StackedTensor, ...]:
    return tuple(x.like(each) for each in x.rows.split(size, _dim(x, dim)))


def _chunk(x: StackedTensor, chunks: int, dim: int = 0) -> tuple[StackedTensor, ...]:
    return tuple(x.like(each) for each in x.rows.chunk(chunks, _dim(x, dim)))


def _unbind(x: StackedTensor, dim: int = 0) -> tuple[StackedTensor, ...]:
    return tuple(x.like(each) for each in x.rows.unbind(_dim(x, dim)))


def _cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> StackedTensor:
    x = first_batched(*tensors)
    return x.like(torch.cat([expand_rows(each, x.count) for each in tensors], _dim(x, dim)))


def _stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> StackedTensor:
    x = first_batched(*tensors)
    return x.like(torch.stack([expand_rows(each, x.count) for each in tensors], dim + 1 if dim >= 0 else dim))


def _getitem(x: torch.Tensor, index: Any) -> StackedTensor:
    wanted = index if isinstance(index, tuple) else (index,)
    if not isinstance(x, StackedTensor) or not all(
        isinstance(each, int | slice | EllipsisType | None) for each in wanted
    ):
        raise NotStackable("an index that is a tensor")
    return x.like(x.rows[(slice(None), *wanted)])


def _roll(x: StackedTensor, shifts: int, dims: int | None = None) -> StackedTensor:
    if dims is None:
        return x.like(x.rows.flatten(1).roll(shifts, 1).view(x.rows.shape))
    return x.like(x.rows.roll(shifts, _dim(x, dims)))


def _zeros(x: StackedTensor, *sizes: Any, **kwargs: Any) -> torch.Tensor:
    return x.plain.new_zeros(*sizes, **kwargs)  # the same for all models


def _reduced(func: Callable[..., torch.Tensor]) -> Callable[..., StackedTensor]:
    def reduce(x: StackedTensor, dim: Dims = None, keepdim: bool = False, **kwargs: Any) -> StackedTensor:
        if dim is None:
            return x.like(func(x.rows.reshape(x.count, -1), dim=1, **kwargs))
        dims = [dim] if isinstance(dim, int) else list(dim)
        if x.joined and keepdim and all(each % x.dim() > 1 for each in dims):  # of every channel by itself
            return x.like(func(x.plain, dim=[each % x.dim() for each in dims], keepdim=True, **kwargs), joined=True)
        return x.like(func(x.rows, dim=[_dim(x, each) for each in dims], keepdim=keepdim, **kwargs))

    return reduce


def _along(func: Callable[..., torch.Tensor]) -> Callable[..., StackedTensor]:
    def along(x: StackedTensor, dim: int, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> StackedTensor:
        return x.like(func(x.rows, dim=_dim(x, dim), dtype=dtype))

    return along


def _matmul(one: torch.Tensor, other: torch.Tensor) -> StackedTensor:
    dims = max(one.dim(), other.dim())
    if min(one.dim(), other.dim()) < 2:
        raise NotStackable("a product with a vector")
    x = first_batched(one, other)
    pair = [expand_rows(each, x.count) for each in (one, other)]
    return x.like(
        torch.matmul(*(each.reshape(x.count, *[1] * (dims + 1 - each.dim()), *each.shape[1:]) for each in pair))
    )


def _pad(x: StackedTensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> StackedTensor:
    if len(pad) // 2 > x.dim() - 2:
        raise NotStackable("padding of channels")
    return x.like(F.pad(x.plain, pad, mode, value), x.joined) if mode == "constant" else _padded(x, pad, mode)


def _padded(x: StackedTensor, pad: Sequence[int], mode: str) -> StackedTensor:
    return x.like(F.pad(x.channels, pad, mode), joined=True)


RULES: Mapping[str, Callable[..., Any]] = {
    "flatten": _flatten,
    "view": _reshape,
    "reshape": _reshape,
    "unflatten": _unflatten,
    "transpose": _transpose,
    "swapaxes": _transpose,
    "permute": _permute,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "split": _split,
    "chunk": _chunk,
    "unbind": _unbind,
    "cat": _cat,
    "concat": _cat,
    "stack": _stack,
    "__getitem__": _getitem,
    "roll": _roll,
    "new_zeros": _zeros,
    "pad": _pad,
    "mean": _reduced(torch.mean),
    "sum": _reduced(torch.sum),
    "amax": _reduced(torch.amax),
    "softmax": _along(torch.softmax),
    "log_softmax": _along(torch.log_softmax),
    "matmul": _matmul,
    "bmm": _matmul,
    "__matmul__": _matmul,
}
"""By the function's name, as a function, a method or an operator."""
