"""Stacked tensors that torch's functions compute with: each function, such as a layer, by the rule of its name.

Layers of many models are one call each: grouped convolutions, batched products, norms over more groups. All are exact:
rows never mix, and each model gets the same numbers as alone, up to the order of sums.

torch hands every call with a stacked tensor among its arguments to `__torch_function__`, before autograd sees it. The
rules call plain functions of plain tensors, so gradients are plain autograd's. Functions that rearrange values,
reduce dimensions or compute losses need no rule: torch.func.vmap applies them to each model's tensor.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, TypeGuard

import torch
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from ddlsim.kernels.grouped_conv import stacked_conv2d
from ddlsim.kernels.norm_relu_pool import Windows, norm_relu_pool, normalizes, pooled_sides, windows_of
from ddlsim.learning.stacking import tensor
from ddlsim.learning.stacking.tensor import NotStackable, StackedTensor, batched, expand_rows, first_batched, relate

Optional = torch.Tensor | None


def _per_channel(value: Optional, count: int) -> Optional:
    """The values of a layer's weight or bias for every model's channels, [N * C]."""
    return None if value is None else expand_rows(value, count).flatten()


def _conv(func: Callable[..., torch.Tensor]) -> Callable[..., StackedTensor]:
    def conv(
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: Optional = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> StackedTensor:
        first = first_batched(x, weight, bias)
        if x.dim() != weight.dim():
            raise NotStackable("a convolution of a single sample")
        if not isinstance(weight, StackedTensor) and not isinstance(bias, StackedTensor):  # frozen, the same for all
            assert isinstance(x, StackedTensor), "the only argument that is left"
            found = func(x.rows.flatten(0, 1), weight, bias, stride, padding, dilation, groups)
            return x.like(found.unflatten(0, (x.count, -1)))
        kernels = expand_rows(weight, first.count).flatten(0, 1)
        biases = _per_channel(bias, first.count)
        if isinstance(x, StackedTensor):
            if func is F.conv2d and groups == 1:
                found = stacked_conv2d(x.channels, kernels, biases, x.count, stride, padding, dilation)
                return x.like(found, joined=True)
            images, groups = x.channels, groups * x.count
        elif groups == 1:  # all models see the same images: one convolution to N times as many channels
            images = x
        else:
            images, groups = x.repeat(1, first.count, *[1] * (x.dim() - 2)), groups * first.count
        return first.like(func(images, kernels, biases, stride, padding, dilation, groups), joined=True)

    return conv


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: Optional = None) -> StackedTensor:
    first = first_batched(x, weight, bias)
    if not isinstance(weight, StackedTensor) and not isinstance(bias, StackedTensor):
        assert isinstance(x, StackedTensor), "the only argument that is left"
        return x.like(F.linear(x.rows, weight, bias))
    count, matrices = first.count, expand_rows(weight, first.count)
    if not isinstance(x, StackedTensor):
        biases = _per_channel(bias, count)
        found = F.linear(x, matrices.flatten(0, 1), biases)
        return first.like(found.unflatten(-1, (count, -1)).movedim(-2, 0))
    rows = x.rows
    if rows.dim() == 2:
        raise NotStackable("a linear layer of a single sample")
    samples, turned = rows.flatten(1, -2), matrices.transpose(1, 2)
    if bias is None:
        found = torch.bmm(samples, turned)
    else:
        found = torch.baddbmm(expand_rows(bias, count).unsqueeze(1), samples, turned)
    return x.like(found.unflatten(1, rows.shape[1:-1]))


def _group_norm(
    x: torch.Tensor, num_groups: int, weight: Optional = None, bias: Optional = None, eps: float = 1e-5
) -> StackedTensor:
    images = _of_every_model(x, weight, bias)
    count = images.count
    factor, shift = (_per_channel(each, count) for each in (weight, bias))
    values, groups = images.channels, num_groups * count
    if normalizes(values, factor, shift, groups, count):
        return _normalized((values, factor, shift, groups, eps), count)
    return images.like(F.group_norm(values, groups, factor, shift, eps), joined=True)


def _batch_norm(
    x: torch.Tensor,
    running_mean: Optional,
    running_var: Optional,
    weight: Optional = None,
    bias: Optional = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> StackedTensor:
    images = _of_every_model(x, running_mean, running_var, weight, bias)
    count = images.count
    mean, variance = (_per_channel(each, count) for each in (running_mean, running_var))
    if training:  # changes them in place
        mean, variance = (None if each is None else each.clone() for each in (mean, variance))
    factor, shift = (_per_channel(each, count) for each in (weight, bias))
    found = F.batch_norm(images.channels, mean, variance, factor, shift, training, momentum, eps)
    for old, new in ((running_mean, mean), (running_var, variance)):
        if training and new is not None:
            if not isinstance(old, StackedTensor):
                raise NotStackable("statistics that all models would share")
            old.assign_(old.like(new.view(count, -1)))
    return images.like(found, joined=True)


def _of_every_model(x: torch.Tensor, *others: Optional) -> StackedTensor:
    """Images, of every model its own where all see the same."""
    if isinstance(x, StackedTensor):
        return x
    first = first_batched(*others)
    return first.like(x.expand(first.count, *x.shape))


def _pool(func: Callable[..., torch.Tensor]) -> Callable[..., StackedTensor]:
    def pool(x: StackedTensor, *args: Any, **kwargs: Any) -> StackedTensor:
        images, again = batched(x)
        return again(func(images, *args, **kwargs))

    return pool


def _max_pool2d(x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, *args: Any, **kwargs: Any) -> Any:
    if _waits(x) and not (args or x.windows or kwargs.get("ceil_mode")) and kwargs.get("dilation", 1) == 1:
        windows = windows_of(x.shape[2:], kernel_size, kernel_size if stride is None else stride, padding)
        if windows:
            return _normalized(x.given, x.count, windows)
    return _pool(F.max_pool2d)(x, kernel_size, stride, padding, *args, **kwargs)


def _relu(*args: Any, **kwargs: Any) -> StackedTensor:
    if args and _waits(x := args[0]) and x.windows and not kwargs.get("inplace"):
        return x.like(norm_relu_pool(*(*x.given, x.windows)), joined=True)
    return tensor.apply(F.relu, *args, **kwargs)


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **kwargs: Any) -> StackedTensor:
    if any(kwargs.get(name) for name in ("dropout_p", "enable_gqa")) or kwargs.get("attn_mask") is not None:
        raise NotStackable("attention with dropout, with groups, or with a mask")
    first = first_batched(query, key, value)
    queries, keys, values = (expand_rows(each, first.count).flatten(0, 1) for each in (query, key, value))
    found = F.scaled_dot_product_attention(queries, keys, values, **kwargs)
    return first.like(found.unflatten(0, (first.count, -1)))


def _cross_entropy(
    outputs: torch.Tensor, labels: torch.Tensor, ignore_index: int = -100, reduction: str = "mean", **kwargs: Any
) -> StackedTensor:
    first = first_batched(outputs, labels)
    if outputs.dim() < 2 or kwargs.get("weight") is not None or labels.is_floating_point():
        raise NotStackable("a cross-entropy of a single sample, with weights, or of probabilities")
    rows, classes = (expand_rows(each, first.count) for each in (outputs, labels))
    kwargs |= {"ignore_index": ignore_index, "reduction": "none"}
    losses = F.cross_entropy(rows.flatten(0, 1), classes.flatten(0, 1), **kwargs).unflatten(0, (first.count, -1))
    if reduction == "none":
        return first.like(losses)
    sums = losses.flatten(1).sum(dim=1)
    return first.like(sums / (classes != ignore_index).flatten(1).sum(dim=1) if reduction == "mean" else sums)


POOLS = ("max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool")

RULES: Mapping[str, Callable[..., Any]] = {
    **{f"conv{dims}d": _conv(getattr(F, f"conv{dims}d")) for dims in (1, 2, 3)},
    **{f"{name}{dims}d": _pool(getattr(F, f"{name}{dims}d")) for name in POOLS for dims in (1, 2, 3)},
    "linear": _linear,
    "group_norm": _group_norm,
    "max_pool2d": _max_pool2d,
    "relu": _relu,
    "batch_norm": _batch_norm,
    "scaled_dot_product_attention": _attention,
    "cross_entropy": _cross_entropy,
}
"""By the name of the function of torch.nn.functional that a module calls."""


_SIZES = "shape size dim ndim ndimension numel nelement element_size __len__ __hash__"
_KINDS = "dtype device layout is_floating_point is_complex is_cuda is_cpu is_sparse is_meta is_quantized is_nested"
OF_ONE = frozenset(f"{_SIZES} {_KINDS}".split())
"""Attributes and methods that concern one of the tensors."""
OF_ALL = frozenset({"requires_grad", "is_leaf"})
"""Attributes and methods that concern the tensor that holds all models."""
_ARRANGED = "flatten view reshape unflatten transpose swapaxes permute unsqueeze squeeze expand split chunk unbind T"
_AS_IT_IS = "detach contiguous to float type_as"
VIEWS = frozenset(f"{_ARRANGED} {_AS_IT_IS} __getitem__".split())
"""Functions whose results may share memory with their arguments."""
_REDUCED = "mean sum amax any softmax log_softmax logsumexp normalize matmul bmm __matmul__ layer_norm"
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


class Normalized(Stacked):
    """Images after group normalization and perhaps max pooling, which are computed when an operation reads them.

    If max pooling and then ReLU are the only ones that read them, one kernel computes all three.
    """

    given: Any
    """Images of all models, scales, shifts, groups and eps."""
    windows: Windows | None
    graded: bool
    """Whether gradients were enabled."""

    @cached_property
    def plain(self) -> torch.Tensor:  # type: ignore[override]
        """The values."""
        images, scales, shifts, groups, eps = self.given
        with torch.set_grad_enabled(self.graded):
            found = F.group_norm(images.float(), groups, scales, shifts, eps)
            return F.max_pool2d(found, *self.windows) if self.windows else found


def _normalized(given: Any, count: int, windows: Windows | None = None) -> Normalized:
    """Return images of N models that are not computed yet."""
    images, sides = given[0], given[0].shape[2:]
    shape = *images.shape[:2], *(pooled_sides(sides, windows) if windows else sides)
    found = Normalized(images.new_empty((), dtype=torch.float32).expand(shape), count, joined=True)
    del found.plain
    found.given, found.windows, found.graded = given, windows, torch.is_grad_enabled()
    return found


def _waits(x: object) -> TypeGuard[Normalized]:
    """Whether images are not computed yet, and can be computed together with the next operation."""
    return isinstance(x, Normalized) and "plain" not in vars(x) and x.graded == torch.is_grad_enabled()


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
