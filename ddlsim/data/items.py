"""Samples one by one, as PyTorch data sets and lists give them, as arrays."""

import random
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ddlsim.data.cells import odd_cell
from ddlsim.errors import DataDamaged

TRIED = 32
"""Items that are read twice, to find random transforms."""
OTHER_COLORS = ("P", "PA", "LA", "La", "RGBA", "RGBa", "RGBX", "CMYK", "HSV", "YCbCr", "LAB")
"""Pillow's modes whose values are neither gray levels nor RGB, or that have more channels than these."""


def read_items(
    where: str,
    split: str,
    data: Any,
    change: Callable[[Any], Any] = lambda sample: sample,
    channels_first: bool | None = None,
) -> tuple[Any, Any]:
    """All items of a data set with `len` and `[i]` that gives pairs (sample, label).

    Args:
        where: origin, for messages.
        split: name of the split, for messages.
        data: the data set; of a TensorDataset the tensors are taken as they are.
        change: what is done to every sample, such as resizing a picture.
        channels_first: whether samples of three axes are [C, H, W]; None: tensors are.
    Returns:
        Samples [n, ...], images [n, H, W, C], and labels [n, ...]; of a TensorDataset its tensors as they are.
    Raises:
        DataDamaged: if items are no pairs, or differ in shape or type; says which.
    """
    if _is_plain_tensors(data):
        return data.tensors
    try:
        count = len(data)
    except (TypeError, ValueError) as error:
        raise DataDamaged(
            f"{where}: {split}: expected a whole number from len() of the {type(data).__name__}, got: {error}."
        ) from error
    if count == 0:
        raise DataDamaged(f"{where}: {split}: expected at least one sample, got a {type(data).__name__} with none.")
    _refuse_random(where, split, data, count)
    samples: np.ndarray | None = None
    labels: list[np.ndarray] = []
    for index in range(count):
        try:
            item = data[index]
        except Exception as error:  # whatever the user's data set raises
            raise DataDamaged(
                f"{where}: {split}: item {index} of {count} of the {type(data).__name__} raises "
                f"{type(error).__name__}: {error}. Let len() count the items that [i] returns."
            ) from error
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataDamaged(
                f"{where}: {split}: item {index} of the {type(data).__name__} is {told(item)}, expected a pair "
                "(sample, label). Wrap it in a Dataset whose __getitem__ returns such pairs."
            )
        if isinstance(item[0], tuple | list) and any(getattr(each, "shape", None) for each in item[0]):
            raise DataDamaged(
                f"{where}: {split}: sample {index} of the {type(data).__name__} is {told(item[0])} arrays, and models "
                "take one input. Join them in __getitem__ by torch.cat, and take them apart in the model's forward."
            )
        sample = as_array(where, f"sample {index} of {split}", _as_colors(change(_upright(item[0])), where))
        if samples is None:
            channels_first = sample.ndim == 3 and (is_tensor(item[0]) if channels_first is None else channels_first)
            samples = np.empty((count, *sample.shape), sample.dtype)
        if sample.shape != samples.shape[1:] or sample.dtype != samples.dtype:
            raise DataDamaged(
                f"{where}: {split}: sample {index} is {sample.dtype} {list(sample.shape)}, the first is "
                f"{samples.dtype} {list(samples.shape[1:])}; all must be alike. Resize or pad them."
            )
        samples[index] = sample
        label = as_array(where, f"label {index} of {split}", item[1])
        if labels and label.shape != labels[0].shape:
            raise DataDamaged(
                f"{where}: {split}: label {index} has shape {list(label.shape)}, the first {list(labels[0].shape)}."
            )
        labels.append(label)
    assert samples is not None
    return np.moveaxis(samples, 1, 3) if channels_first else samples, np.stack(labels)


def _refuse_random(where: str, split: str, data: Any, count: int) -> None:
    """Raises DataDamaged if an item read twice differs: it would be read once, and its random transform frozen. All are
    read twice if reading some moves a global random generator.
    """
    if isinstance(data, list | tuple):
        return
    before = _generators()
    for index in range(count):
        if index == TRIED and _generators() == before:
            return
        first, again = data[index], data[index]
        if isinstance(first, tuple | list) and len(first) == 2 and not all(map(_equal, first, again)):
            raise DataDamaged(
                f"{where}: {split}: item {index} of the {type(data).__name__} differs when it is read again, so that a "
                "random transform would be applied once and then frozen. Take it out of the data set and give it as "
                "ddlsim.data.Arrays(..., augment=transform) or training.augmentation; list(data) freezes it on purpose."
            )


def _generators() -> tuple[Any, ...]:
    """The states of the global random generators, torch's if it is imported."""
    torch = sys.modules.get("torch")
    of_numpy = np.random.get_state()
    return random.getstate(), of_numpy[1].tobytes(), of_numpy[2], torch and torch.get_rng_state().numpy().tobytes()


def _equal(one: Any, other: Any) -> bool:
    """Whether two readings of a sample or label agree; of what is neither array nor picture it is not known."""
    try:
        return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f")
    except (TypeError, ValueError, RuntimeError):
        return True


def _upright(sample: Any) -> Any:
    """A picture turned by its EXIF orientation; anything else as it is."""
    if hasattr(sample, "getexif"):
        from ddlsim.data.eight_bits import upright

        return upright(sample)
    return sample


def _as_colors(sample: Any, where: str) -> Any:
    """A picture whose values are no gray levels or RGB, such as those of a palette, in RGB; anything else as it is."""
    if getattr(sample, "mode", None) in OTHER_COLORS and hasattr(sample, "getextrema"):
        from ddlsim.data.eight_bits import as_rgb

        return as_rgb(sample, where)
    return sample


def as_array(where: str, key: str, value: Any) -> np.ndarray:
    """An array, tensor, picture or list of numbers as an array.

    Raises:
        DataDamaged: if it is none of these, or values of it are masked.
    """
    try:
        found = _plain(value.detach().cpu()).numpy() if is_tensor(value) else value
        found = found if isinstance(found, np.ndarray) else np.asarray(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataDamaged(f"{where}: {key}: expected an array or tensor, got {told(value)}: {error}") from error
    if isinstance(found, np.ma.MaskedArray):
        found = _unmasked(where, key, found)
    if found.dtype == object:
        what = "an array of objects" if isinstance(value, np.ndarray) else told(value)
        what += odd_cell(found, getattr(value, "columns", None))
        raise DataDamaged(
            f"{where}: {key}: expected an array or tensor of numbers, got {what}. Give a transform that "
            "makes a tensor, and samples of one shape."
        )
    return found


def _plain(tensor: Any) -> Any:
    """A tensor of a type that numpy has: bfloat16 becomes float32, which holds all its values."""
    return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor


def _unmasked(where: str, key: str, array: np.ma.MaskedArray) -> np.ndarray:
    mask = np.ma.getmaskarray(array)
    if not mask.any():
        return np.asarray(array)
    first = f", the first in row {np.argwhere(mask)[0][0]}" if mask.ndim else ""
    raise DataDamaged(
        f"{where}: {key}: {np.count_nonzero(mask)} values are masked{first}. Take these samples out, or fill in "
        "numbers: .filled(...)."
    )


def _is_plain_tensors(data: Any) -> bool:
    """Whether it is a TensorDataset of samples and labels whose items are its tensors', without importing torch."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(data, torch.utils.data.TensorDataset):
        return False
    return len(data.tensors) == 2 and type(data).__getitem__ is torch.utils.data.TensorDataset.__getitem__


def is_tensor(value: Any) -> bool:
    """Whether it is a torch tensor, found without importing torch."""
    return hasattr(value, "detach") and hasattr(value, "numpy")


def told(value: Any) -> str:
    """What a value is, for messages."""
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with keys {', '.join(map(str, list(value)[:6]))}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
