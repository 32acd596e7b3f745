"""Similarities of models: cosine of weights or of updates, inverse Euclidean distance, per-class cosine.

Measures as in "Decentralized adaptive clustering" (DAC: cosine of weights and of updates, inverse L2) and in MAPL
(mean cosine of the classifier's class rows). Sums, norms and divisions are float64; the result is cast last.

Edges: a zero vector has cosine 0 with everything (norms are at least 1e-8, as in torch); identical models have
inverse distance 1 / 1e-6; the diagonal of `inverse_l2` is 0, since a node is not its own peer; NaN and infinity in a
model make its similarities NaN or 0 by the rules of arithmetic, and touch no others.
"""

import numpy as np
import torch

from ddlsim.kernels.matrices import Matrix, column_range
from ddlsim.kernels.products import (
    Columns,
    Models,
    all_products,
    check_pairs,
    listed_dots_and_squares,
    listed_products,
    models_of,
)

SMALLEST_NORM = 1e-8
DISTANCE_OFFSET = 1e-6


def cosine(
    params: Matrix, reference: Matrix | None = None, pairs: Matrix | None = None, columns: Columns = None, *,
    rows: Matrix | None = None, reference_rows: Matrix | None = None,
) -> Matrix:  # fmt: skip
    """Cosine similarity of models, or of their updates since a reference.

    Args:
        params: [N, P] float32, torch (CPU or CUDA) or numpy.
        reference: what to subtract first: [P] (the common start) or [n, P] (each model's last state); None: nothing.
        pairs: [E, 2] positions of the models to compare; None: all pairs.
        columns: (start, stop) of the columns to compare, e.g. the core; None: all.
        rows: [n] row numbers of the models in `params`; None: all rows.
        reference_rows: [n] row numbers of the references in `reference` (in `params` where that is None).

    Returns:
        [n, n] or [E] float32, of the same library and device as `params`.
    """
    models = models_of(params, reference, columns, rows, reference_rows)
    return _like(params, _cosines(models, _positions(pairs, models)))


def inverse_l2(
    params: Matrix, reference: Matrix | None = None, pairs: Matrix | None = None, columns: Columns = None, *,
    rows: Matrix | None = None, reference_rows: Matrix | None = None,
) -> Matrix:  # fmt: skip
    """1 / (Euclidean distance + 1e-6) of models; arguments and result as in `cosine`, the diagonal is 0."""
    models = models_of(params, reference, columns, rows, reference_rows)
    positions = _positions(pairs, models)
    if positions is not None:
        return _like(params, 1 / (listed_products(models, positions, squared=True) ** 0.5 + DISTANCE_OFFSET))
    similarity = 1 / (all_products(models, squared=True) ** 0.5 + DISTANCE_OFFSET)
    diagonal = np.arange(len(models.numbers))
    similarity[diagonal, diagonal] = 0
    return _like(params, similarity)


def update_cosine(
    params: Matrix, start: Matrix, last: Matrix, alpha: float, pairs: Matrix | None = None, columns: Columns = None, *,
    rows: Matrix | None = None, last_rows: Matrix | None = None,
) -> Matrix:  # fmt: skip
    """alpha * cosine of the last update + (1 - alpha) * cosine of the update since the start.

    Args:
        start: [P] or [n, P], the models at the start.
        last: [n, P], the models a round ago; or, with `last_rows`, the matrix that holds them.
        alpha: 0..1; at 0 and 1 only one of the two is computed.
        params, pairs, columns, rows: as in `cosine`.

    Raises:
        ValueError: alpha outside 0..1, or shapes that do not fit.
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must lie in 0..1, not {alpha}")
    mixed = 0
    if alpha > 0:
        models = models_of(params, last, columns, rows, last_rows)
        mixed = mixed + alpha * _cosines(models, _positions(pairs, models))
    if alpha < 1:
        models = models_of(params, start, columns, rows)
        mixed = mixed + (1 - alpha) * _cosines(models, _positions(pairs, models))
    return _like(params, mixed)


def class_cosine(
    params: Matrix, num_classes: int, columns: Columns = None, pairs: Matrix | None = None, *,
    rows: Matrix | None = None,
) -> Matrix:  # fmt: skip
    """Mean over classes of the cosine between the classifier rows of a class.

    Args:
        params: [N, P] float32.
        num_classes: C; the columns hold a [C, D] classifier matrix, row by row.
        columns: (start, stop) of that matrix in the parameters, stop - start = C * D; None: all columns.
        pairs, rows: as in `cosine`.

    Raises:
        ValueError: the columns do not divide into the classes.
    """
    start, stop = column_range(columns, params.shape[1])
    if num_classes < 1 or (stop - start) % num_classes:
        raise ValueError(f"{stop - start} columns do not divide into {num_classes} classes")
    models = models_of(params, None, columns, rows)
    positions = _positions(pairs, models)
    width = (stop - start) // num_classes
    total = 0
    for label in range(num_classes):
        one_class = models._replace(start=start + label * width, stop=start + (label + 1) * width)
        total = total + _cosines(one_class, positions)
    return _like(params, total / num_classes)


def _positions(pairs: Matrix | None, models: Models) -> np.ndarray | None:
    return None if pairs is None else check_pairs(pairs, len(models.numbers))


def _cosines(models: Models, pairs: np.ndarray | None) -> np.ndarray | torch.Tensor:
    """Cosines in float64."""
    if pairs is None:
        products = all_products(models, squared=False)
        norms = _norms(products.diagonal())
        return _divide(products, norms[:, None], norms[None, :])
    products, squares = listed_dots_and_squares(models, pairs)
    norms = _norms(squares)
    return _divide(products, norms[pairs[:, 0]], norms[pairs[:, 1]])


def _norms(squares: np.ndarray | torch.Tensor) -> np.ndarray | torch.Tensor:
    return (squares**0.5).clip(SMALLEST_NORM)


def _divide(products, norms_a, norms_b):
    with np.errstate(invalid="ignore"):  # infinite models: infinity / infinity is NaN, as it should be
        return (products / (norms_a * norms_b)).clip(-1, 1)


def _like(params: Matrix, values: np.ndarray | torch.Tensor) -> Matrix:
    """float32 of the library that `params` is of."""
    if isinstance(values, torch.Tensor):
        return values.float()
    values = values.astype(np.float32)
    return torch.from_numpy(values) if isinstance(params, torch.Tensor) else values
