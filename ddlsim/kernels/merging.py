"""Weighted merges of parameter rows: the sparse mixing matrix times the parameter matrix.

The sum runs over the entries of a mixing row in their order, so a result has the same bits for any number of threads,
the other rows merged in the same call, or the column range.
"""

from typing import Any

import numpy as np
import torch

from ddlsim.foundation import native
from ddlsim.kernels import on_device
from ddlsim.kernels.matrices import (
    Matrix,
    Rows,
    aligned_rows,
    as_longs,
    column_range,
    first_numbers,
    num_threads,
    overlap,
    rows_of,
)


def merge(params: Matrix, mixing: Any, columns: tuple[int, int] | None = None, out: Matrix | None = None) -> Matrix:
    """Mix the rows of a parameter matrix: out = mixing @ params over a column range.

    Args:
        params: [N, P] float32, torch (CPU or CUDA) or numpy.
        mixing: [M, N] weights, usually row-stochastic: dense (zeros are no entries) or scipy sparse (CSR unchanged:
            unsorted and repeated entries are summed in their order). They are used unchanged, in float32. A row without
            entries leaves params' row unchanged (M = N), so that offline nodes keep their model.
        columns: (start, stop) of the columns to merge; None for all.
        out: [M, P] (the other columns are unchanged) or [M, stop - start]; may be `params` itself, or the view of its
            columns start..stop; None for a new matrix.

    Returns:
        `out`, or the new matrix [M, stop - start].

    Raises:
        TypeError: if a type, element type or layout is unsupported. IndexError: if an entry names a missing row.
        ValueError: if shapes do not fit, or `out` is read-only or overlaps itself or params otherwise.
    """
    rows = rows_of(params, "params")
    start, stop = column_range(columns, rows.num_columns)
    num_targets, *csr = _csr_parts(mixing, rows.num_rows)
    if out is None:
        out = _new_like(params, num_targets, stop - start)
    target = rows_of(out, "out", written=True)
    if target.num_rows != num_targets or target.num_columns not in (rows.num_columns, stop - start):
        raise ValueError(
            f"out: expected [{num_targets}, {rows.num_columns}] or [{num_targets}, {stop - start}], got "
            f"{list(out.shape)}."
        )
    out_start = start if target.num_columns == rows.num_columns else 0
    same = _place(target, out_start) == _place(rows, start)
    if not same and overlap(rows, target):  # mostly not, and then their columns do not either
        read, written = _columns(rows, start, stop), _columns(target, out_start, out_start + stop - start)
        if overlap(read, written):
            raise ValueError("out: expected params itself or separate memory, got a matrix that overlaps params.")
    indptr, sources, weights = native.extension().checked_mixing(*csr, num_targets, rows.num_rows, not same)
    columns_of_both = (start, stop, out_start)
    _run(rows, target, indptr, sources, weights, first_numbers(num_targets), columns_of_both, same)
    return out


def merge_rows(
    matrix: Matrix,
    indptr: Matrix,
    sources: Matrix,
    weights: Matrix,
    targets: Matrix,
    columns: tuple[int, int] | None = None,
) -> None:
    """Merge rows of one matrix into rows of the same matrix, in any places, without gathering them.

    Row targets[r] becomes the sum of weights[e] * row sources[e] for e in indptr[r] .. indptr[r + 1]. A target may be a
    source, of itself or of others: every source is read with its value before the call. A target without entries is
    unchanged.

    Args:
        matrix: [rows, P] float32, torch (CPU or CUDA) or numpy; fastest as `aligned_rows`.
        indptr: [R + 1] integers; sources: [E] row numbers; weights: [E]; targets: [R] row numbers, all different.
        columns: (start, stop) of the columns to merge; None for all.

    Raises:
        IndexError: if a row number is outside the matrix.
        ValueError: if a target occurs twice, arrays do not fit together, or the matrix is read-only.
        TypeError: if row numbers are not whole numbers.
    """
    rows = rows_of(matrix, "matrix", written=True)
    start, stop = column_range(columns, rows.num_columns)
    indptr, sources, targets = as_longs(indptr, "indptr"), as_longs(sources, "sources"), as_longs(targets, "targets")
    weights = _as_floats(weights)
    if weights.ndim != 1:
        raise ValueError(f"weights: expected [E], got {list(weights.shape)}.")
    extension = native.extension()
    extension.checked_mixing(indptr, sources, weights, len(targets), rows.num_rows, False)
    in_place = extension.targets_are_read(targets, sources, rows.num_rows)
    _run(rows, rows, indptr, sources, weights, targets, (start, stop, start), in_place)


def _csr_parts(mixing: Any, num_sources: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """The number of rows of a mixing matrix, and its indptr, sources and weights (float32), unchecked."""
    parts: tuple[np.ndarray, ...] = ()
    if hasattr(mixing, "tocsr"):
        csr = mixing.tocsr()
        shape, parts = csr.shape, (csr.indptr, csr.indices, _as_floats(csr.data))
    else:
        dense = _as_floats(mixing)
        shape = dense.shape
        parts = native.extension().sparse_mixing(dense) if len(shape) == 2 else ()
    if len(shape) != 2 or shape[1] != num_sources:
        raise ValueError(f"mixing: expected [targets, {num_sources}], got {list(shape)}.")
    return shape[0], *parts


def _as_floats(values: Any) -> np.ndarray:
    """Return real numbers as a contiguous float32 array on the host.

    Raises:
        TypeError: if they are not real numbers.
    """
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"weights: expected real numbers, got {array.dtype}.")
    return np.ascontiguousarray(array, dtype=np.float32)


def _place(rows: Rows, start: int) -> tuple[int, int]:
    """Return the address of a column range, and the distance between its rows."""
    return rows.address + rows.itemsize * start, rows.stride


def _columns(rows: Rows, start: int, stop: int) -> Rows:
    return rows._replace(address=rows.address + rows.itemsize * start, num_columns=stop - start)


def _new_like(params: Matrix, num_rows: int, num_columns: int) -> Matrix:
    if isinstance(params, torch.Tensor):
        return aligned_rows(num_rows, num_columns, params.device)
    return aligned_rows(num_rows, num_columns).numpy()


def _run(
    source: Rows,
    target: Rows,
    indptr: np.ndarray,
    sources: np.ndarray,
    weights: np.ndarray,
    targets: np.ndarray,
    columns: tuple[int, int, int],
    in_place: bool,
) -> None:
    if source.device != target.device:
        raise ValueError(f"params and out: expected one device, got {source.device} and {target.device}.")
    if source.device is not None:
        on_device.merge(source, target, indptr, sources, weights, targets, columns, in_place)
    else:
        mixing = indptr, sources, weights, targets
        native.extension().merge_rows(*source.place, *target.place, *mixing, *columns, in_place, num_threads())
    if isinstance(target.matrix, torch.Tensor):
        torch.autograd.graph.increment_version(target.matrix)
