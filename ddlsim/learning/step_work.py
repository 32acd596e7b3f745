"""Floating-point operations of a training step, counted by torch in one step on zeros.

The formulas are those of torch.utils.flop_counter: matrix products, convolutions and attention; the rest is left out.
They do not cover the fused kernels of recurrent layers and of attention, so the count uses the plain ones, which do the
same operations.
"""

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from ddlsim.devices.base import StepWork
from ddlsim.learning.architecture import draw

if TYPE_CHECKING:
    from ddlsim.learning.architecture import Build

MOST_VALUES = 50_000_000
"""Parameters up to which a model that only has a size in the run is computed; larger ones are counted without memory
(device `meta`), which takes torch some seconds to load.
"""


def count_step(
    build: "Build", shape: Sequence[int], dtype: torch.dtype, batch_size: int, is_sequence: bool, size: int
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
        forward, backward = _counted(module.train(), inputs)
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


def _counted(module: nn.Module, inputs: torch.Tensor) -> tuple[int, int]:
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
