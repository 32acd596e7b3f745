"""Values that are not finite are told before anything learns from them."""

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
