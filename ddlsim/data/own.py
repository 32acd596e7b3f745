"""A data set of one's own arrays, wherever they come from: shapes and types are checked, and classes counted."""

from collections.abc import Mapping, Sequence

import numpy as np

from ddlsim.data.cells import odd_cell
from ddlsim.data.dataset import Dataset, Task
from ddlsim.data.finite import finite, not_negative
from ddlsim.errors import DataDamaged, ScenarioError

MANY_CLASSES = 1000
"""So many classes may be counted from the highest label even where there are fewer samples."""

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
    """The data set of arrays that `as_samples` and `as_labels` have made.

    Args:
        name: as in YAML.
        origin: where the arrays come from, for messages and the manifest.
        splits: train, test and perhaps validation -> samples and labels.
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
    """Samples as a Dataset holds them.

    Args:
        where: file or other origin, for messages.
        key: name of the array there.
        array: images [N, H, W] or [N, H, W, C], uint8 or floating; a table [N, F], floating; with `integers` also
            integers of another type than uint8 (token ids), of any shape [N, ...].
        integers: whether integers are taken.
    Returns:
        Images as uint8 or float32 [N, H, W, C], a table as float32 [N, 1, F, 1]; integers as they are.
    Raises:
        DataDamaged: if the array is of another kind, or has values that are not finite.
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
    with np.errstate(over="ignore"):  # told below
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
    """A note on floating-point images whose values are those of bytes."""
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
    """The highest label + 1; a model has an output for each, so labels that are far apart are refused."""
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
