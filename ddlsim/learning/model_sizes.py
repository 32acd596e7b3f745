"""Sizes of a model, measured by running it on zeros: operations of a training step, and latent features.

Algorithms may train extra parts in addition to a model's core and head; their size depends on the number of features.

The formulas of floating-point operations are from torch.utils.flop_counter: matrix products, convolutions and
attention; the rest is left out. They do not cover the fused kernels of recurrent layers and of attention, so the count
uses the plain ones, which do the same operations.
"""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ddlsim.devices.base import StepWork
from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.learning.architecture import Build, cannot_take, draw

MOST_VALUES = 50_000_000
"""Parameters up to which a model that only has a size in the run is computed; larger ones are counted without memory
(device `meta`), which takes torch some seconds to load.
"""


def count_step(
    build: Build, shape: Sequence[int], dtype: torch.dtype, batch_size: int, is_sequence: bool, size: int
) -> StepWork:
    """Count the operations of a training step of one architecture.

    Args:
        build: makes its module.
        shape: of one sample.
        dtype: of the samples.
        batch_size: samples per step.
        is_sequence: whether a sample is a sequence of tokens, each of which passes through the parameters.
        size: number of its parameters.
    Returns:
        The count, or the estimate of `StepWork.of_size` if the module cannot be counted (it raises, or has none of the
            counted operations).
    """
    device = "cpu" if size <= MOST_VALUES else "meta"
    try:
        with torch.device(device):
            (module,) = draw(build, 0)
            inputs = torch.zeros((batch_size, *shape), dtype=dtype)
        forward, backward = _count_operations(module.train(), inputs)
    except Exception:  # any error of a user's module for zeros; the run itself reports it
        forward, backward = 0, 0
    if not forward or not backward:
        return StepWork.of_size(size, batch_size * (math.prod(shape) if is_sequence else 1))
    return StepWork(float(forward), float(forward + backward))


class _Counter(TorchDispatchMode):
    """Counts as torch.utils.flop_counter.FlopCounterMode does, without torch.compile, which takes seconds to load."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils.flop_counter import flop_registry

        found = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=found)
        return found


def _count_operations(module: nn.Module, inputs: torch.Tensor) -> tuple[int, int]:
    """Operations of a forward and of a backward pass."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # on TF32, which the flags do not change
        plain = torch.backends.mkldnn.flags(enabled=False)
        with torch.enable_grad(), torch.random.fork_rng(devices=[]), plain, sdpa_kernel(SDPBackend.MATH):
            with _Counter() as forward:
                outputs = module(inputs)
            with _Counter() as backward:
                outputs.float().sum().backward()
    return forward.flops, backward.flops


def projection_head(latent: int, hidden: int) -> nn.Module:
    """Two linear layers with BatchNorm and ReLU between, latent -> hidden -> latent (MAPL's code: 512, 4096)."""
    return nn.Sequential(
        nn.Linear(latent, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True), nn.Linear(hidden, latent)
    )


class Prototypes(nn.Module):
    """One learnable vector per class.

    Args:
        num_classes: C.
        latent: D; values start uniform in +-1/sqrt(D), as a linear layer's weights.
    """

    def __init__(self, num_classes: int, latent: int):
        super().__init__()
        bound = 1 / math.sqrt(latent)
        self.vectors = nn.Parameter(torch.empty(num_classes, latent).uniform_(-bound, bound))


def latent_size(module: nn.Module, input_shape: Sequence[int], dtype: torch.dtype = torch.float32) -> int:
    """Number of features that a model's core hands to its head.

    Args:
        module: the model.
        input_shape: of one sample, e.g. (C, H, W).
        dtype: of the samples.

    Raises:
        ScenarioError: if they are not a vector.
    """
    device = next(module.parameters()).device
    with torch.no_grad():
        features = module.get_submodule("core").eval()(torch.zeros(1, *input_shape, device=device, dtype=dtype))
    if features.dim() != 2:
        text = f"the core's features are {list(features.shape[1:])}, but this algorithm needs a vector"
        raise ScenarioError(f"model: {text}. Choose a model with such features (gn_lenet, mlp, resnet18, ...).")
    return features.shape[1]


def latent_size_of(
    name: str, build: Callable[[], nn.Module], input_shape: Sequence[int], dtype: torch.dtype
) -> Callable[[], int]:
    """Return a function that computes a model's latent size; its first call builds the model and tries it on the CPU.

    Args:
        name: of the model, for messages.
        build: makes it.
        input_shape: of one sample, e.g. (C, H, W).
        dtype: of the samples.
    Returns:
        A function that raises ScenarioError if the model cannot take the samples, and raises as `latent_size` does.
    """

    @cache
    def latent() -> int:
        with torch.device("cpu"):
            (module,) = draw(build, 0)
            try:
                return latent_size(module, input_shape, dtype)
            except DdlsimError:
                raise
            except Exception as error:  # any error of a user's module for samples that it does not support
                raise cannot_take(name, input_shape, dtype, error) from error

    return latent


def with_extra_parts(
    build: Callable[[], nn.Module], make: Callable[[int], Mapping[str, nn.Module]], latent_size: Callable[[], int]
) -> Callable[[], nn.Module]:
    """Return a builder of the model with further parts in addition to core and head.

    Args:
        build: makes the model.
        make: latent size -> the parts by name.
        latent_size: of the model.
    """

    def extended() -> nn.Module:
        module, parts = build(), make(latent_size())
        for name, part in parts.items():
            setattr(module, name, part)
        setattr(module, "extra_parts", tuple(parts))  # noqa: B010  (nn.Module types its attributes as modules)
        return module

    return extended
