"""Parameter matrices in the form that kernels take: address, row stride and shape of float32 rows."""

import contextlib
import functools
import mmap
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ddlsim.foundation import native

FLOATS_PER_LINE = 16  # one 64-byte cache line
PAGE_FLOATS = 1024
HUGE_FROM_BYTES = 4 * 2**20  # two huge pages, at least one of which is within

Matrix = torch.Tensor | np.ndarray
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
        raise ValueError(f"rows and columns must be at least 0, not {num_rows} and {num_columns}")
    stride = padded_stride(num_columns)
    flat = _zeros(num_rows * stride + FLOATS_PER_LINE, torch.device(device))
    offset = (-flat.data_ptr() % (4 * FLOATS_PER_LINE)) // 4
    return flat.as_strided((num_rows, num_columns), (stride, 1), offset)


def _zeros(count: int, device: torch.device) -> torch.Tensor:
    if device.type != "cpu":
        return torch.zeros(count, dtype=torch.float32, device=device)
    if 4 * count < HUGE_FROM_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.from_numpy(np.zeros(count, np.float32))  # torch's own zeros wait for ever in a forked process
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
    matrix: Matrix
    itemsize: int = 4

    @property
    def span(self) -> tuple[int, int]:
        """Return the address of the first element, and the one after the last; rows may run backwards."""
        if not (self.num_rows and self.num_columns):
            return self.address, self.address
        last = (self.num_rows - 1) * self.stride
        first, stop = min(0, last), max(0, last) + self.num_columns
        return self.address + self.itemsize * first, self.address + self.itemsize * stop


def rows_of(matrix: Matrix, name: str, dtypes: Sequence[str] = ("float32",), written: bool = False) -> Rows:
    """Check that native code can read a matrix in place.

    Args:
        matrix: [N, P], torch (CPU or CUDA) or numpy, columns contiguous, any row stride.
        name: its name in errors.
        dtypes: allowed element types, in the machine's byte order.
        written: whether it is written to: no row may share elements with another, and nothing be read-only.

    Raises:
        TypeError: if it is neither torch nor numpy, has no memory of its own, is masked, or has another element type.
        ValueError: if it is not two-dimensional, its columns are not contiguous, it is a tensor that requires
            gradients, or it is read-only but `written`.
    """
    if isinstance(matrix, torch.Tensor):
        dtype, strides, address, device = _torch_layout(matrix, name)
    elif isinstance(matrix, np.ndarray):
        dtype, strides, address = _numpy_layout(matrix, name)
        device = None
        if written and not matrix.flags.writeable:
            raise ValueError(f"{name} is read-only: pass a copy")
    else:
        raise TypeError(f"{name} must be a torch tensor or a numpy array, not {type(matrix).__name__}")
    if dtype not in dtypes:
        raise TypeError(f"{name} must be {' or '.join(dtypes)}, not {dtype}")
    if len(strides) != 2:
        raise ValueError(f"{name} must be a matrix [rows, columns], not of shape {tuple(matrix.shape)}")
    num_rows, num_columns = matrix.shape
    if num_columns > 1 and strides[1] != 1 and num_rows:
        raise ValueError(f"{name} must have contiguous columns: pass {name}.contiguous() or a copy")
    if written and num_rows > 1 and abs(strides[0]) < num_columns:
        raise ValueError(f"{name} has rows that share elements (expanded or broadcast?): pass a copy")
    return Rows(address, strides[0], num_rows, num_columns, device, matrix, 8 if dtype == "float64" else 4)


def _torch_layout(matrix: torch.Tensor, name: str) -> tuple[str, tuple[int, ...], int, torch.device | None]:
    """Element type, strides in elements, address and device of a tensor."""
    device = None if matrix.is_cpu else matrix.device
    if matrix.layout is not torch.strided or not (device is None or device.type == "cuda"):
        kind = device if device is not None else matrix.layout
        raise TypeError(f"{name} must be a dense tensor on the CPU or on CUDA, not {kind}")
    if matrix.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires gradients, which this operation does not give: pass {name}.detach()")
    if matrix.is_neg():
        raise TypeError(f"{name} is a negated view: pass {name}.resolve_neg()")
    dtype = "float32" if matrix.dtype is torch.float32 else str(matrix.dtype).removeprefix("torch.")
    try:
        return dtype, matrix.stride(), matrix.data_ptr(), device
    except RuntimeError as error:  # under vmap and other transforms, fake tensors
        raise TypeError(f"{name} has no memory that a kernel could read: {error}") from error


def _numpy_layout(matrix: np.ndarray, name: str) -> tuple[str, tuple[int, ...], int]:
    """Element type, strides in elements and address of an array."""
    refuse_mask(matrix, name)
    dtype, size = matrix.dtype, matrix.itemsize
    if not dtype.isnative:
        cure = f"pass {name}.astype({dtype.name!r})"
        raise TypeError(f"{name} must be in the machine's byte order, not {dtype.str}: {cure}")
    if not matrix.flags.aligned or any(stride % size for stride in matrix.strides):
        raise ValueError(f"{name} is not aligned to its {size} bytes per element: pass a copy")
    strides = tuple(stride // size for stride in matrix.strides)
    return NAMES.get(dtype) or dtype.name, strides, matrix.__array_interface__["data"][0]


def refuse_mask(values: Any, name: str) -> None:
    """Raise TypeError for a masked array, because kernels ignore masks."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask would be ignored: pass {name}.filled(...)")


def overlap(a: Rows, b: Rows) -> bool:
    """Whether two matrices of one element type may share elements; column ranges of one matrix do not."""
    (first_a, stop_a), (first_b, stop_b) = a.span, b.span
    if a.device != b.device or first_a >= stop_b or first_b >= stop_a:
        return False
    if a.stride != b.stride or a.stride <= 0 or (b.address - a.address) % a.itemsize:
        return True
    columns_behind = (b.address - a.address) // a.itemsize % a.stride
    return columns_behind < a.num_columns or columns_behind + b.num_columns > a.stride


def column_range(columns: tuple[int, int] | slice | None, num_columns: int) -> tuple[int, int]:
    """Return the (start, stop) of a column range; None is all columns.

    Raises:
        TypeError: if it is neither two whole numbers nor a slice.
        ValueError: if it is not within the matrix, or is a slice with a step.
    """
    if columns is None:
        return 0, num_columns
    if isinstance(columns, slice):
        start, stop, step = columns.indices(num_columns)
        if step != 1:
            raise ValueError(f"columns must be contiguous, not every {step}")
        return start, max(start, stop)
    try:
        start, stop = map(operator.index, columns)
    except (TypeError, ValueError):
        raise TypeError(f"columns must be (start, stop) in whole numbers, a slice or None, not {columns!r}") from None
    if not 0 <= start <= stop <= num_columns:
        raise ValueError(f"columns ({start}, {stop}) are not within 0..{num_columns}")
    return start, stop


@functools.lru_cache(maxsize=32)
def first_numbers(count: int) -> np.ndarray:
    """0 .. count - 1 as int64: one array for all callers, so it must not be written."""
    return np.arange(count)


def as_longs(values: Matrix | Sequence[int], name: str, ndim: int = 1) -> np.ndarray:
    """Return row numbers, offsets or pairs as a contiguous int64 numpy array.

    Raises:
        TypeError: if they are not whole numbers (nor is a mask of booleans). ValueError: if they have other dimensions.
    """
    refuse_mask(values, name)
    if isinstance(values, torch.Tensor):
        values = values.cpu().numpy()
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        hint = f": pass np.{'argwhere' if ndim == 2 else 'flatnonzero'}({name})" if array.dtype.kind == "b" else ""
        raise TypeError(f"{name} must be whole numbers of at most 64 bits, not {array.dtype}{hint}")
    if array.ndim != ndim and array.size:
        raise ValueError(f"{name} must be {'[E, 2]' if ndim == 2 else '[n]'}, not {list(array.shape)}")
    return np.ascontiguousarray(array.reshape(-1) if array.ndim != ndim else array, dtype=np.int64)


def check_row_numbers(numbers: np.ndarray, num_rows: int, name: str) -> None:
    """Raise IndexError unless all row numbers are in [0, num_rows)."""
    native.extension().check_row_numbers(numbers, num_rows, name)


def num_threads() -> int:
    """Threads of one kernel call: as many as torch uses."""
    return torch.get_num_threads()
