"""Launches of Triton's kernels, whose first compilation uses several cores.

Triton compiles a kernel when it is launched with arguments of new types, one after the other. `compile_together` notes
what a computation launches and compiles all of it in threads; Triton's compiler releases Python's interpreter for most
of its time.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import torch

THREADS = 8

_noted: list[set[tuple]] = []
"""The noted launches while `compile_together` computes, else empty. Not of one thread: PyTorch computes gradients on a
GPU in threads of its own."""


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: int) -> None:
    """Launch a kernel of Triton, or note it."""
    if _noted:
        types = tuple(each.dtype if isinstance(each, torch.Tensor) else each for each in arguments)
        _noted[0].add((kernel, types, tuple(options.items())))
    else:
        kernel[grid](*arguments, **options)


def are_noted() -> bool:
    """Whether launches are noted instead, so that results in a forward pass must be computed in another way."""
    return bool(_noted)


def compile_together(compute: Callable[[], object]) -> None:
    """Compile the kernels that a computation launches; a failed one is compiled again at its launch.

    Args:
        compute: its errors are ignored; its gradients are arbitrary, since nothing is launched.
    """
    launches: set[tuple] = set()
    _noted.append(launches)
    try:
        with suppress(Exception):
            compute()
    finally:
        _noted.clear()
    pool = ThreadPoolExecutor(THREADS)
    try:
        with suppress(Exception):
            wait(
                [pool.submit(kernel.warmup, *types, grid=(1,), **dict(options)) for kernel, types, options in launches]
            )
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt waits for the kernels that are being compiled
