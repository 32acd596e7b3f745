"""Dot products and squared distances of parameter rows as float64 sums: what every similarity is made of.

A pair has the same bits in every list that names it, and in every matrix; lists and matrices each have their own order
of summation.
"""

import numpy as np
import torch

from ddlsim import native
from ddlsim.kernels import on_device
from ddlsim.kernels.matrices import Matrix, as_longs, check_row_numbers, num_threads
from ddlsim.kernels.model_rows import Columns, Models, models_of


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
    """Dot products of models, float64: [n, n], or [E] for `pairs` [E, 2]; arguments and errors as in `cosine`."""
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

    They are sums of squared differences, never `|a|^2 + |b|^2 - 2 a.b`, so close models keep all their digits.
    Arguments and errors as in `cosine`.
    """
    return _products(models_of(params, reference, columns, rows, reference_rows), pairs, squared=True)


def _products(models: Models, pairs: Matrix | None, squared: bool) -> np.ndarray | torch.Tensor:
    if pairs is None:
        return all_products(models, squared)
    return listed_products(models, check_pairs(pairs, len(models.numbers)), squared)
