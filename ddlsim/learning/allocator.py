"""Keeps freed memory in the process.

Training small models frees and asks again for the same megabyte-sized tensors thousands of times a second. glibc hands
such blocks back to the kernel each time, which zeroes their pages anew at the next request
(benches/README.md says what that means for plain PyTorch code).
"""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Tells glibc to keep freed blocks up to 32 MiB; False where there is no glibc. Applies to the whole process."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(M_TRIM_THRESHOLD, 1 << 30) and libc.mallopt(M_MMAP_THRESHOLD, 1 << 25))
    except (OSError, AttributeError):
        return False
