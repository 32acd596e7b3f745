"""State of torch that all code of a process shares: generators, defaults and threads."""

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ddlsim.foundation.errors import DdlsimError

_drawing = threading.RLock()
_FORKED_WITHOUT_EXEC = 0x40
"""Linux's PF_FORKNOEXEC, a flag in /proc/self/stat: the process was forked and still runs its parent's program."""


def _is_a_fork() -> bool:
    """Whether the process is a fork of one that may have used torch, even if only the fork imported ddlsim."""
    try:
        flags = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[6])
    except (OSError, ValueError, IndexError):
        return multiprocessing.parent_process() is not None and multiprocessing.get_start_method(True) != "spawn"
    return bool(flags & _FORKED_WITHOUT_EXEC)


_forked = _is_a_fork()


def _after_fork() -> None:
    global _drawing, _forked
    _drawing, _forked = threading.RLock(), True


os.register_at_fork(after_in_child=_after_fork)


def one_thread_if_forked() -> None:
    """In a forked process, use one thread for torch's operators: OpenMP's other threads exist only in the parent."""
    global _forked
    if _forked:
        torch.set_num_threads(1)
        _forked = False


@contextmanager
def forked_generators(seed: int | None = None, devices: Sequence[torch.device] = ()) -> Iterator[None]:
    """Restore torch's generators afterwards, and let one thread of the process at a time draw from them.

    Args:
        seed: of the generators within the context; None: they continue.
        devices: CUDA devices whose generators are included. `torch.manual_seed` would seed all devices.
    """
    one_thread_if_forked()
    with _drawing, torch.random.fork_rng(devices=list(devices)):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
            if devices:
                torch.cuda.manual_seed(seed)
        yield


def defaults() -> dict[str, Any]:
    """Return torch's modes and defaults in this thread."""
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "gradient mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
    }


@contextmanager
def same_defaults(code: str, before: dict[str, Any] | None = None) -> Iterator[None]:
    """Raise DdlsimError if torch's modes and defaults differ after the context, because what follows would too.

    Args:
        code: name of the code within the context, for the error's text.
        before: the required values; None: the current ones.
    """
    before = defaults() if before is None else before
    try:
        yield
    finally:
        for name, found in defaults().items():
            if found != before[name]:
                raise DdlsimError(
                    f"{code} changed torch's {name} from {before[name]} to {found}, which would change the results of "
                    "the run. Restore it before returning, or pass dtype= and device= to the calls that need them."
                )
