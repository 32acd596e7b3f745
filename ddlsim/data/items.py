"""Conversion of single samples, as in PyTorch data sets, lists and folders of pictures, to arrays.

Pictures become RGB with 8 bits per channel, upright, and scaled where Pillow would cut off values above 255.
"""

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.data.from_arrays import as_array, describe, is_tensor
from ddlsim.foundation.errors import DataDamaged

if TYPE_CHECKING:
    from PIL.Image import Image

ITEMS_READ_TWICE = 32
"""Number of items that are read twice, to find random transforms."""
OTHER_COLORS = ("P", "PA", "LA", "La", "RGBA", "RGBa", "RGBX", "CMYK", "HSV", "YCbCr", "LAB")
"""Pillow's modes whose values are neither gray levels nor RGB, or that have more channels than these."""
ORIENTATION = 0x0112
"""The tag of EXIF."""
SIXTEEN_BITS = ("PNG", "PPM")
"""Formats without more bits, of which Pillow makes whole numbers of 32 bits all the same."""


def stack_items(
    where: str,
    split: str,
    data: Any,
    change: Callable[[Any], Any] = lambda sample: sample,
    channels_first: bool | None = None,
) -> tuple[Any, Any]:
    """Read all items of a data set with `len` and `[i]` that returns pairs (sample, label).

    Args:
        where: origin, for messages.
        split: name of the split, for messages.
        data: the data set; of a TensorDataset the tensors are used unchanged.
        change: function applied to every sample, such as resizing a picture.
        channels_first: whether samples of three axes are [C, H, W]; None if only tensors are.
    Returns:
        Samples [n, ...], images [n, H, W, C], and labels [n, ...]; of a TensorDataset its tensors unchanged.
    Raises:
        DataDamaged: if items are not pairs, or differ in shape or type; names the item.
    """
    if _is_plain_tensors(data):
        return data.tensors
    kind, count = type(data).__name__, 0
    with suppress(TypeError, ValueError):
        count = len(data)
    if count == 0:
        raise DataDamaged(f"{where}: {split}: expected samples counted by len(), got none from the {kind}.")
    samples, labels = np.empty(0), list[np.ndarray]()
    for index in range(count):
        item = _read_item(f"{where}: {split}: item {index} of {count} of the {kind}", data, index)
        sample = as_array(where, f"sample {index} of {split}", change(_upright_rgb(item[0], where)))
        labels.append(as_array(where, f"label {index} of {split}", item[1]))
        if index == 0:
            channels_first = is_tensor(item[0]) if channels_first is None else channels_first
            samples = np.empty((count, *sample.shape), sample.dtype)
        for name, each, first in (("sample", sample, samples[0]), ("label", labels[-1], labels[0])):
            if each.shape != first.shape or (name == "sample" and each.dtype != first.dtype):
                raise DataDamaged(
                    f"{where}: {split}: {name} {index} is {each.dtype} {list(each.shape)}, the first is {first.dtype} "
                    f"{list(first.shape)}; all must be alike. Resize or pad them (images of torchvision: data.size)."
                )
        samples[index] = sample
    return np.moveaxis(samples, 1, 3) if channels_first and samples.ndim == 4 else samples, np.stack(labels)


def _read_item(place: str, data: Any, index: int) -> Any:
    """Return a pair (sample, label).

    Raises:
        DataDamaged: if the item is no such pair, or differs when it is read again: a random transform would be applied
            once and then frozen.
    """
    try:
        item = data[index]
    except Exception as error:  # whatever the user's data set raises
        raise DataDamaged(f"{place} raises {type(error).__name__}: {error}. Correct len() or [i].") from error
    is_pair = isinstance(item, tuple | list) and len(item) == 2
    if not is_pair or (isinstance(item[0], tuple | list) and any(getattr(each, "shape", None) for each in item[0])):
        raise DataDamaged(
            f"{place} is {describe(item)}, expected a pair (sample, label) with one array as the sample. Return such "
            "pairs from __getitem__; join several arrays by torch.cat."
        )
    is_frozen = isinstance(data, list | tuple) or index >= ITEMS_READ_TWICE
    if not is_frozen and not all(map(_equal, item, data[index])):
        raise DataDamaged(
            f"{place} differs when it is read again, as by a random transform. Give the transform as "
            "ddlsim.data.Arrays(..., augment=transform) or training.augmentation, or freeze the items by list(data)."
        )
    return item


def _equal(one: Any, other: Any) -> bool:
    """Whether two readings of a sample or label agree, if they are arrays or pictures."""
    try:
        return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f")
    except (TypeError, ValueError, RuntimeError):
        return True


def _is_plain_tensors(data: Any) -> bool:
    """Whether it is a TensorDataset of samples and labels whose items are its tensors', without importing torch."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(data, torch.utils.data.TensorDataset):
        return False
    return len(data.tensors) == 2 and type(data).__getitem__ is torch.utils.data.TensorDataset.__getitem__


def _upright_rgb(sample: Any, where: str) -> Any:
    """Turn a picture by its EXIF orientation, and convert it to RGB if its values are neither gray levels nor RGB;
    return anything else unchanged.
    """
    if not hasattr(sample, "getexif"):
        return sample
    picture = upright(sample)
    return to_rgb8(picture, where) if picture.mode in OTHER_COLORS else picture


def upright(picture: "Image") -> "Image":
    """Turn a picture by the orientation that its camera has noted (EXIF)."""
    from PIL import ImageOps

    return picture if picture.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(picture)


def to_rgb8(picture: "Image", where: str) -> "Image":
    """Return a picture with 8 bits per channel; 16 bits of gray are scaled, 65535 to 255.

    Args:
        picture: of any mode.
        where: its origin, for messages.
    Raises:
        DataDamaged: if its values are of 32 bits and not those of 8 bits, so that the value of white is unknown.
    """
    if picture.mode.startswith("I;16") or (picture.mode == "I" and picture.format in SIXTEEN_BITS):
        from PIL import Image

        values = np.asarray(picture).astype(np.float32) / 257
        return Image.fromarray(np.rint(values).astype(np.uint8)).convert("RGB")
    values = np.asarray(picture) if picture.mode in ("I", "F") else np.zeros(1)
    low, high = values.min(), values.max()
    if picture.mode == "F" or low < 0 or high > 255:
        raise DataDamaged(
            f"{where}: expected a picture of 8 or 16 bits per channel, got one of 32 bits (mode {picture.mode}) with "
            f"values of {low:g} to {high:g}. Save it with values of 0 to 255, as 8 bits."
        )
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
