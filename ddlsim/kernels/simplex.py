"""Euclidean projection on the probability simplex.

L. Condat, "Fast projection onto the simplex and the l1 ball", Mathematical Programming 158 (2016), Algorithm 1.
"""

import numpy as np
import torch

from ddlsim.foundation import native
from ddlsim.kernels import on_device
from ddlsim.kernels.matrices import Matrix, num_threads, overlap, rows_of


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
        raise ValueError(
            f"out: expected {list(rows.shape)} on {source.device}, got {list(out.shape)} on {target.device}."
        )
    same = source.place == target.place
    if not same and overlap(source, target):
        raise ValueError("out: expected rows itself or separate memory, got a matrix that overlaps rows.")
    if source.num_rows and not source.num_columns:
        raise ValueError("rows: expected at least one entry each, got none.")
    if source.device is not None:
        on_device.project_simplex(source, target, double)
    else:
        sizes = source.num_rows, source.num_columns
        native.extension().project_simplex(*source.place, *target.place, *sizes, double, num_threads())
    if isinstance(out, torch.Tensor):
        torch.autograd.graph.increment_version(out)
    return out
