"""A module without marked core and head: the head is its last linear layer, the core all the rest.

If an algorithm does not separate core and head, a module that cannot be cut is all core.
"""

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.torch_state import forked_generators
from ddlsim.models.split import SplitModel

Build = Callable[[], nn.Module]
Behavior = tuple[list[torch.Tensor | None], dict[str, torch.Tensor] | None]
"""Outputs of a module for samples of several sizes, and gradients of its parameters."""


class WholeModel(nn.Module):
    """A module cut before its last linear layer, which is the head; the rest, with nothing in its place, is the core.

    Args:
        module: as it was built; it is changed.
        linear: the full name in it of the layer that becomes the head; empty: the module is that layer.
    """

    def __init__(self, module: nn.Module, linear: str):
        super().__init__()
        self.linear = linear
        self.head = module.get_submodule(linear)
        if linear:
            owner, _, name = linear.rpartition(".")
            above = module.get_submodule(owner)
            if type(above) is nn.Sequential and name == list(above._modules)[-1]:
                del above._modules[name]  # nothing in its place: a native plan knows no nn.Identity
            else:
                setattr(above, name, nn.Identity())
        self.core = module if linear else nn.Identity()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Outputs [n, ...] of inputs [n, ...]."""
        return self.head(self.core(inputs))

    def undone(self) -> nn.Module:
        """The module as it was built."""
        if not self.linear:
            return self.head
        owner, _, name = self.linear.rpartition(".")
        setattr(self.core.get_submodule(owner), name, self.head)
        return self.core

    def own_name(self, name: str) -> str:
        """Return a tensor's name in the module as built: core.0.weight -> 0.weight, head.bias -> fc.bias."""
        part, _, rest = name.partition(".")
        if part == "core":
            return rest
        return ".".join(filter(None, (self.linear, rest))) if part == "head" else name


class UncutModel(SplitModel):
    """A module that is all core; its head is nothing."""

    def __init__(self, module: nn.Module):
        super().__init__(module, nn.Identity())

    def own_name(self, name: str) -> str:
        return name.removeprefix("core.")


def refuse_lazy(module: nn.Module, name: str) -> None:
    """Raise ScenarioError if a parameter or buffer of a module has no shape yet (nn.LazyLinear and the like)."""
    for tensor, values in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(values):
            text = f"{tensor} of {name} has no shape yet: it is lazy"
            raise ScenarioError(f"model: {text}. Call the module once on a sample, or use a layer of known size.")


def with_core_and_head(
    build: Build,
    name: str,
    sample_shape: Sequence[int],
    dtype: torch.dtype,
    notify: Callable[[str], None],
    may_be_whole: bool = False,
) -> Build:
    """Return a builder of modules with submodules `core` and `head`, from a builder of any modules.

    The first module is tried with one sample: its head applied to its core must compute the same as the whole module.

    Args:
        build: makes a module.
        name: of the model, for messages.
        sample_shape: of one sample.
        dtype: of samples.
        notify: called with one sentence on whether modules are cut.
        may_be_whole: whether a module that cannot be cut is all core; if false, it is an error.
    Returns:
        A function that raises ScenarioError if `build` makes no module, or one that cannot be cut.
    """
    tried = is_whole = has_logits = False

    def cut() -> nn.Module:
        nonlocal tried, is_whole, has_logits
        module = build()
        if not isinstance(module, nn.Module):
            raise ScenarioError(f"model: build of {name} returns {kind_of(module)}, expected a torch.nn.Module.")
        refuse_lazy(module, name)
        if not tried:
            module.float()  # as in training: in another precision it would not take the sample
        if _has_parts(module):
            if not tried:
                _check_forward(module, name, sample_shape, dtype)
            tried = True
            return module
        if not tried:
            outputs = _outputs(module, sample_shape, dtype)
            has_logits = logits_of(outputs) is not outputs
        if has_logits:
            module.register_forward_hook(lambda _module, _inputs, outputs: logits_of(outputs))
        if is_whole:
            return UncutModel(module)
        linears = [key for key, each in module.named_modules() if isinstance(each, nn.Linear)]
        linear = linears[-1] if linears else None
        if tried and linear is not None:
            return WholeModel(module, linear)
        whole = _first_cut(module, name, linear, sample_shape, dtype)
        if whole is None and not may_be_whole:
            raise _not_cut(module, name, linear)
        tried, is_whole = True, whole is None
        notify(f"model: {name} has no submodules core and head{_outcome(linear, whole)}.")
        return UncutModel(module) if whole is None else whole

    return cut


def logits_of(outputs: Any) -> Any:
    """Return the logits in the outputs of a model of Hugging Face; other outputs unchanged."""
    return getattr(outputs, "logits", outputs)


def _first_cut(
    module: nn.Module, name: str, linear: str | None, shape: Sequence[int], dtype: torch.dtype
) -> WholeModel | None:
    """Cut a module before a layer; return None, and leave the module unchanged, if head(core(x)) differs from its
    output.

    Args:
        module: as it was built.
        name: of the model, for messages.
        linear: name of the layer, or None if there is none.
        shape: of a sample.
        dtype: of samples.
    """
    expected = _behavior(module, shape, dtype)
    if isinstance(expected[0][0], tuple | list | dict):
        text = f"forward of {name} returns a {type(expected[0][0]).__name__}, expected one tensor"
        raise ScenarioError(f"model: {text}. Return the input of the loss, or join the values for a task.")
    if linear is None:
        return None
    if not _same_gradients(expected[1], _gradients(module, shape, dtype)):  # its random numbers are not torch's
        expected = expected[0], None
    whole = WholeModel(module, linear)
    if _same_behavior(expected, _behavior(whole, shape, dtype), whole.own_name):
        return whole
    whole.undone()
    return None


def _behavior(module: nn.Module, shape: Sequence[int], dtype: torch.dtype) -> Behavior:
    """Return the outputs of a module for samples of several sizes, and its gradients."""
    return [_outputs(module, shape, dtype, size) for size in _SIZES], _gradients(module, shape, dtype)


def _same_behavior(expected: Behavior, found: Behavior, own_name: Callable[[str], str] = str) -> bool:
    """Whether outputs and gradients of a module and its parts are equal up to rounding."""
    return all(map(_same, expected[0], found[0])) and _same_gradients(expected[1], found[1], own_name)


def _outcome(linear: str | None, whole: WholeModel | None) -> str:
    """Return a description of how a module was cut."""
    if whole is None:
        return f" and {_why_uncut(linear)}: all of it is the core"
    shown = f"{linear!r} ({whole.head.in_features} -> {whole.head.out_features})" if linear else "it is one"
    return f": its head is its last linear layer, {shown}"


def _why_uncut(linear: str | None) -> str:
    if linear is None:
        return "has no nn.Linear that could be the head"
    return f"cannot be cut before {linear!r}, its last linear layer: head(core(x)) or its gradients differ"


def _not_cut(module: nn.Module, name: str, linear: str | None) -> ScenarioError:
    place = own_code.where(type(module))
    is_torch = type(module).__module__.startswith("torch.")
    shown = f"{type(module).__name__}{f' ({place})' if place and not is_torch else ''}"
    return ScenarioError(
        f"model: {name} makes a {shown} without submodules core and head, which {_why_uncut(linear)}. Make the output "
        "layer last, or return SplitModel(core, head) (ddlsim.models.split), if need be with an nn.Identity."
    )


def _has_parts(module: nn.Module) -> bool:
    return all(isinstance(getattr(module, part, None), nn.Module) for part in ("core", "head"))


_SAMPLES = 4
"""Number of samples of a trial: with one alone, a small core's features may all be positive, and a ReLU after them
would go unnoticed."""
_SIZES = (1.0, 10.0, 1000.0)
"""Scales of the samples' values, of which some exceed the bound of a function that cuts values off."""


def _check_forward(module: nn.Module, name: str, shape: Sequence[int], dtype: torch.dtype) -> None:
    """Raise ScenarioError if the forward of a module with core and head differs from head(core(x))."""
    if not isinstance(_outputs(module, shape, dtype), torch.Tensor):
        return  # its error is reported where architectures are read
    core, head = (module.get_submodule(part) for part in ("core", "head"))
    zeros = [each for each in module.parameters() if each.dim() > 1 and not each.any()]
    with torch.no_grad():
        for each in zeros:  # a head that starts with zeros would hide the layers before it
            each.fill_(0.1)
        parts = nn.Sequential(OrderedDict(core=core, head=head))
        same = _same_behavior(_behavior(module, shape, dtype), _behavior(parts, shape, dtype))
        for each in zeros:
            each.zero_()
    if not same:
        raise ScenarioError(
            f"model: the forward of {name} computes something else than head(core(x)), or other gradients. Move all "
            "that forward does into core or head, or rename them, and the last linear layer becomes the head."
        )


def _outputs(module: nn.Module, shape: Sequence[int], dtype: torch.dtype, size: float = 1.0) -> torch.Tensor | None:
    """Return the outputs of a module in eval mode for a few samples; None if it cannot take them, or has no values
    (device meta).

    Raises:
        ScenarioError: if its forward returns nothing.
    """
    if _has_no_values(module):
        return None
    training = module.training
    try:
        with torch.no_grad(), forked_generators():
            samples = _samples(shape, dtype)
            found = module.eval()(samples * size if dtype.is_floating_point else samples)
    except Exception:  # the module's error is reported where architectures are read
        return None
    finally:
        module.train(training)
    if found is None:
        place = own_code.where(type(module)) or "model"
        raise ScenarioError(f"{place}: forward of {type(module).__name__}: expected a tensor, got nothing (None).")
    return found


def _gradients(module: nn.Module, shape: Sequence[int], dtype: torch.dtype) -> dict[str, torch.Tensor] | None:
    """Parameter -> its gradient in training, of a weighted sum of the outputs for a few samples; None as `_outputs`."""
    if _has_no_values(module):
        return None
    try:
        with torch.enable_grad(), forked_generators(0):
            copied = copy.deepcopy(module).train()
            outputs = copied(_samples(shape, dtype))
            if outputs.requires_grad:
                (outputs * torch.linspace(0.5, 1.5, outputs.numel()).view(outputs.shape)).sum().backward()
    except Exception:
        return None
    return {key: each.grad for key, each in copied.named_parameters() if each.grad is not None}


def _same_gradients(
    expected: dict[str, torch.Tensor] | None,
    found: dict[str, torch.Tensor] | None,
    own_name: Callable[[str], str] = str,
) -> bool:
    """Whether gradients are equal up to rounding, relative to the largest of each parameter."""
    if expected is None or found is None:
        return True
    found = {own_name(key): each for key, each in found.items()}
    return expected.keys() == found.keys() and all(
        torch.allclose(each, found[key], atol=1e-3 * float(each.abs().max()) + 1e-6, rtol=1e-2, equal_nan=True)
        for key, each in expected.items()
    )


def _has_no_values(module: nn.Module) -> bool:
    """Whether a module is on the device meta, or on one where it is not tried."""
    return any(each.device.type != "cpu" for each in module.parameters())


def _samples(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return samples [_SAMPLES, ...] to try a module on."""
    found = torch.zeros(_SAMPLES, *shape, dtype=dtype)
    if not dtype.is_floating_point:
        return found
    values = _SAMPLES * math.prod(shape)
    return torch.linspace(-2 * _SAMPLES, 2 * _SAMPLES, 3 * values)[:values].sin().reshape(found.shape).to(dtype)


def _same(expected: object, found: object) -> bool:
    if not isinstance(expected, torch.Tensor):
        return True  # its error is reported where architectures are read
    return (
        isinstance(found, torch.Tensor)
        and expected.shape == found.shape
        and torch.allclose(expected, found, atol=1e-5, rtol=1e-4, equal_nan=True)
    )
