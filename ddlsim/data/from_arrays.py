"""A data set of user-supplied arrays: shapes and types are checked, and classes counted.

Pictures become RGB with 8 bits per channel, upright, and scaled where Pillow would cut off values above 255. Samples
that are given one by one, as in PyTorch data sets and lists, become arrays.
"""

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.data.cells import odd_cell
from ddlsim.data.dataset import Dataset, Task, finite, not_negative
from ddlsim.foundation.errors import DataDamaged, ScenarioError

if TYPE_CHECKING:
    from PIL.Image import Image


MANY_CLASSES = 1000
"""Number of classes that may be counted from the highest label even if there are fewer samples."""

Pair = tuple[np.ndarray, np.ndarray]
"""Samples and labels of one split."""


def own_dataset(
    name: str,
    origin: str,
    splits: Mapping[str, Pair],
    task: Task = "classification",
    num_classes: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    columns: Mapping[str, Mapping[str, np.ndarray]] | None = None,
) -> Dataset:
    """Return the data set of arrays from `as_samples` and `as_labels`.

    Args:
        name: as in YAML.
        origin: origin of the arrays, for messages and the manifest.
        splits: train, test and optionally validation -> samples and labels.
        task: classification, regression, next_token or multi_label.
        num_classes: number of labels; None: the highest label + 1; of a multi-label task as many as there are.
        mean: per channel or one for all, on the scale 0..1 of uint8 images; None: 0.5 for uint8, 0 for others.
        std: likewise; None: 0.5 for uint8, 1 for others.
        columns: see Dataset.
    Raises:
        DataDamaged: if the arrays do not fit each other. ScenarioError: if mean or std do not fit them.
    """
    x_train, y_train = splits["train"]
    for split, (x, y) in splits.items():
        if x.dtype != x_train.dtype:
            raise DataDamaged(f"{origin}: x_train is {x_train.dtype}, x_{split} {x.dtype}; they must be alike.")
        if y.ndim != y_train.ndim:
            raise DataDamaged(
                f"{origin}: y_train is {list(y_train.shape)}, y_{split} {list(y.shape)}; both must be [N], or [N, T]."
            )
    labels = [y for _, y in splits.values()]
    if task == "multi_label" and y_train.ndim == 2:
        num_classes = y_train.shape[1]
    classes = 1 if task == "regression" else num_classes or count_classes(origin, labels)
    is_bytes, is_token = x_train.dtype == np.uint8, x_train.dtype.kind in "iu" and x_train.dtype != np.uint8
    if is_token:
        for split, (x, _) in splits.items():
            not_negative(origin, f"x_{split}", x)
    channels = 1 if is_token or x_train.ndim != 4 else x_train.shape[3]
    return Dataset(
        name,
        *splits["train"],
        *splits["test"],
        classes,
        per_channel((0.5 if is_bytes else 0.0,) if mean is None else mean, channels, "data.mean", origin),
        per_channel((0.5 if is_bytes else 1.0,) if std is None else std, channels, "data.std", origin),
        origin,
        task,
        *splits.get("validation", (None, None)),
        columns=columns,
        num_tokens=max(int(x.max()) for x, _ in splits.values()) + 1 if is_token else None,
        notes=(
            *(_absent(origin, labels, classes) if task == "classification" and num_classes is None else ()),
            *(_whole_levels(origin, x_train) if mean is None and std is None else ()),
        ),
    )


def as_samples(where: str, key: str, array: np.ndarray, integers: bool = True) -> np.ndarray:
    """Return samples in the form that a Dataset holds.

    Args:
        where: file or other origin, for messages.
        key: name of the array there.
        array: images [N, H, W] or [N, H, W, C], uint8 or floating; a table [N, F], floating; with `integers` also
            integers of another type than uint8 (token ids), of any shape [N, ...].
        integers: whether integers are taken.
    Returns:
        Images as uint8 or float32 [N, H, W, C], a table as float32 [N, 1, F, 1]; integers unchanged.
    Raises:
        DataDamaged: if the array has another type or shape, or values that are not finite.
    """
    if integers and array.ndim and array.dtype != np.uint8 and np.issubdtype(array.dtype, np.integer):
        if array.ndim > 2:
            raise DataDamaged(
                f"{where}: {key}: integers other than uint8 are token ids [N, T], got {array.dtype} "
                f"{list(array.shape)}. Convert images of 0..255 by .astype('uint8'), deeper ones by "
                "(x / 65535).astype('float32'), features by .astype('float32')."
            )
        return array
    if array.dtype != np.uint8 and not np.issubdtype(array.dtype, np.floating):
        also = ", or integers of another type (token ids)" if integers else ""
        raise DataDamaged(
            f"{where}: {key}: expected uint8 or floating-point images or features{also}, got {array.dtype} "
            f"{list(array.shape)}{odd_cell(array) if array.dtype.kind in 'US' else ''}. Convert it, for example with "
            ".astype('float32')."
        )
    if array.ndim not in (2, 3, 4):
        raise DataDamaged(
            f"{where}: {key}: expected images [N, H, W] or [N, H, W, C] or a table [N, F], got {list(array.shape)}. "
            "Reshape it."
        )
    if array.ndim == 2 and array.dtype == np.uint8:
        raise DataDamaged(
            f"{where}: {key}: expected images [N, H, W] or [N, H, W, C] where samples are uint8, got a table "
            f"{list(array.shape)}, whose numbers would be scaled as pixels are. Convert it with .astype('float32'), or "
            "reshape images to [N, H, W]."
        )
    array = array[:, None, :, None] if array.ndim == 2 else array[..., None] if array.ndim == 3 else array
    if array.dtype == np.uint8:
        return array
    with np.errstate(over="ignore"):  # reported below
        return finite(where, key, array.astype(np.float32, copy=False))


def as_labels(where: str, key: str, array: np.ndarray, task: str) -> np.ndarray:
    """Labels as a Dataset holds them: int64 [N] or [N, T], of a regression float32 [N]; [N, 1] is flattened, but of a
    multi-label task.

    Raises:
        DataDamaged: if they are of another kind, not finite, or one-hot.
    """
    if array.ndim == 2 and array.shape[1] == 1 and task != "multi_label":
        array = array[:, 0]
    found = f"got {array.dtype} {list(array.shape)}"
    if task == "regression":
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.number):
            raise DataDamaged(f"{where}: {key}: labels of a regression must be numbers [N], {found}.")
        with np.errstate(over="ignore"):
            return finite(where, key, array.astype(np.float32))
    if task == "classification" and array.ndim == 2 and array.shape[1] > 2 and len(array) > 1 and _one_hot(array):
        raise DataDamaged(
            f"{where}: {key}: labels must be whole numbers [N], these are one-hot, {list(array.shape)}. Use "
            f"{key}.argmax(1), or set task: multi_label."
        )
    if array.ndim not in (1, 2) or not np.issubdtype(array.dtype, np.integer):
        todo = ""
        if array.ndim == 1 and np.issubdtype(array.dtype, np.floating):
            todo = " Convert them with .astype('int64'), or set task: regression."
        elif array.dtype == bool:
            todo = " Convert them with .astype('int64')."
        elif array.ndim == 1 and array.dtype.kind in "US":
            todo = " Number the classes: numpy.unique(labels, return_inverse=True)[1]."
        raise DataDamaged(f"{where}: {key}: labels must be whole numbers [N] or [N, T], {found}.{todo}")
    return array.astype(np.int64, copy=False)


def _whole_levels(where: str, x: np.ndarray) -> tuple[str, ...]:
    """Return a note on floating-point images whose values are those of bytes."""
    if x.ndim != 4 or x.shape[1] == 1 or x.dtype == np.uint8:
        return ()
    some = x[:64]
    if some.min() < 0 or not 1 < some.max() <= 255 or (some != np.rint(some)).any():
        return ()
    return (
        f"{where}: images are whole numbers up to {some.max():g} in {x.dtype}, which are not scaled: "
        "convert them by .astype('uint8'), or give mean and std",
    )


def _absent(where: str, labels: Sequence[np.ndarray], classes: int) -> tuple[str, ...]:
    """A note on classes below the highest label that no sample has."""
    occur = np.unique(np.concatenate([own.ravel() for own in labels]))
    absent = np.setdiff1d(np.arange(classes), occur)
    if not len(absent):
        return ()
    shown, more = ", ".join(map(str, absent[:5])), ", ..." if len(absent) > 5 else ""
    cure = (
        "subtract 1 from the labels" if absent.tolist() == [0] else "numpy.unique(y, return_inverse=True)[1] renumbers"
    )
    return (
        f"{where}: class {shown}{more} has no samples, but models have an output for it: {cure}; if it exists, "
        f"set num_classes: {classes}",
    )


def count_classes(where: str, labels: Sequence[np.ndarray]) -> int:
    """Return the highest label + 1; a model has an output for each, so labels that are far apart are refused."""
    classes = max(int(own.max(initial=0)) for own in labels) + 1
    samples = sum(map(len, labels))
    if classes > max(samples, MANY_CLASSES):
        raise DataDamaged(
            f"{where}: labels must be whole numbers from 0, one after the other; the highest is {classes - 1}, which "
            f"would be {classes} classes of {samples} samples. Number the classes anew, or give data.num_classes."
        )
    return classes


def per_channel(values: Sequence[float], channels: int, key: str, where: str) -> np.ndarray:
    """One value per channel, float32 [C]; a single one is used for all.

    Raises:
        ScenarioError: if there is another number of them.
    """
    if len(values) not in (1, channels):
        raise ScenarioError(
            f"{key}: expected one value, or one for each of the {channels} channels of {where}, got {len(values)}."
        )
    return np.broadcast_to(np.float32(values), channels).copy()


def _one_hot(array: np.ndarray) -> bool:
    return bool(((array == 0) | (array == 1)).all() and (array.sum(axis=1) == 1).all())


ORIENTATION = 0x0112
"""The tag of EXIF."""
SIXTEEN_BITS = ("PNG", "PPM")
"""Formats without more bits, of which Pillow makes whole numbers of 32 bits all the same."""


def upright(picture: "Image") -> "Image":
    """Turn a picture by the orientation that its camera has noted (EXIF)."""
    from PIL import ImageOps

    return picture if picture.getexif().get(ORIENTATION, 1) == 1 else ImageOps.exif_transpose(picture)


def as_rgb(picture: "Image", where: str) -> "Image":
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
    if picture.mode in ("I", "F"):
        low, high = picture.getextrema()
        if picture.mode == "F" or low < 0 or high > 255:
            raise DataDamaged(
                f"{where}: expected a picture of 8 or 16 bits per channel, got one of 32 bits (mode {picture.mode}) "
                f"with values of {low:g} to {high:g}. Save it with values of 0 to 255, as 8 bits."
            )
    return picture.convert("RGB")


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
                f"{where}: {split}: item {index} of the {type(data).__name__} is {describe(item)}, expected a pair "
                "(sample, label). Wrap it in a Dataset whose __getitem__ returns such pairs."
            )
        if isinstance(item[0], tuple | list) and any(getattr(each, "shape", None) for each in item[0]):
            raise DataDamaged(
                f"{where}: {split}: sample {index} of the {type(data).__name__} is {describe(item[0])} arrays, and "
                "models take one input. Join them in __getitem__ by torch.cat, and split them in the model's forward."
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
    """Raise DataDamaged if an item read twice differs: it would be read once, and its random transform frozen. All
    items are read twice if reading some changes a global random generator.
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
    """Whether two readings of a sample or label agree, as far as they are arrays or pictures."""
    try:
        return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind == "f")
    except (TypeError, ValueError, RuntimeError):
        return True


def _upright(sample: Any) -> Any:
    """Turn a picture by its EXIF orientation; return anything else unchanged."""
    if hasattr(sample, "getexif"):
        pass  # joined

        return upright(sample)
    return sample


def _as_colors(sample: Any, where: str) -> Any:
    """Convert a picture whose values are neither gray levels nor RGB, such as those of a palette, to RGB; return
    anything else unchanged.
    """
    if getattr(sample, "mode", None) in OTHER_COLORS and hasattr(sample, "getextrema"):
        pass  # joined

        return as_rgb(sample, where)
    return sample


def as_array(where: str, key: str, value: Any) -> np.ndarray:
    """Return an array, tensor, picture or list of numbers as an array.

    Raises:
        DataDamaged: if it is of another type, or has masked values.
    """
    try:
        found = _plain(value.detach().cpu()).numpy() if is_tensor(value) else value
        found = found if isinstance(found, np.ndarray) else np.asarray(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataDamaged(f"{where}: {key}: expected an array or tensor, got {describe(value)}: {error}") from error
    if isinstance(found, np.ma.MaskedArray):
        found = _unmasked(where, key, found)
    if found.dtype == object:
        what = "an array of objects" if isinstance(value, np.ndarray) else describe(value)
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


def describe(value: Any) -> str:
    """Return a description of a value, for messages."""
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with keys {', '.join(map(str, list(value)[:6]))}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"
