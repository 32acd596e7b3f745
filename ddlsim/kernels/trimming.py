"""Coordinate-wise trimmed means and medians of parameter rows.

The values left after trimming are summed in an order that depends on the number of rows and the cut alone, so a result
has the same bits for any number of threads and any other rows computed in the same call.
"""

import numpy as np
import torch

from ddlsim.foundation import native
from ddlsim.kernels.matrices import Matrix, Rows, as_longs, check_row_numbers, num_threads, overlap, rows_of

NOTHING_KEPT = -1


def trimmed_mean_rows(
    params: Matrix,
    indptr: Matrix | list[int],
    sources: Matrix | list[int],
    cuts: Matrix | list[int],
    out: Matrix,
    targets: Matrix | list[int],
    kept: Matrix | list[int] | None = None,
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
    if len(indptr) != count + 1 or len(cuts) != count or len(kept) != count:
        raise ValueError(f"expected {count + 1} indptr, {count} cuts and {count} kept, for {count} targets.")
    sizes = np.diff(indptr)
    if count and (indptr[0] != 0 or indptr[-1] != len(sources) or (sizes < 1).any()):
        raise ValueError(f"indptr: expected rising numbers from 0 to {len(sources)}, one source or more a target.")
    if (cuts < 0).any() or (2 * cuts >= sizes).any():
        raise ValueError("cuts: expected 0 to below half the number of sources.")
    check_row_numbers(sources, rows.num_rows, "sources")
    check_row_numbers(kept[kept != NOTHING_KEPT], rows.num_rows, "kept")
    check_row_numbers(targets, target.num_rows, "targets")
    if len(np.unique(targets)) != count:
        raise ValueError("targets: expected different rows, got one twice.")
    if rows.num_columns != target.num_columns or rows.device != target.device:
        raise ValueError(
            f"out: expected [*, {rows.num_columns}] on {rows.device}, got {list(out.shape)} on {target.device}."
        )
    if overlap(rows, target):
        same = rows.place == target.place
        if not same or np.isin(targets, np.concatenate([sources, kept])).any():
            raise ValueError("targets: expected rows that are no sources, got one that is read.")
    _run(rows, target, indptr, sources, cuts, targets, np.ascontiguousarray(kept))


def _run(rows: Rows, out: Rows, indptr: np.ndarray, sources: np.ndarray, cuts: np.ndarray, targets: np.ndarray,
         kept: np.ndarray) -> None:  # fmt: skip
    if rows.device is not None:
        for r, target in enumerate(targets):
            places = torch.from_numpy(sources[indptr[r] : indptr[r + 1]]).to(rows.device)
            values = rows.matrix[places].nan_to_num(nan=float("inf"), posinf=float("inf"), neginf=float("-inf"))
            values = values.sort(dim=0).values[cuts[r] : len(places) - cuts[r]]
            total = values.sum(dim=0) + (rows.matrix[kept[r]] if kept[r] != NOTHING_KEPT else 0)
            out.matrix[target] = total / (len(values) + (kept[r] != NOTHING_KEPT))
        return
    rule = indptr, sources, cuts, kept, targets
    native.extension().trimmed_means(*rows.place, *out.place, rows.num_columns, *rule, num_threads())
    if isinstance(out.matrix, torch.Tensor):
        torch.autograd.graph.increment_version(out.matrix)
