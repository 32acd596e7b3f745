"""Parameter matrices in the form that kernels take: address, row stride and shape of float32 rows.

Small arrays are transferred between the host and a device without a wait of the host for the device. A copy from or
to pageable memory waits for the stream of the device; a copy from or to pinned memory does not. torch
keeps pinned blocks for reuse, and reuses one only after the copies with it have finished.
"""

import contextlib
import functools
import mmap
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ddlsim.foundation import native

FLOATS_PER_LINE = 16  # one 64-byte cache line
PAGE_FLOATS = 1024
HUGE_FROM_BYTES = 4 * 2**20  # two huge pages, at least one of which is within

Matrix = torch.Tensor | np.ndarray
Mixing = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Rows of a mixing matrix: offsets [R + 1], sources [E], weights [E] and targets [R], see merging.py: merge_rows."""
NAMES = {np.dtype(name): name for name in ("float32", "float64")}  # asking numpy for a name takes microseconds


def aligned_rows(num_rows: int, num_columns: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return zeros [num_rows, num_columns] float32 whose rows start on cache lines.

    The row stride is the columns rounded up to 16 floats, and 16 more if it would be a multiple of 4,096 bytes, since
    rows at that distance evict each other from the caches. The padding is zero and not part of the result. In host
    memory, large matrices request huge pages (kernels walk down columns, and with small pages every row is another
    entry of the address table) and take memory only as they are filled.

    Raises:
        TypeError: if numbers are not whole. ValueError: if they are below zero. MemoryError: if the memory is not
            available.
    """
    num_rows, num_columns = operator.index(num_rows), operator.index(num_columns)
    if num_rows < 0 or num_columns < 0:
        raise ValueError(f"rows and columns: expected at least 0, got {num_rows} and {num_columns}.")
    stride = padded_stride(num_columns)
    flat = _zeros(num_rows * stride + FLOATS_PER_LINE, torch.device(device))
    offset = (-flat.data_ptr() % (4 * FLOATS_PER_LINE)) // 4
    return flat.as_strided((num_rows, num_columns), (stride, 1), offset)


def _zeros(count: int, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(count, dtype=torch.float32, device=device)
    if 4 * count < HUGE_FROM_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.from_numpy(np.zeros(count, np.float32))  # torch's own zeros wait forever in a forked process
    try:
        pages = mmap.mmap(-1, 4 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no memory for {count:,} float32 values: {error}") from error
    with contextlib.suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.float32)


def padded_stride(num_columns: int) -> int:
    """The row stride, in floats, that `aligned_rows` gives to rows of that many columns."""
    stride = max(1, -(-num_columns // FLOATS_PER_LINE)) * FLOATS_PER_LINE
    return stride + FLOATS_PER_LINE if stride % PAGE_FLOATS == 0 else stride


class Rows(NamedTuple):
    """A checked matrix in the form passed to native code, and its device."""

    address: int
    stride: int  # floats (or doubles) from row to row
    num_rows: int
    num_columns: int
    device: torch.device | None  # None: host memory
    matrix: Any
    itemsize: int = 4

    @property
    def place(self) -> tuple[int, int]:
        """Address and row stride, as native functions take them."""
        return self.address, self.stride

    @property
    def span(self) -> tuple[int, int]:
        """Return the address of the first element, and the one after the last."""
        if not (self.num_rows and self.num_columns):
            return self.address, self.address
        return self.address, self.address + self.itemsize * ((self.num_rows - 1) * self.stride + self.num_columns)


def rows_of(matrix: Matrix, name: str, dtypes: Sequence[str] = ("float32",), written: bool = False) -> Rows:
    """Check that native code can read a matrix in place.

    Args:
        matrix: [N, P], a torch tensor (CPU or CUDA) or numpy array; the values of a row are contiguous, the rows follow
            each other at any distance.
        name: its name in errors.
        dtypes: accepted element types, in the machine's byte order.
        written: whether the kernel writes to it, so that it may not be read-only.

    Raises:
        TypeError: if it is neither a tensor nor an array, or has another element type. ValueError: for another layout,
            for a tensor that requires gradients, and for a read-only array to be written.
    """
    device: torch.device | None = None
    strides: Sequence[int] = ()
    address = 0
    if isinstance(matrix, torch.Tensor):
        dtype = "float32" if matrix.dtype is torch.float32 else str(matrix.dtype).removeprefix("torch.")
        device = None if matrix.is_cpu else matrix.device
        readable = not (matrix.requires_grad and torch.is_grad_enabled()) and not matrix.is_neg()
        if matrix.layout is torch.strided and (device is None or device.type == "cuda"):
            strides, address = matrix.stride(), matrix.data_ptr()
    elif type(matrix) is np.ndarray:
        dtype, size = NAMES.get(matrix.dtype) or str(matrix.dtype), matrix.itemsize
        readable = not written or matrix.flags.writeable
        if matrix.flags.aligned and not any(stride % size for stride in matrix.strides):
            strides, address = [stride // size for stride in matrix.strides], matrix.__array_interface__["data"][0]
    else:
        raise TypeError(f"{name}: expected a torch tensor or numpy array, got {type(matrix).__name__}. Convert it.")
    if dtype not in dtypes:
        raise TypeError(f"{name}: expected {' or '.join(dtypes)}, got {dtype}. Convert it.")
    if len(strides) == 2 and readable:
        (rows, columns), (stride, column_stride) = matrix.shape, strides
        if not rows or ((column_stride == 1 or columns < 2) and (stride >= columns or rows < 2)):
            return Rows(address, stride, rows, columns, device, matrix, 8 if dtype == "float64" else 4)
    expected = "a matrix [rows, columns] with contiguous rows that share no elements, without gradients"
    raise ValueError(f"{name}: expected {expected}, writable if it is written, got {list(matrix.shape)}. Pass a copy.")


def overlap(a: Rows, b: Rows) -> bool:
    """Whether two matrices may share elements; column ranges of one matrix may."""
    (first_a, stop_a), (first_b, stop_b) = a.span, b.span
    return a.device == b.device and first_a < stop_b and first_b < stop_a


def column_range(columns: tuple[int, int] | None, num_columns: int) -> tuple[int, int]:
    """Return the (start, stop) of a column range; None is all columns.

    Raises:
        TypeError: if they are not whole numbers. ValueError: if the range is not within the matrix.
    """
    start, stop = (0, num_columns) if columns is None else map(operator.index, columns)
    if not 0 <= start <= stop <= num_columns:
        raise ValueError(f"columns: expected (start, stop) within 0..{num_columns}, got ({start}, {stop}).")
    return start, stop


@functools.lru_cache(maxsize=32)
def first_numbers(count: int) -> np.ndarray:
    """0 .. count - 1 as int64: one array for all callers, so it must not be written."""
    return np.arange(count)


def as_longs(values: Matrix | Sequence[int], name: str, ndim: int = 1) -> np.ndarray:
    """Return row numbers, offsets or pairs as a contiguous int64 numpy array.

    Raises:
        TypeError: if they are not whole numbers. ValueError: if they have other dimensions.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name}: expected whole numbers of at most 64 bits, got {array.dtype}.")
    if array.ndim != ndim and array.size:
        raise ValueError(f"{name}: expected {'[E, 2]' if ndim == 2 else '[n]'}, got {list(array.shape)}.")
    return np.ascontiguousarray(array.reshape(-1) if array.ndim != ndim else array, dtype=np.int64)


def check_row_numbers(numbers: np.ndarray, num_rows: int, name: str) -> None:
    """Raise IndexError unless all row numbers are in [0, num_rows)."""
    native.extension().check_row_numbers(numbers, num_rows, name)


def num_threads() -> int:
    """Threads of one kernel call: as many as torch uses."""
    return torch.get_num_threads()


def uploaded(values: np.ndarray | torch.Tensor, device: torch.device) -> torch.Tensor:
    """The same values of the host on a device; on the CPU in the same memory."""
    host = torch.from_numpy(values) if isinstance(values, np.ndarray) else values
    if device.type != "cuda":
        return host.to(device)
    return host.pin_memory().to(device, non_blocking=True)


def downloaded(values: torch.Tensor) -> Callable[[], np.ndarray]:
    """Start copying values to the host; return a function that waits for them."""
    if values.device.type != "cuda":
        return values.numpy
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    host.copy_(values, non_blocking=True)
    over = torch.cuda.current_stream(values.device).record_event()

    def get() -> np.ndarray:
        over.synchronize()
        return host.numpy()

    return get
