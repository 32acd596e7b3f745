"""Models to compare, as rows of matrices minus optional references over ranges of columns; checked once.

A row means row - reference if there is a reference; the difference is formed in float32 inside the kernel and never
stored.
"""

from typing import Any, NamedTuple

import numpy as np
import torch

from ddlsim.kernels.matrices import Matrix, Rows, as_longs, check_row_numbers, column_range, first_numbers, rows_of

Columns = tuple[int, int] | None


class Models(NamedTuple):
    """The models that a similarity compares: rows of a matrix, minus rows of a reference, over some columns."""

    rows: Rows
    numbers: np.ndarray  # [n] int64 rows of the matrix
    reference: Rows | None
    reference_numbers: np.ndarray  # [n] int64 rows of the reference
    start: int
    stop: int

    def arguments(self) -> tuple[int, int, np.ndarray, int, int, np.ndarray, int, int]:
        """The first arguments of the native functions that compare rows (`RowSet` in csrc/similarity.h)."""
        base = self.reference.place if self.reference else (0, 0)
        return *self.rows.place, self.numbers, *base, self.reference_numbers, self.start, self.stop


def models_of(
    params: Matrix, reference: Any = None, columns: Columns = None, rows: Any = None, reference_rows: Any = None
) -> Models:
    """The models to compare, checked.

    Args:
        params: [N, P] float32, torch or numpy.
        reference: [P], one for all models, or [n, P], one row per model; None to subtract nothing.
        columns: (start, stop) of the columns to compare; None: all.
        rows: [n] row numbers of the models in `params`; None: all rows.
        reference_rows: [n] row numbers of the models' references in `reference`, or in `params` where that is None.

    Raises:
        TypeError: another type or element type. ValueError: shapes that do not fit.
        IndexError: a row number outside the matrix.
    """
    source = rows_of(params, "params")
    if rows is None:
        numbers = first_numbers(source.num_rows)
    else:
        numbers = as_longs(rows, "rows")
        check_row_numbers(numbers, source.num_rows, "rows")
    start, stop = column_range(columns, source.num_columns)
    if reference is None and reference_rows is None:
        return Models(source, numbers, None, first_numbers(0), start, stop)
    one_for_all = isinstance(reference, torch.Tensor | np.ndarray) and reference.ndim == 1
    base = source if reference is None else rows_of(reference[None] if one_for_all else reference, "reference")
    if reference_rows is not None:
        reference_numbers = as_longs(reference_rows, "reference_rows")
    elif one_for_all:
        reference_numbers = np.zeros(len(numbers), np.int64)
    else:
        reference_numbers = first_numbers(base.num_rows)
    if len(reference_numbers) != len(numbers) or base.num_columns != source.num_columns:
        expected = f"[{source.num_columns}] or [{len(numbers)}, {source.num_columns}]"
        raise ValueError(f"reference: expected {expected}, got [{len(reference_numbers)}, {base.num_columns}].")
    if reference_rows is not None:
        check_row_numbers(reference_numbers, base.num_rows, "reference_rows")
    if base.device != source.device:
        raise ValueError(f"reference: expected the device of params, {source.device}, got {base.device}.")
    return Models(source, numbers, base, reference_numbers, start, stop)
