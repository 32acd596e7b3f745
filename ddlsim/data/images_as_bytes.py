"""Images that stay bytes, with what makes the float32 values of them that models see: a quarter of the memory."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Normalization:
    """What is done to bytes: (x / 255 - mean) / std, and one value where no pixel of the image is seen.

    Args:
        mean: float32 [C], on the scale 0..1.
        std: float32 [C].
        outside: bool [H, W], where a turned image shows no pixel of its own; None: nowhere.
        fill: the value there, after normalizing, float32 [C].
    """

    mean: np.ndarray
    std: np.ndarray
    outside: np.ndarray | None = None
    fill: np.ndarray | None = None

    @property
    def key(self) -> tuple:
        """Equal for equal ones."""
        arrays = (self.mean, self.std, self.outside, self.fill)
        return tuple(None if array is None else array.tobytes() for array in arrays)


@dataclass(frozen=True)
class ByteImages:
    """Images as bytes; `numpy.asarray` makes the float32 [n, C, H, W] that models see.

    Args:
        values: uint8 [n, C, H, W].
        normalizations: one, or several (of data from several domains).
        which: int64 [n], position in `normalizations` of each image; None: all have the first.
    """

    values: np.ndarray
    normalizations: Sequence[Normalization]
    which: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, C, H, W]."""
        return self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if len(self.normalizations) == 1:
            return _floats(self.values, self.normalizations[0])
        assert self.which is not None
        found = np.empty(self.values.shape, np.float32)
        for number, normalization in enumerate(self.normalizations):
            own = self.which == number
            found[own] = _floats(self.values[own], normalization)
        return found


def normalize(images: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """(x / 255 - mean) / std of bytes, (x - mean) / std of floats; float32 at every step, as torchvision does it.

    Args:
        images: uint8 or float32 [n, H, W, C].
        mean: float32 [C].
        std: float32 [C].
    Returns:
        float32 [n, C, H, W], contiguous.
    """
    count, height, width, channels = images.shape
    scale = 255 if images.dtype == np.uint8 else 1
    result = np.empty((count, channels, height, width), np.float32)
    for channel in range(channels):
        one = result[:, channel]
        np.divide(images[..., channel], np.float32(scale), out=one, dtype=np.float32)
        one -= mean[channel]
        one /= std[channel]
    return result


def _floats(values: np.ndarray, normalization: Normalization) -> np.ndarray:
    found = normalize(values.transpose(0, 2, 3, 1), normalization.mean, normalization.std)
    if normalization.outside is None or normalization.fill is None:
        return found
    return np.where(normalization.outside, normalization.fill[:, None, None], found)
