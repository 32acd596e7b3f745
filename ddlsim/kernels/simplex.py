"""Euclidean projection on the probability simplex.

L. Condat, "Fast projection onto the simplex and the l1 ball", Mathematical Programming 158 (2016), Algorithm 1.
"""

import torch

from ddlsim import native
from ddlsim.kernels import on_device
from ddlsim.kernels.matrices import Matrix, num_threads, rows_of


def project_simplex(rows: Matrix, out: Matrix | None = None) -> Matrix:
    """The nearest point of {x >= 0, sum x = 1} to every row.

    Args:
        rows: [R, D] float32 or float64, torch (CPU or CUDA) or numpy; or one row [D].
        out: of the same shape and type, may be `rows` itself; None: a new array.

    Returns:
        `out`. Entries of minus infinity become 0, entries of plus infinity share the 1 equally; a row with a NaN,
        or of minus infinities alone, becomes NaN.

    Raises:
        TypeError: another element type. ValueError: another shape, or rows without entries.
    """
    if out is None:
        out = torch.empty_like(rows) if isinstance(rows, torch.Tensor) else rows.copy()
    if rows.ndim == 1:
        project_simplex(rows[None], out[None])
        return out
    source = rows_of(rows, "rows", ("float32", "float64"))
    target = rows_of(out, "out", (str(rows.dtype).removeprefix("torch."),))
    if tuple(out.shape) != tuple(rows.shape) or source.device != target.device:
        raise ValueError(f"out must be like rows, {list(rows.shape)}, not {list(out.shape)} on {target.device}")
    if source.num_rows and not source.num_columns:
        raise ValueError("a row without entries has no projection")
    double = "64" in str(rows.dtype)
    if source.device is not None:
        on_device.project_simplex(source, target, double)
    else:
        native.extension().project_simplex(
            source.address, source.stride, target.address, target.stride, source.num_rows, source.num_columns, double,
            num_threads(),
        )  # fmt: skip
    if isinstance(out, torch.Tensor):
        torch.autograd.graph.increment_version(out)
    return out
