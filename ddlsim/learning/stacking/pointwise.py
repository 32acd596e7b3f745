"""Functions that compute each value from the values at the same place, in whichever layout these have."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from ddlsim.learning.stacking.tensor import NotStackable, StackedTensor

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
"""Those that work in place, and what they compute."""


def rule_of(name: str, func: Any) -> Callable[..., Any] | None:
    """How a function is computed, or None if it is none of these. Those in place replace the values of a tensor."""
    if name in NAMES:
        return partial(_apply, func)
    plain = OPERATORS.get(name, name.removesuffix("_"))
    if plain not in NAMES:
        return None
    out_of_place = getattr(torch.Tensor, plain, None) or getattr(F, plain)
    return partial(_in_place, out_of_place)


def _in_place(out_of_place: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> StackedTensor:
    if not isinstance(x, StackedTensor):
        raise NotStackable("an operation in place on what all models share")
    return x.take_over(_apply(out_of_place, x, *args, **kwargs))


def _apply(func: Any, *args: Any, inplace: bool = False, **kwargs: Any) -> StackedTensor:
    every = [*args, *kwargs.values()]
    stacked = [each for each in every if isinstance(each, StackedTensor)]
    shared = [each for each in every if isinstance(each, torch.Tensor) and not isinstance(each, StackedTensor)]
    joined = _side_by_side(stacked, shared)
    dims = max(each.dim() for each in (*stacked, *shared))
    plain = partial(_plain, joined=joined, dims=dims)
    found = func(*map(plain, args), **{key: plain(each) for key, each in kwargs.items()})
    result = stacked[0].like(found, joined)
    first = args[0] if args else None
    return first.take_over(result) if inplace and isinstance(first, StackedTensor) else result


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
