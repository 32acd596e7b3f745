"""Values that are not finite, or token ids below 0, are told before anything learns from them."""

import numpy as np

from ddlsim.errors import DataDamaged

_ROWS = 4096
"""Samples that are looked at together where the whole array may not fit into memory."""


def finite(where: str, key: str, array: np.ndarray) -> np.ndarray:
    """The same array; one value that is not finite would make every model that sees it so.

    Raises:
        DataDamaged: if there is one; says where the first is.
    """
    wrong, first = 0, -1
    for start in range(0, len(array), _ROWS):  # it may be memory-mapped, and larger than memory
        known = np.isfinite(array[start : start + _ROWS])
        if not known.all():
            first = first if wrong else start * (array.size // len(array)) + int(np.argmin(known))
            wrong += known.size - int(np.count_nonzero(known))
    if not wrong:
        return array
    at = np.unravel_index(first, array.shape)
    raise DataDamaged(
        f"{where}: {key}: {wrong} values are not finite in float32, the first is {array[at]} in sample {at[0]}. Take "
        "these samples out, or fill in numbers."
    )


def not_negative(where: str, key: str, ids: np.ndarray) -> None:
    """Raises DataDamaged if a token id is below 0, which would count from the end or be out of range."""
    for start in range(0, len(ids), _ROWS):
        wrong = np.argwhere(ids[start : start + _ROWS] < 0)
        if len(wrong):
            row = start + int(wrong[0][0])
            raise DataDamaged(
                f"{where}: {key}: expected token ids from 0, as integers other than uint8 are, got "
                f"{ids[start : start + _ROWS][tuple(wrong[0])]} in sample {row}. Number the tokens anew; features are "
                "given as floats: .astype('float32')."
            )
