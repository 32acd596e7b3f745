"""Images as bytes in the data set's array, their decoding to the float32 values of models, and Pillow's pictures.

Nodes and clusters hold the numbers of their images in the one array of the data set. A cluster with turned images reads
their bytes in another order, so it needs no copy either. Samples of memory-mapped arrays are read, normalized and
shifted batch by batch, never all at once.

Pictures become RGB with 8 bits per channel, upright, and scaled where Pillow would cut off values above 255.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.foundation.errors import DataDamaged

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Decoding:
    """Decoding of the stored bytes of an image for models: (x / 255 - mean) / std, in another order.

    Args:
        order: int64 [C, H, W], the place of each value in the stored bytes of an image.
        mean: float32 [C], on the scale 0..1.
        std: float32 [C].
        outside: bool [H, W], pixels of a turned image from outside the original; None if there are none.
        fill: the value of these pixels, after normalizing, float32 [C].
    """

    order: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    outside: np.ndarray | None = None
    fill: np.ndarray | None = None

    @property
    def key(self) -> tuple:
        """Equal for equal ones."""
        arrays = (self.order, self.mean, self.std, self.outside, self.fill)
        return tuple(None if array is None else array.tobytes() for array in arrays)

    def floats(self, stored: np.ndarray) -> np.ndarray:
        """Images float32 [n, C, H, W] of bytes [n, P]."""
        values = stored.take(self.order.ravel(), axis=1).reshape(len(stored), *self.order.shape)
        found = normalize(values.transpose(0, 2, 3, 1), self.mean, self.std)
        if self.outside is None or self.fill is None:
            return found
        return np.where(self.outside, self.fill[:, None, None], found)


@dataclass(frozen=True)
class Uint8Images:
    """Some images as bytes; `numpy.asarray` makes the float32 [n, C, H, W] that models see.

    Args:
        stored: uint8 [N, P], the images of a data set, which all that hold some of them share.
        rows: int64 [n], which of them these are.
        decodings: one, or several (of data from several domains), of one shape.
        which: int64 [n], position in `decodings` of each image; None: all have the first.
    """

    stored: np.ndarray
    rows: np.ndarray
    decodings: Sequence[Decoding]
    which: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> tuple[int, ...]:
        """[n, C, H, W]."""
        return (len(self.rows), *self.decodings[0].order.shape)

    def rearranged(self, change: Callable[[np.ndarray], np.ndarray]) -> "Uint8Images":
        """The images with their values at other places.

        Args:
            change: moves the values of images [n, C, H, W], of any type, alike.
        """
        orders = [np.ascontiguousarray(change(each.order[None])[0]) for each in self.decodings]
        rearranged = [dataclasses.replace(one, order=order) for one, order in zip(self.decodings, orders, strict=True)]
        return dataclasses.replace(self, decodings=rearranged)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self.which is None:
            return self.decodings[0].floats(self.stored[self.rows])
        found = np.empty(self.shape, np.float32)
        for number, decoding in enumerate(self.decodings):
            own = self.which == number
            found[own] = decoding.floats(self.stored[self.rows[own]])
        return found


def as_stored(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bytes of images [N, H, W, C] and the order in which models see them.

    Args:
        images: uint8 [N, H, W, C].
    Returns:
        uint8 [N, P] and int64 [C, H, W]; without a copy if the images are contiguous, channels first or last.
    """
    count, height, width, channels = images.shape
    channels_first = images.transpose(0, 3, 1, 2)
    if channels_first.flags.c_contiguous:
        order = np.arange(channels * height * width).reshape(channels, height, width)
        return channels_first.reshape(count, -1), order
    order = np.arange(channels * height * width).reshape(height, width, channels).transpose(2, 0, 1)
    return np.ascontiguousarray(images).reshape(count, -1), np.ascontiguousarray(order)


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


def is_mapped(array: np.ndarray) -> bool:
    """Whether an array, or the base of its view, is memory-mapped."""
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


ORIENTATION = 0x0112
"""The tag of EXIF."""
SIXTEEN_BITS = ("PNG", "PPM")
"""Formats of at most 16 bits, of which Pillow nevertheless makes integers of 32 bits."""


def upright(picture: "Image") -> "Image":
    """Turn a picture by the orientation that its camera has noted (EXIF)."""
    from PIL import ImageOps

    return picture if picture.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(picture)


def gray_or_rgb(picture: "Image", where: str) -> "Image":
    """Return a picture upright, and as RGB with 8 bits per channel unless it is gray with 8 bits."""
    picture = upright(picture)
    return picture if picture.mode in ("L", "RGB") else to_rgb8(picture, where)


def to_rgb8(picture: "Image", where: str) -> "Image":
    """Return a picture with 8 bits per channel; 16 bits of gray are scaled, 65535 to 255.

    Args:
        picture: of any mode.
        where: its origin, for messages.
    Raises:
        DataDamaged: if its values have 32 bits and do not fit into 8 bits, so that the value of white is unknown.
    """
    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in SIXTEEN_BITS):
        from PIL import Image

        values = np.asarray(picture).astype(np.float32) / 257
        return Image.fromarray(np.rint(values).astype(np.uint8)).convert("RGB")
    values = np.asarray(picture) if picture.mode in ("I", "F") else np.zeros(1)
    low, high = values.min(), values.max()
    if picture.mode == "F" or low < 0 or high > 255:
        got = f"one of 32 bits (mode {picture.mode}) with values of {low:g} to {high:g}"
        raise DataDamaged(f"{where}: expected a picture of 8 or 16 bits per channel, got {got}. Save it as 8 bits.")
    return picture.convert("RGB")


def squared(image: "Image", size: int) -> np.ndarray:
    """A picture with its short side resized and its middle cut out, uint8 [size, size] or [size, size, C]."""
    from PIL import Image

    width, height = image.size
    short = min(width, height)
    width, height = math.floor(size * width / short), math.floor(size * height / short)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(resized.crop((left, top, left + size, top + size)))
