"""Weighted merges of parameter rows: the sparse mixing matrix times the parameter matrix.

The sum runs over the entries of a mixing row in their order, so a result is the same bits whatever the number of
threads, the other rows merged in the same call, or the column range.
"""

from typing import Any

import numpy as np
import torch

from ddlsim import native
from ddlsim.kernels import on_device
from ddlsim.kernels.matrices import (
    Matrix,
    Rows,
    aligned_rows,
    as_longs,
    column_range,
    first_numbers,
    num_threads,
    rows_of,
)


def merge(
    params: Matrix, mixing: Any, columns: tuple[int, int] | slice | None = None, out: Matrix | None = None
) -> Matrix:
    """Mixes the rows of a parameter matrix: out = mixing @ params over a column range.

    Args:
        params: [N, P] float32, torch (CPU or CUDA) or numpy.
        mixing: [M, N] weights, usually row-stochastic: dense (zeros are no entries), scipy sparse or torch CSR.
            A row without entries leaves params' row as it is (M = N), so that offline nodes keep their model.
        columns: (start, stop) of the columns to merge; None: all.
        out: [M, P] (the other columns stay) or [M, stop - start]; may be `params` itself; None: a new matrix.

    Returns:
        `out`, or the new matrix [M, stop - start].
    """
    rows = rows_of(params, "params")
    start, stop = column_range(columns, rows.num_columns)
    num_targets, *parts = _csr_parts(mixing, rows.num_rows)
    if out is None:
        out = _new_like(params, num_targets, stop - start)
    target = rows_of(out, "out")
    if target.num_rows != num_targets or target.num_columns not in (rows.num_columns, stop - start):
        raise ValueError(f"out must be [{num_targets}, {rows.num_columns}] or [{num_targets}, {stop - start}], "
                         f"not {list(out.shape)}")  # fmt: skip
    out_start = start if target.num_columns == rows.num_columns else 0
    same = (target.address, target.stride, out_start) == (rows.address, rows.stride, start)
    if not same and _overlap(rows, target):
        raise ValueError("out must not overlap params unless it is params itself")
    parts = native.extension().checked_mixing(*parts, num_targets, rows.num_rows, not same)
    _run(rows, target, *parts, first_numbers(num_targets), (start, stop, out_start), same)
    return out


def merge_rows(
    matrix: Matrix,
    indptr: Matrix,
    sources: Matrix,
    weights: Matrix,
    targets: Matrix,
    columns: tuple[int, int] | slice | None = None,
) -> None:
    """Merges rows of one matrix into rows of the same matrix, wherever they lie, without gathering them.

    Row targets[r] becomes the sum of weights[e] * row sources[e] for e in indptr[r] .. indptr[r + 1]. A target may
    be a source, of itself or of others: every source is read as it was before the call. A target without entries
    stays as it is.

    Args:
        matrix: [rows, P] float32, torch (CPU or CUDA) or numpy; fastest as `aligned_rows`.
        indptr: [R + 1] integers; sources: [E] row numbers; weights: [E]; targets: [R] row numbers, all different.
        columns: (start, stop) of the columns to merge; None: all.

    Raises:
        IndexError: a row number outside the matrix.
        ValueError: a target named twice, or arrays that do not fit together.
    """
    rows = rows_of(matrix, "matrix")
    start, stop = column_range(columns, rows.num_columns)
    indptr, sources, targets = as_longs(indptr), as_longs(sources), as_longs(targets)
    weights = _as_floats(weights)
    extension = native.extension()
    extension.checked_mixing(indptr, sources, weights, len(targets), rows.num_rows, False)
    in_place = extension.targets_are_read(targets, sources, rows.num_rows)
    _run(rows, rows, indptr, sources, weights, targets, (start, stop, start), in_place)


def _csr_parts(mixing: Any, num_sources: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """The number of rows of a mixing matrix, and its indptr, sources and weights (float32), unchecked."""
    if hasattr(mixing, "tocsr"):
        shape, mixing = mixing.shape, mixing.tocsr()
        parts = mixing.indptr, mixing.indices, mixing.data
    elif isinstance(mixing, torch.Tensor) and mixing.layout == torch.sparse_csr:
        shape = mixing.shape
        parts = mixing.crow_indices(), mixing.col_indices(), mixing.values()
    else:
        dense = _as_floats(mixing)
        shape = dense.shape
        parts = native.extension().sparse_mixing(dense) if len(shape) == 2 else None
    if len(shape) != 2 or shape[1] != num_sources:
        raise ValueError(f"mixing must be [targets, {num_sources}], not {list(shape)}")
    indptr, sources = (part.cpu().numpy() if isinstance(part, torch.Tensor) else part for part in parts[:2])
    return shape[0], indptr, sources, _as_floats(parts[2])


def _as_floats(values: Any) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.cpu().numpy()
    return np.ascontiguousarray(values, dtype=np.float32)


def _overlap(a: Rows, b: Rows) -> bool:
    return a.address < b.stop_address and b.address < a.stop_address


def _new_like(params: Matrix, num_rows: int, num_columns: int) -> Matrix:
    if isinstance(params, torch.Tensor):
        return aligned_rows(num_rows, num_columns, params.device)
    return aligned_rows(num_rows, num_columns).numpy()


def _run(
    source: Rows, target: Rows, indptr: np.ndarray, sources: np.ndarray, weights: np.ndarray,
    targets: np.ndarray, columns: tuple[int, int, int], in_place: bool,
) -> None:  # fmt: skip
    if source.device != target.device:
        raise ValueError(f"the matrices lie on different devices: {source.device} and {target.device}")
    if source.device is not None:
        on_device.merge(source, target, indptr, sources, weights, targets, columns, in_place)
    else:
        native.extension().merge_rows(
            source.address, source.stride, target.address, target.stride, indptr, sources, weights, targets,
            *columns, in_place, num_threads(),
        )  # fmt: skip
    if isinstance(target.matrix, torch.Tensor):
        torch.autograd.graph.increment_version(target.matrix)
