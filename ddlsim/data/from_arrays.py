"""Data sets of user-supplied arrays and items: shapes and types are checked, classes counted, items stacked."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ddlsim.data.dataset import Dataset, Pair, Task, check_tokens, finite
from ddlsim.data.pixels import gray_or_rgb
from ddlsim.data.table import odd_cell
from ddlsim.foundation.errors import DataDamaged, ScenarioError, listing

MANY_CLASSES = 1000
"""Number of classes that may be counted from the highest label even if there are fewer samples."""


def dataset_from_arrays(
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
    labels = [y for _, y in splits.values()]
    if task == "multi_label" and y_train.ndim == 2:
        num_classes = y_train.shape[1]
    classes = 1 if task == "regression" else num_classes or _count_classes(origin, labels)
    is_bytes, is_token = x_train.dtype == np.uint8, x_train.dtype.kind in "iu" and x_train.dtype != np.uint8
    if is_token:
        for split, (x, _) in splits.items():
            check_tokens(origin, f"x_{split}", x)
    channels = 1 if is_token or x_train.ndim != 4 else x_train.shape[3]
    notes: tuple[str, ...] = ()
    if task == "classification" and num_classes is None:
        notes += _absent(origin, labels, classes)
    if mean is None and std is None:
        notes += _whole_levels(origin, x_train)
    tokens = max(int(x.max()) for x, _ in splits.values()) + 1 if is_token else None
    keys: dict[str, Any] = {"task": task, "columns": columns, "num_tokens": tokens, "notes": notes}
    keys["mean"] = _per_channel((0.5 if is_bytes else 0.0,) if mean is None else mean, channels, "data.mean", origin)
    keys["std"] = _per_channel((0.5 if is_bytes else 1.0,) if std is None else std, channels, "data.std", origin)
    return Dataset.of_splits(name, origin, splits, classes, **keys)


def refuse_classes_of_regression(task: str, num_classes: int | None) -> None:
    """Raise ScenarioError if a regression has a number of classes."""
    if task == "regression" and num_classes is not None:
        raise ScenarioError("num_classes: a regression has no classes. Leave it out, or set task: classification.")


def as_samples(where: str, key: str, array: np.ndarray, integers: bool = True) -> np.ndarray:
    """Return samples in the form that a Dataset holds.

    Args:
        where: file or other origin, for messages.
        key: name of the array there.
        array: images [N, H, W] or [N, H, W, C], uint8 or floating; a table [N, F], floating; with `integers` also
            integers of another type than uint8 (token ids), [N] or [N, T].
        integers: whether integers are accepted.
    Returns:
        Images as uint8 or float32 [N, H, W, C], a table as float32 [N, 1, F, 1]; integers unchanged.
    Raises:
        DataDamaged: if the array has another type or shape, or values that are not finite.
    """
    is_bytes, is_floating = array.dtype == np.uint8, np.issubdtype(array.dtype, np.floating)
    if integers and not is_bytes and np.issubdtype(array.dtype, np.integer) and array.ndim in (1, 2):
        return array
    if array.ndim not in ((3, 4) if is_bytes else (2, 3, 4)) or not (is_bytes or is_floating):
        odd = odd_cell(array) if array.dtype.kind in "US" else ""
        kinds = "images [N, H, W] or [N, H, W, C], uint8 or floating, or a floating table [N, F]"
        kinds += ", or token ids [N, T] of another integer type" if integers else ""
        raise DataDamaged(
            f"{where}: {key}: expected {kinds}, got {array.dtype} {list(array.shape)}{odd}. Convert images of 0 to 255 "
            "with .astype('uint8'), features with .astype('float32'), deeper images with (x / 65535).astype('float32')."
        )
    array = array[:, None, :, None] if array.ndim == 2 else array[..., None] if array.ndim == 3 else array
    if is_bytes:
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
    if task == "regression":
        fits, expected = array.ndim == 1 and np.issubdtype(array.dtype, np.number), "numbers [N]"
    else:
        fits, expected = np.issubdtype(array.dtype, np.integer) and array.ndim in (1, 2), "whole numbers [N] or [N, T]"
    if fits and task == "classification" and array.ndim == 2 and array.shape[1] > 2 and _is_one_hot(array):
        fits, expected = False, "whole numbers [N]"
    if not fits:
        got = f"{array.dtype} {list(array.shape)}"
        raise DataDamaged(
            f"{where}: {key}: expected labels that are {expected} (task: {task}), got {got}. Convert numbers with "
            ".astype('int64'), one-hot rows with .argmax(1), words with numpy.unique, or set task: regression."
        )
    if task != "regression":
        return array.astype(np.int64, copy=False)
    with np.errstate(over="ignore"):
        return finite(where, key, array.astype(np.float32))


def _is_one_hot(array: np.ndarray) -> bool:
    return len(array) > 1 and bool(np.isin(array, (0, 1)).all() and (array.sum(axis=1) == 1).all())


def _whole_levels(where: str, x: np.ndarray) -> tuple[str, ...]:
    """Return a note on floating-point images whose values look like bytes."""
    some = x[:64]
    are_images = x.ndim == 4 and x.shape[1] > 1 and x.dtype != np.uint8
    if not are_images or some.min() < 0 or not 1 < some.max() <= 255 or (some != np.rint(some)).any():
        return ()
    text = f"{where}: {x.dtype} images of whole numbers up to {some.max():g} are not scaled"
    return (f"{text}: convert them by .astype('uint8'), or give mean and std",)


def _absent(where: str, labels: Sequence[np.ndarray], classes: int) -> tuple[str, ...]:
    """Return a note on classes below the highest label that no sample has."""
    absent = np.setdiff1d(np.arange(classes), np.concatenate([own.ravel() for own in labels]))
    if not len(absent):
        return ()
    return (
        f"{where}: class {listing(absent.tolist(), 5)} has no samples, but models have an output for it. "
        f"Renumber labels by numpy.unique(y, return_inverse=True)[1]; if the class exists, set num_classes: {classes}",
    )


def _count_classes(where: str, labels: Sequence[np.ndarray]) -> int:
    """Return the highest label + 1; a model has an output for each, so labels that are far apart are refused."""
    classes = max(int(own.max(initial=0)) for own in labels) + 1
    samples = sum(map(len, labels))
    if classes > max(samples, MANY_CLASSES):
        text = f"expected labels from 0, one after the other, got up to {classes - 1} in {samples} samples"
        raise DataDamaged(f"{where}: {text}. Renumber the classes, or give data.num_classes.")
    return classes


def _per_channel(values: Sequence[float], channels: int, key: str, where: str) -> list[float]:
    """Return one value per channel; a single one is used for all.

    Raises:
        ScenarioError: if there is another number of them.
    """
    if len(values) not in (1, channels):
        raise ScenarioError(f"{key}: expected 1 or {channels} values, as channels of {where}, got {len(values)}.")
    return np.broadcast_to(values, channels).tolist()


def as_array(where: str, key: str, value: Any) -> np.ndarray:
    """Return an array, tensor, picture or list of numbers as an array.

    Raises:
        DataDamaged: if it is of another type, or has masked values.
    """
    kind = describe(value)
    if np.ma.is_masked(value):
        raise DataDamaged(f"{where}: {key}: {np.ma.count_masked(value)} values are masked. Fill them in by .filled().")
    try:
        if is_tensor(value):  # bfloat16, which numpy lacks, becomes float32, which holds all its values
            tensor = value.detach().cpu()
            value = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
        found = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataDamaged(f"{where}: {key}: expected an array or tensor, got {kind}: {error}") from error
    if found.dtype == object:
        got = f"{kind} of objects{odd_cell(found, getattr(value, 'columns', None))}"
        raise DataDamaged(f"{where}: {key}: expected an array or tensor of numbers, got {got}. Make shapes equal.")
    return found


def as_texts(values: Any) -> Any:
    """Return texts, of which pandas and NumPy also make arrays of objects, as an array of texts; others unchanged."""
    is_of_pandas = hasattr(values, "__array__") and not isinstance(values, np.ndarray) and not is_tensor(values)
    found = np.asarray(values) if is_of_pandas else values
    is_text = (
        isinstance(found, np.ndarray) and found.dtype.kind in "OS" and all(isinstance(x, str | bytes) for x in found)
    )
    return found.astype(str) if is_text and len(found) else found


def number_classes(where: str, splits: Mapping[str, Pair]) -> tuple[dict[str, Pair], tuple[str, ...]]:
    """Number labels that are words in alphabetical order over all splits; return the splits, and the words.

    Raises:
        DataDamaged: if only some splits have words.
    """
    kinds = {y.dtype.kind == "U" for _, y in splits.values()}
    if kinds == {False}:
        return dict(splits), ()
    if len(kinds) > 1:
        raise DataDamaged(f"{where}: expected words or numbers as labels of all splits, got both. Use one of them.")
    names = np.unique(np.concatenate([y for _, y in splits.values()]))
    return {split: (x, np.searchsorted(names, y)) for split, (x, y) in splits.items()}, tuple(names.tolist())


def is_tensor(value: Any) -> bool:
    """Whether it is a torch tensor, found without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def describe(value: Any) -> str:
    """Return a description of a value, for messages."""
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with keys {', '.join(map(str, list(value)[:6]))}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


ITEMS_READ_TWICE = 32
"""Number of items that are read twice, to find random transforms."""


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
        picture = gray_or_rgb(item[0], where) if hasattr(item[0], "getexif") else item[0]
        sample = as_array(where, f"sample {index} of {split}", change(picture))
        labels.append(as_array(where, f"label {index} of {split}", item[1]))
        if index == 0:
            channels_first = is_tensor(item[0]) if channels_first is None else channels_first
            samples = np.empty((count, *sample.shape), sample.dtype)
        for name, each, first in (("sample", sample, samples[0]), ("label", labels[-1], labels[0])):
            if each.shape != first.shape or (name == "sample" and each.dtype != first.dtype):
                pair = f"is {each.dtype} {list(each.shape)}, the first is {first.dtype} {list(first.shape)}"
                raise DataDamaged(f"{where}: {split}: {name} {index} {pair}. Resize or pad them (data.size).")
        samples[index] = sample
    return np.moveaxis(samples, 1, 3) if channels_first and samples.ndim == 4 else samples, np.stack(labels)


def _read_item(place: str, data: Any, index: int) -> Any:
    """Return a pair (sample, label).

    Raises:
        DataDamaged: if the item is not such a pair, or differs when it is read again: a random transform would be
            applied once and then frozen.
    """
    try:
        item = data[index]
    except Exception as error:  # whatever the user's data set raises
        raise DataDamaged(f"{place} raises {type(error).__name__}: {error}. Correct len() or [i].") from error
    is_pair = isinstance(item, tuple | list) and len(item) == 2
    if not is_pair or (isinstance(item[0], tuple | list) and any(getattr(each, "shape", None) for each in item[0])):
        text = f"{place} is {describe(item)}, expected a pair (sample, label) with one array as the sample"
        raise DataDamaged(f"{text}. Return such pairs from __getitem__; join several arrays by torch.cat.")
    is_frozen = isinstance(data, list | tuple) or index >= ITEMS_READ_TWICE
    if not is_frozen and not all(map(_equal, item, data[index])):
        cure = "Give it as ddlsim.data.Arrays(..., augment=transform), or freeze the items by list(data)"
        raise DataDamaged(f"{place} differs when it is read again, as by a random transform. {cure}.")
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
