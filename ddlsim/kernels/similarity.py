"""Similarities of models: cosine of weights or of updates, inverse Euclidean distance, per-class cosine.

Measures as in "Decentralized adaptive clustering" (DAC: cosine of weights and of updates, inverse L2) and in MAPL (mean
cosine of the classifier's class rows). Sums, norms and divisions are float64; the result is cast last.

Edges: a zero vector has cosine 0 with everything (norms are at least 1e-8, as in torch); identical models have inverse
distance 1 / 1e-6; the diagonal of `inverse_l2` is 0, since a node is not its own peer, and a listed pair of a model
with itself is one of identical models; NaN and infinity in a model make its similarities NaN or 0 by the rules of
arithmetic, and do not affect others. Products of single numbers are float32: numbers beyond 1e18 count as infinity,
below 1e-19 as zero.

Every similarity is computed from dot products and squared distances of parameter rows as float64 sums. A pair has the
same bits in every list that names it, and in every matrix; lists and matrices each have their own order of summation.
"""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ddlsim.foundation import native
from ddlsim.kernels import on_device
from ddlsim.kernels.matrices import Matrix, as_longs, check_row_numbers, num_threads
from ddlsim.kernels.model_rows import Columns, Models, models_of


def _positions(pairs: Matrix | Sequence | None, models: Models) -> np.ndarray | None:
    """Return a list of pairs as [E, 2] int64 positions of models; None for all pairs.

    Raises:
        ValueError: if it has another shape. IndexError: if a position is not one of the models'.
    """
    if pairs is None:
        return None
    positions = as_longs(pairs, "pairs", ndim=2)
    positions = positions if positions.size else positions.reshape(0, 2)
    if positions.shape[1] != 2:
        raise ValueError(f"pairs: expected [E, 2], got {list(positions.shape)}.")
    check_row_numbers(positions, len(models.numbers), "pairs")
    return positions


def dots(params: Matrix, reference: Any = None, pairs: Any = None, columns: Columns = None, **rows: Any) -> Matrix:
    """Dot products of models, float64: [n, n], or [E] for `pairs` [E, 2]; arguments and errors as in `cosine`."""
    return _products(models_of(params, reference, columns, **rows), pairs, squared=False)


def sqdist(params: Matrix, reference: Any = None, pairs: Any = None, columns: Columns = None, **rows: Any) -> Matrix:
    """Squared Euclidean distances of models, float64: [n, n] with a zero diagonal, or [E] for `pairs` [E, 2].

    They are sums of squared differences, never `|a|^2 + |b|^2 - 2 a.b`, so close models keep all their digits.
    Arguments and errors as in `cosine`.
    """
    return _products(models_of(params, reference, columns, **rows), pairs, squared=True)


def _products(models: Models, pairs: Matrix | None, squared: bool) -> Matrix:
    """Dot products (or squared distances) of all pairs of models, [n, n], or of listed ones, [E]; float64."""
    positions = _positions(pairs, models)
    if models.rows.device is not None:
        if positions is None:
            return on_device.all_products(models, squared)
        return on_device.listed_products(models, positions, squared)
    if positions is None:
        return native.extension().all_pairs(*models.arguments(), squared, num_threads())
    return native.extension().listed_pairs(*models.arguments(), squared, positions, num_threads())


SMALLEST_NORM = 1e-8  # as in csrc/similarity.h
DISTANCE_OFFSET = 1e-6


def cosine(params: Matrix, reference: Any = None, pairs: Any = None, columns: Columns = None, **rows: Any) -> Matrix:
    """Cosine similarity of models, or of their updates since a reference.

    Args:
        params: [N, P] float32, torch (CPU or CUDA) or numpy.
        reference: parameters to subtract first: [P] (the common start) or [n, P] (each model's last state); None to
            subtract nothing.
        pairs: [E, 2] positions of the models to compare; None: all pairs.
        columns: (start, stop) of the columns to compare, e.g. the core; None: all.
        rows: `rows`, [n] row numbers of the models in `params` (None: all rows), and `reference_rows`, [n] row numbers
            of the references in `reference` (in `params` where that is None).

    Returns:
        [n, n] or [E] float32, of the same library and device as `params`.

    Raises:
        TypeError: another type or element type than the above.
        ValueError: shapes that do not fit, columns outside the matrix, or matrices on different devices.
        IndexError: a row or a position outside the matrix.
    """
    return _cosines(params, [models_of(params, reference, columns, **rows)], pairs)


def inverse_l2(
    params: Matrix, reference: Any = None, pairs: Any = None, columns: Columns = None, **rows: Any
) -> Matrix:
    """1 / (Euclidean distance + 1e-6) of models; arguments, result and errors as in `cosine`, the diagonal is 0."""
    models = models_of(params, reference, columns, **rows)
    positions = _positions(pairs, models)
    if models.rows.device is None:
        out, address = _empty_like(params, models, positions)
        extension = native.extension()
        extension.inverse_distances(*models.arguments(), positions, DISTANCE_OFFSET, address, num_threads())
        return out
    found = torch.as_tensor(1 / (_products(models, pairs, squared=True) ** 0.5 + DISTANCE_OFFSET))
    return (found.fill_diagonal_(0) if positions is None else found).float()


def class_cosine(
    params: Matrix, num_classes: int, columns: Columns = None, pairs: Any = None, *, rows: Any = None
) -> Matrix:
    """Mean over classes of the cosine between the classifier rows of a class.

    Args:
        params: [N, P] float32.
        num_classes: C; the columns hold a [C, D] classifier matrix, row by row.
        columns: (start, stop) of that matrix in the parameters, stop - start = C * D; None: all columns.
        pairs, rows: as in `cosine`.

    Returns:
        As `cosine`.

    Raises:
        ValueError: the columns do not divide into the classes. Also all errors of `cosine`.
    """
    models = models_of(params, None, columns, rows)
    start, stop, num_classes = models.start, models.stop, operator.index(num_classes)
    if num_classes < 1 or (stop - start) % num_classes:
        raise ValueError(f"columns: expected a multiple of {num_classes} classes, got {stop - start}.")
    width = (stop - start) // num_classes
    starts = [start + label * width for label in range(num_classes)]
    return _cosines(params, [models._replace(start=first, stop=first + width) for first in starts], pairs)


def _cosines(params: Matrix, terms: Sequence[Models], pairs: Matrix | None) -> Matrix:
    """The mean of the terms' cosines, float32 of the library that `params` is of."""
    positions = _positions(pairs, terms[0])
    if terms[0].rows.device is not None:
        found = on_device.cosines(terms, positions, SMALLEST_NORM)
        return (sum(found[1:], found[0]) / len(terms)).float()
    out, address = _empty_like(params, terms[0], positions)
    native.extension().cosines(
        [(*term.arguments(), 1) for term in terms], positions, len(terms), address, num_threads()
    )
    return out


def _empty_like(params: Matrix, models: Models, positions: np.ndarray | None) -> tuple[Matrix, int]:
    """Memory for similarities, [n, n] or [E] float32 of the library that `params` is of, and its address."""
    n = len(models.numbers)
    shape = (n, n) if positions is None else (len(positions),)
    if isinstance(params, torch.Tensor):
        tensor = torch.empty(shape, dtype=torch.float32)
        return tensor, tensor.data_ptr()
    array = np.empty(shape, np.float32)
    return array, array.ctypes.data
