"""Weighted merges, trimmed means and medians of parameter rows, and projection on the simplex.

A merge is the sparse mixing matrix times the parameter matrix. The sum runs over the entries of a mixing row in their
order, so a result has the same bits for any number of threads, the other rows merged in the same call, or the column
range.

The values left after trimming are summed in an order that depends on the number of rows and the cut alone, so a result
has the same bits for any number of threads and any other rows computed in the same call.

The Euclidean projection on the probability simplex is L. Condat, "Fast projection onto the simplex and the l1 ball",
Mathematical Programming 158 (2016), Algorithm 1.
"""

from typing import Any

import numpy as np
import torch

from ddlsim.foundation import native
from ddlsim.kernels import matrices, on_device
from ddlsim.kernels.matrices import Matrix, Mixing, Rows, aligned_rows, as_longs, check_row_numbers, overlap, rows_of
from ddlsim.kernels.model_rows import Columns


def merge(params: Matrix, mixing: Any, columns: Columns = None, out: Matrix | None = None) -> Matrix:
    """Mix the rows of a parameter matrix: out = mixing @ params over a column range.

    Args:
        params: [N, P] float32, torch (CPU or CUDA) or numpy.
        mixing: [M, N] weights, usually row-stochastic: dense (zeros are not entries) or scipy sparse (CSR unchanged:
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
    start, stop = matrices.column_range(columns, rows.num_columns)
    num_targets, *csr = _csr_parts(mixing, rows.num_rows)
    if out is None:
        out = _new_like(params, num_targets, stop - start)
    target = rows_of(out, "out", written=True)
    if target.num_rows != num_targets or target.num_columns not in (rows.num_columns, stop - start):
        expected = f"[{num_targets}, {rows.num_columns}] or [{num_targets}, {stop - start}]"
        raise ValueError(f"out: expected {expected}, got {list(out.shape)}.")
    out_start = start if target.num_columns == rows.num_columns else 0
    same = _place(target, out_start) == _place(rows, start)
    if not same and overlap(rows, target):
        raise ValueError("out: expected params itself or separate memory, got a matrix that overlaps params.")
    indptr, sources, weights = native.extension().checked_mixing(*csr, num_targets, rows.num_rows, not same)
    columns_of_both = (start, stop, out_start)
    _run(rows, target, (indptr, sources, weights, matrices.first_numbers(num_targets)), columns_of_both, same)
    return out


def merge_rows(
    matrix: Matrix, indptr: Matrix, sources: Matrix, weights: Matrix, targets: Matrix, columns: Columns = None
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
    start, stop = matrices.column_range(columns, rows.num_columns)
    indptr, sources, targets = as_longs(indptr, "indptr"), as_longs(sources, "sources"), as_longs(targets, "targets")
    weights = _as_floats(weights)
    if weights.ndim != 1:
        raise ValueError(f"weights: expected [E], got {list(weights.shape)}.")
    extension = native.extension()
    extension.checked_mixing(indptr, sources, weights, len(targets), rows.num_rows, False)
    in_place = extension.targets_are_read(targets, sources, rows.num_rows)
    _run(rows, rows, (indptr, sources, weights, targets), (start, stop, start), in_place)


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


def _new_like(params: Matrix, num_rows: int, num_columns: int) -> Matrix:
    if isinstance(params, torch.Tensor):
        return aligned_rows(num_rows, num_columns, params.device)
    return aligned_rows(num_rows, num_columns).numpy()


def _run(source: Rows, target: Rows, mixing: Mixing, columns: tuple[int, int, int], in_place: bool) -> None:
    if source.device != target.device:
        raise ValueError(f"params and out: expected one device, got {source.device} and {target.device}.")
    if source.device is not None:
        on_device.merge(source, target, mixing, columns, in_place)
    else:
        native.extension().merge_rows(*source.place, *target.place, *mixing, *columns, in_place, matrices.num_threads())
    if isinstance(target.matrix, torch.Tensor):
        torch.autograd.graph.increment_version(target.matrix)


NOTHING_KEPT = -1
Numbers = Matrix | list[int]


def trimmed_mean_rows(
    params: Matrix, indptr: Numbers, sources: Numbers, cuts: Numbers, out: Matrix, targets: Numbers, kept: Any = None
) -> None:
    """Row targets[r] of `out` becomes the trimmed mean of rows sources[indptr[r] .. indptr[r + 1]] of `params`.

    Args:
        params: [N, P] float32, torch (CPU or CUDA) or numpy; may be `out`, where no target is a source.
        indptr: [R + 1]; sources: [E] row numbers, at least one of each target.
        cuts: [R] how many values are left out at each end, below half the number of sources.
        out: [M, P], written; targets: [R] rows of it, all different.
        kept: [R] a row of `params` that joins the mean untrimmed, or -1; None if none does.

    NaN counts as plus infinity; sums are float32, so that one beyond 3.4e38 is infinite.

    Raises:
        IndexError: a row number outside its matrix.
        ValueError: arrays that do not fit together, a cut that leaves nothing, or a target that is read.
        TypeError: row numbers that are not whole numbers.
    """
    rows, target = rows_of(params, "params"), rows_of(out, "out", written=True)
    indptr, sources = as_longs(indptr, "indptr"), as_longs(sources, "sources")
    cuts, targets = as_longs(cuts, "cuts"), as_longs(targets, "targets")
    count = len(targets)
    kept = np.full(count, NOTHING_KEPT) if kept is None else as_longs(kept, "kept")
    sizes = np.diff(indptr)
    fits = len(indptr) == count + 1 and len(cuts) == len(kept) == count
    fits = fits and not indptr[0] and indptr[-1] == len(sources) and bool((sizes > 0).all())
    if not fits or (cuts < 0).any() or (2 * cuts >= sizes).any():
        text = f"expected offsets from 0 to {len(sources)} of one source or more each, and cuts below half of these"
        raise ValueError(f"indptr, cuts, kept: {text}, for {count} targets.")
    check_row_numbers(sources, rows.num_rows, "sources")
    check_row_numbers(kept[kept != NOTHING_KEPT], rows.num_rows, "kept")
    check_row_numbers(targets, target.num_rows, "targets")
    if rows.num_columns != target.num_columns or rows.device != target.device:
        got = f"{list(out.shape)} on {target.device}"
        raise ValueError(f"out: expected [*, {rows.num_columns}] on {rows.device}, got {got}.")
    read = np.concatenate([sources, kept]) if rows.place == target.place else targets
    if len(np.unique(targets)) != count or (overlap(rows, target) and np.isin(targets, read).any()):
        raise ValueError("targets: expected different rows that are not sources, got one twice or one that is read.")
    if rows.device is not None:
        for r, place in enumerate(targets):
            values = rows.matrix[torch.from_numpy(sources[indptr[r] : indptr[r + 1]]).to(rows.device)]
            values = values.nan_to_num(nan=float("inf"), posinf=float("inf"), neginf=float("-inf"))
            values = values.sort(dim=0).values[cuts[r] : sizes[r] - cuts[r]]
            total = values.sum(dim=0) + (rows.matrix[kept[r]] if kept[r] != NOTHING_KEPT else 0)
            target.matrix[place] = total / (len(values) + (kept[r] != NOTHING_KEPT))
        return
    rule = indptr, sources, cuts, np.ascontiguousarray(kept), targets
    native.extension().trimmed_means(*rows.place, *target.place, rows.num_columns, *rule, matrices.num_threads())
    if isinstance(out, torch.Tensor):
        torch.autograd.graph.increment_version(out)


def project_simplex(rows: Matrix, out: Matrix | None = None) -> Matrix:
    """The nearest point of {x >= 0, sum x = 1} to every row.

    Args:
        rows: [R, D] float32 or float64, torch (CPU or CUDA) or numpy; or one row [D].
        out: of the same shape and type, may be `rows` itself and overlap it in no other way; None: a new array.

    Returns:
        `out`. Entries of minus infinity become 0, entries of plus infinity share the 1 equally; a row with a NaN,
        or of minus infinities alone, becomes NaN.

    Raises:
        TypeError: another type or element type.
        ValueError: another shape, rows without entries, or an `out` that is read-only or overlaps itself or rows.
    """
    if isinstance(rows, torch.Tensor | np.ndarray) and rows.ndim == 1:
        projected = project_simplex(rows[None], None if out is None else out[None])
        return projected[0] if out is None else out
    source = rows_of(rows, "rows", ("float32", "float64"))
    if out is None:
        out = torch.empty_like(rows) if isinstance(rows, torch.Tensor) else np.empty_like(rows, order="C")
    double = source.itemsize == 8
    target = rows_of(out, "out", ("float64" if double else "float32",), written=True)
    if tuple(out.shape) != tuple(rows.shape) or source.device != target.device:
        got = f"{list(out.shape)} on {target.device}"
        raise ValueError(f"out: expected {list(rows.shape)} on {source.device}, got {got}.")
    same = source.place == target.place
    if not same and overlap(source, target):
        raise ValueError("out: expected rows itself or separate memory, got a matrix that overlaps rows.")
    if source.num_rows and not source.num_columns:
        raise ValueError("rows: expected at least one entry each, got none.")
    if source.device is not None:
        on_device.project_simplex(source, target, double)
    else:
        sizes = source.num_rows, source.num_columns
        native.extension().project_simplex(*source.place, *target.place, *sizes, double, matrices.num_threads())
    if isinstance(out, torch.Tensor):
        torch.autograd.graph.increment_version(out)
    return out
