"""Stacked tensors that torch's functions compute with: each function by the rule of its name.

torch hands every call with a stacked tensor among its arguments to `__torch_function__`, before autograd sees it. The
rules call plain functions of plain tensors, so gradients are those of plain autograd. Functions that rearrange values,
reduce dimensions or compute losses need no rule: torch.func.vmap applies them to each model's tensor.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ddlsim.learning.stacking import tensor
from ddlsim.learning.stacking.layers import RULES
from ddlsim.learning.stacking.tensor import NotStackable, StackedTensor, relate

_SIZES = "shape size dim ndim ndimension numel nelement element_size __len__ __hash__"
_KINDS = "dtype device layout is_floating_point is_complex is_cuda is_cpu is_sparse is_meta is_quantized is_nested"
OF_ONE = frozenset(f"{_SIZES} {_KINDS}".split())
"""Attributes and methods that concern one of the tensors."""
OF_ALL = frozenset({"requires_grad", "is_leaf"})
"""Attributes and methods that concern the tensor that holds all models."""
_ARRANGED = "flatten view reshape unflatten transpose swapaxes permute unsqueeze squeeze expand split chunk unbind"
_AS_IT_IS = "detach contiguous to float type_as"
VIEWS = frozenset(f"{_ARRANGED} {_AS_IT_IS} __getitem__".split())
"""Functions whose results may share memory with their arguments."""
_REDUCED = "mean sum amax softmax log_softmax matmul bmm __matmul__ layer_norm"
_LOSSES = "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy_with_logits"
BY_VMAP = frozenset(
    f"{_ARRANGED} embedding new_zeros cat concat stack __getitem__ roll pad dropout {_REDUCED} {_LOSSES}".split()
)
"""Functions that torch.func.vmap applies to each model's tensors; it refuses random numbers of the process."""


class Stacked(StackedTensor):
    """Stacked tensor whose functions follow the rules of this file.

    Raises:
        NotStackable: from calls of functions that have no rule here.
    """

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Iterable[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = func.__name__
        if name == "__get__":
            name = func.__self__.__name__
        if name in OF_ONE:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        if name in OF_ALL and len(args) == 1:
            return getattr(args[0].plain, name)
        if name in BY_VMAP:
            rule: Any = partial(_mapped, func)
        else:
            rule = RULES.get(name) or tensor.rule_of(name, func)
        if rule is None:
            raise NotStackable(f"no rule for {name}")
        found = rule(*args, **(kwargs or {}))
        if name in VIEWS and isinstance(args[0], StackedTensor):
            relate(args[0], found if isinstance(found, tuple) else (found,))
        return found

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        """Refuse calls that bypass the rules."""
        raise NotStackable(f"no rule for {func}")


def _mapped(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply a function to each model's tensors."""
    values, structure = pytree.tree_flatten((args, kwargs))
    stacked = [place for place, value in enumerate(values) if isinstance(value, StackedTensor)]

    def of_one(*rows: torch.Tensor) -> Any:
        own = [*values]
        for place, row in zip(stacked, rows, strict=True):
            own[place] = row
        own_args, own_kwargs = pytree.tree_unflatten(own, structure)
        return func(*own_args, **own_kwargs)

    found = torch.func.vmap(of_one)(*(values[place].rows for place in stacked))
    return pytree.tree_map(values[stacked[0]].like, found)
