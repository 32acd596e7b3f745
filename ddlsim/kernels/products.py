"""Dot products and squared distances of parameter rows as float64 sums: what every similarity is made of.

A row stands for row - reference where a reference is given; the difference is formed in float32 inside the kernel
and never stored. A pair has the same bits in every list that names it, and in every matrix; lists and matrices each
have their own order of summation.
"""

from typing import NamedTuple

import numpy as np
import torch

from ddlsim import native
from ddlsim.kernels import on_device
from ddlsim.kernels.matrices import (
    Matrix,
    Rows,
    as_longs,
    check_row_numbers,
    column_range,
    first_numbers,
    num_threads,
    rows_of,
)

Columns = tuple[int, int] | slice | None


class Models(NamedTuple):
    """The models that a similarity compares: rows of a matrix, minus rows of a reference, over some columns."""

    rows: Rows
    numbers: np.ndarray  # [n] int64 rows of the matrix
    reference: Rows | None
    reference_numbers: np.ndarray  # [n] int64 rows of the reference
    start: int
    stop: int

    def take(self, positions: np.ndarray) -> "Models":
        """Some of the models, by position."""
        references = self.reference_numbers[positions] if self.reference else self.reference_numbers
        return self._replace(numbers=self.numbers[positions], reference_numbers=references)

    def arguments(self) -> tuple:
        """What the native functions take first."""
        address, stride = (self.reference.address, self.reference.stride) if self.reference else (0, 0)
        return (
            self.rows.address,
            self.rows.stride,
            self.numbers,
            address,
            stride,
            self.reference_numbers,
            self.start,
            self.stop,
        )


def models_of(
    params: Matrix,
    reference: Matrix | None = None,
    columns: Columns = None,
    rows: Matrix | None = None,
    reference_rows: Matrix | None = None,
) -> Models:
    """Checks and names the models to compare.

    Args:
        params: [N, P] float32, torch or numpy.
        reference: [P], one for all models, or [n, P], one row per model; None: nothing is subtracted.
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
        raise ValueError(f"reference must be {expected}, not [{len(reference_numbers)}, {base.num_columns}]")
    if reference_rows is not None:
        check_row_numbers(reference_numbers, base.num_rows, "reference_rows")
    if base.device != source.device:
        raise ValueError(f"params and reference lie on different devices: {source.device} and {base.device}")
    return Models(source, numbers, base, reference_numbers, start, stop)


def all_products(models: Models, squared: bool) -> np.ndarray | torch.Tensor:
    """Dot products (or squared distances) of all pairs of models, [n, n] float64."""
    if models.rows.device is not None:
        return on_device.all_products(models, squared)
    return native.extension().all_pairs(*models.arguments(), squared, num_threads())


def listed_products(models: Models, pairs: np.ndarray, squared: bool) -> np.ndarray | torch.Tensor:
    """Dot products (or squared distances) of listed pairs.

    Args:
        pairs: [E, 2] int64 positions of models, any order.

    Returns:
        [E] float64.
    """
    if models.rows.device is not None:
        return on_device.listed_products(models, pairs, squared)
    return native.extension().listed_pairs(*models.arguments(), squared, pairs, num_threads())


def check_pairs(pairs: Matrix, num_models: int) -> np.ndarray:
    """A list of pairs as [E, 2] int64 positions of models.

    Raises:
        ValueError: not of that shape. IndexError: a position outside [0, num_models).
    """
    pairs = as_longs(pairs, "pairs", ndim=2)
    if pairs.size == 0:
        pairs = pairs.reshape(0, 2)
    if pairs.shape[1] != 2:
        raise ValueError(f"pairs must be [E, 2], not {list(pairs.shape)}")
    check_row_numbers(pairs, num_models, "pairs")
    return pairs


def dots(
    params: Matrix,
    reference: Matrix | None = None,
    pairs: Matrix | None = None,
    columns: Columns = None,
    *,
    rows: Matrix | None = None,
    reference_rows: Matrix | None = None,
) -> np.ndarray | torch.Tensor:
    """Dot products of models, float64: [n, n], or [E] for `pairs` [E, 2]; arguments as in `models_of`."""
    return _products(models_of(params, reference, columns, rows, reference_rows), pairs, squared=False)


def sqdist(
    params: Matrix,
    reference: Matrix | None = None,
    pairs: Matrix | None = None,
    columns: Columns = None,
    *,
    rows: Matrix | None = None,
    reference_rows: Matrix | None = None,
) -> np.ndarray | torch.Tensor:
    """Squared Euclidean distances of models, float64: [n, n] with a zero diagonal, or [E] for `pairs` [E, 2].

    They are sums of squared differences, never |a|^2 + |b|^2 - 2 a.b, so close models keep all their digits.
    """
    return _products(models_of(params, reference, columns, rows, reference_rows), pairs, squared=True)


def _products(models: Models, pairs: Matrix | None, squared: bool) -> np.ndarray | torch.Tensor:
    if pairs is None:
        return all_products(models, squared)
    return listed_products(models, check_pairs(pairs, len(models.numbers)), squared)
