"""Control whether freed memory stays in the process, which determines the speed of code that makes new tensors.

glibc asks the system for every block above 32 MiB and gives it back when freed, in every process, so temporaries of
that size are zeroed by the kernel page by page at each call. Below it the answer depends on what a process freed
before: it keeps up to twice the largest block, and two temporaries may or may not fit.
"""

import contextlib
import ctypes
import functools
import resource
import sys
from collections.abc import Iterator

from ddlsim.learning.bank import M_TRIM_THRESHOLD, keep_freed_memory

M_MMAP_MAX, USUAL_MMAP_MAX = -4, 65_536
LARGEST_KEPT_BYTES = 32 * 2**20  # glibc's DEFAULT_MMAP_THRESHOLD_MAX; keep_freed_memory sets it
IS_MMAPPED = 2  # a flag in the word before every block of glibc's

_occupied: list[int] = []  # free blocks of the heap, too large for other purposes, between two uses of kept()


@contextlib.contextmanager
def kept() -> Iterator[bool]:
    """Keep freed memory of any size within the context; afterwards blocks over 32 MiB are new at each call.

    Some calls pass until enough memory is kept, because small blocks settle between the large ones: see faults.

    Yields `differs()`: whether the context changes anything, which needs glibc.
    """
    keep_freed_memory()
    libc = _glibc()
    if libc is None:
        yield False
        return
    while _occupied:
        libc.free(_occupied.pop())
    libc.mallopt(M_MMAP_MAX, 0)
    libc.mallopt(M_TRIM_THRESHOLD, -1)
    try:
        yield True
    finally:
        libc.mallopt(M_MMAP_MAX, USUAL_MMAP_MAX)
        keep_freed_memory()
        libc.malloc_trim(0)
        _occupy(libc)


def differs(block_bytes: int = LARGEST_KEPT_BYTES + 1) -> bool:
    """Whether kept() matters for blocks of this size: with glibc and above 32 MiB."""
    return block_bytes > LARGEST_KEPT_BYTES and _glibc() is not None


def faults() -> int:
    """Return the page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _occupy(libc: ctypes.CDLL) -> None:
    """Allocate the remaining large free blocks of the heap, because malloc would prefer them to new memory."""
    while True:
        block = libc.malloc(LARGEST_KEPT_BYTES + 1)
        if block is None:
            return
        if ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value & IS_MMAPPED:
            libc.free(block)
            return
        _occupied.append(block)


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
        libc.free.restype, libc.free.argtypes = None, [ctypes.c_void_p]
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
        libc.gnu_get_libc_version, libc.mallopt  # noqa: B018
    except (OSError, AttributeError):
        return None
    return libc
