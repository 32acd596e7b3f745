"""Parameter matrices as the kernels see them: address, row stride and shape of float32 rows."""

import contextlib
import functools
import mmap
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from ddlsim import native

FLOATS_PER_LINE = 16  # one 64-byte cache line
PAGE_FLOATS = 1024
HUGE_FROM_BYTES = 4 * 2**20  # two huge pages, at least one of which lies within

Matrix = torch.Tensor | np.ndarray


def aligned_rows(num_rows: int, num_columns: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Zeros [num_rows, num_columns] float32 whose rows start on cache lines.

    The row stride is the columns rounded up to 16 floats, and 16 more where it would be a multiple of 4,096 bytes,
    since rows that far apart evict each other from the caches. The padding is zero and no part of the result. In host
    memory, large matrices ask for huge pages (kernels walk down columns, and with small pages every row is another
    entry of the address table) and take memory only as they are filled.
    """
    stride = padded_stride(num_columns)
    flat = _zeros(num_rows * stride + FLOATS_PER_LINE, torch.device(device))
    offset = (-flat.data_ptr() % (4 * FLOATS_PER_LINE)) // 4
    return flat[offset : offset + num_rows * stride].view(num_rows, stride)[:, :num_columns]


def _zeros(count: int, device: torch.device) -> torch.Tensor:
    if device.type != "cpu" or 4 * count < HUGE_FROM_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(count, dtype=torch.float32, device=device)
    pages = mmap.mmap(-1, 4 * count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.float32)


def padded_stride(num_columns: int) -> int:
    """The row stride, in floats, that `aligned_rows` gives to rows of that many columns."""
    stride = max(1, -(-num_columns // FLOATS_PER_LINE)) * FLOATS_PER_LINE
    return stride + FLOATS_PER_LINE if stride % PAGE_FLOATS == 0 else stride


class Rows(NamedTuple):
    """A checked matrix: what is handed to native code, and where it lives."""

    address: int
    stride: int  # floats (or doubles) from row to row
    num_rows: int
    num_columns: int
    device: torch.device | None  # None: host memory
    matrix: Matrix

    @property
    def stop_address(self) -> int:
        """The address behind the last float32."""
        return self.address + 4 * (max(self.num_rows - 1, 0) * self.stride + self.num_columns)


def rows_of(matrix: Matrix, name: str, dtypes: Sequence[str] = ("float32",)) -> Rows:
    """Checks that native code can read a matrix where it lies.

    Args:
        matrix: [N, P], torch (CPU or CUDA) or numpy, columns contiguous, any row stride.
        name: what to call it in errors.
        dtypes: allowed element types.

    Raises:
        TypeError: neither torch nor numpy, or another element type.
        ValueError: not two-dimensional, columns not contiguous, or a tensor that wants gradients.
    """
    if isinstance(matrix, torch.Tensor):
        dtype = "float32" if matrix.dtype is torch.float32 else str(matrix.dtype).removeprefix("torch.")
        strides = matrix.stride()
        address = matrix.data_ptr()
        device = None if matrix.is_cpu else matrix.device
        if matrix.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires gradients, which this operation does not give: pass {name}.detach()")
    elif isinstance(matrix, np.ndarray):
        dtype = matrix.dtype.name
        strides = tuple(stride // matrix.itemsize for stride in matrix.strides)
        address = matrix.__array_interface__["data"][0]
        device = None
    else:
        raise TypeError(f"{name} must be a torch tensor or a numpy array, not {type(matrix).__name__}")
    if dtype not in dtypes:
        raise TypeError(f"{name} must be {' or '.join(dtypes)}, not {dtype}")
    if len(strides) != 2:
        raise ValueError(f"{name} must be a matrix [rows, columns], not of shape {tuple(matrix.shape)}")
    num_rows, num_columns = matrix.shape
    if num_columns > 1 and strides[1] != 1:
        raise ValueError(f"{name} must have contiguous columns: pass {name}.contiguous() or a copy")
    return Rows(address, strides[0], num_rows, num_columns, device, matrix)


def column_range(columns: tuple[int, int] | slice | None, num_columns: int) -> tuple[int, int]:
    """The (start, stop) of a column range; None is all of them.

    Raises:
        ValueError: it does not lie within the matrix, or it is a slice with a step.
    """
    if columns is None:
        return 0, num_columns
    if isinstance(columns, slice):
        start, stop, step = columns.indices(num_columns)
        if step != 1:
            raise ValueError(f"columns must be contiguous, not every {step}")
        return start, max(start, stop)
    start, stop = columns
    if not 0 <= start <= stop <= num_columns:
        raise ValueError(f"columns ({start}, {stop}) are not within 0..{num_columns}")
    return int(start), int(stop)


@functools.lru_cache(maxsize=32)
def first_numbers(count: int) -> np.ndarray:
    """0 .. count - 1 as int64: one array for all who ask, so nobody may write it."""
    return np.arange(count)


def as_longs(values: Matrix | Sequence[int]) -> np.ndarray:
    """Row numbers or offsets as a contiguous int64 numpy array."""
    if isinstance(values, torch.Tensor):
        values = values.cpu().numpy()
    return np.ascontiguousarray(values, dtype=np.int64)


def check_row_numbers(numbers: np.ndarray, num_rows: int, name: str) -> None:
    """Raises IndexError unless all row numbers lie in [0, num_rows)."""
    native.extension().check_row_numbers(numbers, num_rows, name)


def num_threads() -> int:
    """Threads of one kernel call: as many as torch uses."""
    return torch.get_num_threads()
