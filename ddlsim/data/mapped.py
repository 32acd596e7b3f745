"""Samples of arrays that are memory-mapped: they are read, normalized and shifted by the batch, never all at once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


def is_mapped(array: np.ndarray) -> bool:
    """Whether an array, or what it is a view of, lies in a file."""
    base: object = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


@dataclass(frozen=True)
class MappedSamples:
    """Some samples of an array in a file.

    Args:
        indices: int64 [n], which.
        read: makes what models see, [b, ...], of indices [b].
        sample_shape: of one sample as models see it.
        sample_dtype: of its values.
    """

    indices: np.ndarray
    read: Callable[[np.ndarray], np.ndarray]
    sample_shape: tuple[int, ...]
    sample_dtype: np.dtype

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, ...]."""
        return (len(self.indices), *self.sample_shape)

    def __getitem__(self, rows: np.ndarray | slice) -> np.ndarray:
        """The samples at some positions, [b, ...]."""
        return self.read(self.indices[rows])
