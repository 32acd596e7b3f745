"""The user's arrays: from Python code (also tensors and PyTorch data sets), or from a file .npz.

A scenario is text, so it contains the SHA-256 of samples from Python; the samples themselves are found by it as long as
something holds them: the part, or a scenario with it. A file .npz has Keras's layout: x_train, y_train, x_test and
y_test, and optionally columns such as speaker_train.
"""

import hashlib
import struct
import weakref
import zipfile
from collections.abc import Mapping, Sequence, Sized
from dataclasses import InitVar, dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Gt

from ddlsim.data import from_arrays
from ddlsim.data.dataset import Dataset, DataSettings, Pair, Task, finite, split_off
from ddlsim.data.from_arrays import as_labels, as_samples, as_texts, dataset_from_arrays, is_tensor
from ddlsim.data.pixels import is_mapped
from ddlsim.data.search import DOWNLOAD_AGAIN, DataSearch, damaged
from ddlsim.foundation import augmentation
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError, listing
from ddlsim.foundation.units import Count

WHERE = "data: Arrays"
LAYOUTS = (None, "channels_first", "channels_last", "signals")
_datasets: "weakref.WeakValueDictionary[str, Dataset]" = weakref.WeakValueDictionary()
"""SHA-256 -> the data set, while something holds it."""


@dataclass(frozen=True, kw_only=True)
class Arrays(DataSettings):
    """Arrays or PyTorch data sets from Python: ddlsim.data.Arrays(train=(x, y), test=(x, y)).

    Samples and labels are numpy arrays or torch tensors. A split may also be a torch Dataset, or anything else with
    `len` and `[i]` that gives pairs (sample, label), which is read once as a whole. Pictures that are neither gray nor
    RGB are converted to RGB. Arrays are as in `npz`: images uint8 [N, H, W] or [N, H, W, C], features floating [N, F]
    or as images, token ids of another integer type [N, ...]; tensors have their channels first, [N, C, H, W]. Labels
    are whole numbers [N] or [N, T], of a regression numbers [N]. Words as labels become classes in alphabetical order.
    Without `test`, `test_fraction` of each class of `train` is the test set, the same for every seed.

    The data are copied, so that their SHA-256 stays valid if the arrays change later. Only memory-mapped arrays are not
    copied; their digest is computed again wherever they are loaded, once per run.

    Only Python code can set `train`, `test`, `validation`, `columns` (name -> one value per training sample, or split
    -> values), `layout` (channels_first or channels_last, of samples with four axes; signals: floating [N, C, T], which
    models get unchanged) and `augment`, a transform of training samples, which becomes training.augmentation.

    Args:
        sha256: of the samples; represents them in a scenario's text.
        task: classification: labels are whole numbers from 0; regression: they are any numbers; next_token: they are
            token ids; multi_label: they are 0 or 1, [N, L].
        num_classes: number of labels; null: the highest label + 1.
        mean: per channel or one for all, on the scale 0..1 of uint8 images; null: 0.5 for uint8, 0 for features.
        std: likewise; null: 0.5 for uint8, 1 for features.
    """

    from_python: ClassVar = True
    sha256: str = ""
    task: Task = "classification"
    num_classes: Count | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[Annotated[float, Gt(0)], ...] | None = None
    train: InitVar[Any] = None
    test: InitVar[Any] = None
    validation: InitVar[Any] = None
    columns: InitVar[Mapping[str, Any] | None] = None
    layout: InitVar[Literal["channels_first", "channels_last", "signals"] | None] = None
    augment: InitVar[Any] = None
    test_fraction: InitVar[float] = 0.2

    def __post_init__(
        self, train: Any, test: Any, validation: Any, columns: Any, layout: Any, augment: Any, test_fraction: float
    ) -> None:
        object.__setattr__(self, "_augmentation", None if augment is None else augmentation.as_text(augment))
        from_arrays.refuse_classes_of_regression(self.task, self.num_classes)
        if train is None and test is None:
            if not self.sha256:
                raise ScenarioError("data: arrays come from Python: ddlsim.data.Arrays(train=(x, y), test=(x, y)).")
            object.__setattr__(self, "_held", _datasets.get(self.sha256))
            return
        if isinstance(train, Dataset):
            self._hold(train)
            return
        if train is None or layout not in LAYOUTS:
            raise ScenarioError(f"{WHERE}: expected train=(x, y), test=(x, y) and a layout of {LAYOUTS}, got {layout}.")
        for key, value, kind, expected in (
            ("num_classes", self.num_classes, Integral, "a whole number"),
            ("mean", self.mean, Sized, "a list of numbers, such as [0.5]"),
            ("std", self.std, Sized, "a list of numbers, such as [0.5]"),
            ("columns", columns, Mapping, "a mapping of names to values"),
        ):
            if value is not None and not isinstance(value, kind):
                raise ScenarioError(f"{WHERE}: {key}: expected {expected}, got a {type(value).__name__}.")
        named = {"train": train, "test": test, "validation": validation}
        splits = {key: read_split(key, data, self.task, layout) for key, data in named.items() if data is not None}
        kept = _columns(columns or {})
        if test is None:
            rows = dict(zip(("train", "test"), split_off(WHERE, splits["train"][1], test_fraction), strict=True))
            x, y = splits["train"]
            splits |= {split: (x[own], y[own]) for split, own in rows.items()}
            kept = kept and {key: {s: each["train"][own] for s, own in rows.items()} for key, each in kept.items()}
        splits, names = from_arrays.number_classes(WHERE, splits)
        task = self.task
        if task == "classification" and any(y.dtype == np.float32 for _, y in splits.values()):
            task = "regression"  # the scenario's task may be; `load` knows
            splits = {name: (x, y.astype(np.float32)) for name, (x, y) in splits.items()}
        classes = None if task == "regression" else self.num_classes
        scale = self.mean, self.std
        found = dataset_from_arrays("arrays", WHERE, splits, task, classes, *scale, kept)
        self._hold(replace(found, class_names=names))

    def _hold(self, found: Dataset) -> None:
        object.__setattr__(self, "sha256", _digest(found))
        object.__setattr__(self, "_held", _datasets.setdefault(self.sha256, found))

    @property
    def augmentation(self) -> Any:
        """Value that training.augmentation must have for its `augment`; None without one."""
        return vars(self)["_augmentation"]

    @property
    def own_validation(self) -> bool:
        """Whether a validation set was provided; true also for samples that are not available in this process."""
        held: Dataset | None = vars(self)["_held"]
        return held is None or held.validation_labels is not None

    def domains_for(self, num_clusters: int) -> int | None:
        held: Dataset | None = vars(self)["_held"]
        return None if held is None or held.domains is None else held.num_domains

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if the samples are not available in this process.
            DataDamaged: if labels do not fit the task, or a memory-mapped array has been written to since.
        """
        held: Dataset | None = vars(self)["_held"] or _datasets.get(self.sha256)
        if held is None:
            text = f"the samples of SHA-256 {self.sha256[:12]}... come from Python and are not in this process"
            raise DataMissing(f"data: {text}. Make the same ddlsim.data.Arrays(train=..., test=...) here first.")
        splits: dict[str, Pair] = {}
        for split in held.splits:
            x, y = held.samples(split)
            splits[split] = x, as_labels(WHERE, f"y_{split}", y, self.task)
        found = dataset_from_arrays(
            "arrays", "given from Python", splits, self.task, self.num_classes, self.mean, self.std, held.columns
        )
        about = {key: getattr(held, key) for key in ("class_names", "features", "domains")}
        found = replace(found, **about, notes=tuple(dict.fromkeys((*held.notes, *found.notes))))
        if any(is_mapped(array) for pair in splits.values() for array in pair):
            now = _digest(replace(held))  # of the values that are there now
            if now != self.sha256:
                change = f"expected samples of SHA-256 {self.sha256}, got {now}"
                raise DataDamaged(f"{WHERE}: a memory-mapped array has changed: {change}. Make the Arrays again.")
        found.__dict__["sha256"] = self.sha256  # it has been computed
        return found


def read_split(split: str, data: Any, task: str, layout: str | None) -> Pair:
    """Return the checked samples and labels of one split; numbers instead of classes are held as for a regression.

    Raises:
        DataDamaged, ScenarioError: if they are of another kind; names the kind.
    """
    x, y, layout = _raw_split(split, data, layout)
    channels_first = layout == "channels_first" or (layout is None and is_tensor(x))
    x, y = from_arrays.as_array(WHERE, f"x_{split}", x), from_arrays.as_array(WHERE, f"y_{split}", as_texts(y))
    if x.ndim == 4 and channels_first:
        x = np.moveaxis(x, 1, 3)
    elif x.ndim == 4 and layout is None and x.shape[1] in (1, 3) and x.shape[3] > 4 and x.dtype.kind in "uf":
        text = f"expected [N, H, W, C], got {list(x.shape)}. Pass layout='channels_first' or 'channels_last'"
        raise ScenarioError(f"{WHERE}: x_{split}: {text}.")
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y) or not len(x):
        shapes = f"x_{split} {list(x.shape)} and y_{split} {list(y.shape)}"
        raise DataDamaged(f"{WHERE}: {split}: expected at least one sample and as many labels, got {shapes}.")
    if task == "classification" and np.issubdtype(y.dtype, np.floating) and y.size == len(y):
        task = "regression"
    are_words = task == "classification" and y.dtype.kind == "U" and y.ndim == 1
    labels = y.copy() if are_words else _separate(as_labels(WHERE, f"y_{split}", y, task), y)
    if layout != "signals":
        return _separate(as_samples(WHERE, f"x_{split}", x), x), labels
    if x.ndim != 3 or not np.issubdtype(x.dtype, np.floating):
        raise DataDamaged(f"{WHERE}: x_{split}: expected signals, floating [N, C, T], got {x.dtype} {list(x.shape)}.")
    return finite(WHERE, f"x_{split}", x.astype(np.float32)), labels


def _raw_split(split: str, data: Any, layout: str | None) -> tuple[Any, Any, str | None]:
    """Return the samples, the labels and the layout of a pair or of a data set of items.

    Raises:
        DataDamaged, ScenarioError: if the argument is neither.
    """
    if isinstance(data, tuple) and len(data) == 2:
        return *data, layout
    has_items = hasattr(data, "__len__") and hasattr(data, "__getitem__") and not hasattr(data, "columns")
    if has_items and not isinstance(data, Mapping | np.ndarray | tuple):
        first = {"channels_first": True, "channels_last": False, "signals": False}.get(layout or "")
        x, y = from_arrays.stack_items(WHERE, split, data, channels_first=first)
        return x, y, layout if is_tensor(x) or layout in (None, "signals") else "channels_last"
    got = from_arrays.describe(data)
    raise ScenarioError(
        f"{WHERE}: {split}: expected (samples, labels) or a data set with len() and [i], got {got}. Give columns of a "
        "table as arrays, loader.dataset of a loader, list(data) of an iterable."
    )


def _separate(found: np.ndarray, original: np.ndarray) -> np.ndarray:
    """Return an array that does not change with the original, unless it is in a file."""
    shared = np.may_share_memory(found, original) and not is_mapped(found)
    return found.copy(order="K") if shared else found


def _columns(columns: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]] | None:
    """Columns of the training set, or of several splits."""
    found = {}
    for name, values in columns.items():
        by_split = values if isinstance(values, Mapping) else {"train": values}
        if "train" not in by_split:
            raise ScenarioError(f"{WHERE}: columns: {name} must have values for train, got {', '.join(by_split)}.")
        where = f"columns: {name}"
        found[name] = {s: from_arrays.as_array(WHERE, where, as_texts(own)).copy() for s, own in by_split.items()}
    return found or None


def _digest(dataset: Dataset) -> str:
    """Return the SHA-256 of samples, labels and, if any, the names of classes and features."""
    named = [dataset.class_names, dataset.features, dataset.domains and dataset.domains["train"].tolist()]
    text = f"{dataset.sha256} {named}"
    return hashlib.sha256(text.encode()).hexdigest() if any(named) else dataset.sha256


KERAS_KEYS = ("x_train", "y_train", "x_test", "y_test")
SAVE_AGAIN = (
    "Save it again, as numbers: numpy.savez(path, x_train=..., y_train=..., x_test=..., y_test=...); "
    "array.astype('float32') makes numbers of objects that are some."
)


@dataclass(frozen=True, kw_only=True)
class Npz(DataSettings):
    """User-supplied arrays in one .npz file, in Keras's layout: x_train, y_train, x_test, y_test.

    Images are uint8 [N, H, W] or [N, H, W, C]; floating-point features [N, F] or [N, H, W, C] are used unchanged, as
    are other integers (token ids) [N, T]. Labels are [N], or [N, T] for T labels per sample. Further arrays
    `<name>_train` (and `<name>_test`), one value per sample, are columns for `by_column`.

    Args:
        path: the file, relative to the working directory or to one of the data folders.
        task: classification: labels are whole numbers from 0; regression: they are any numbers; next_token: they are
            token ids; multi_label: they are 0 or 1, [N, L].
        num_classes: number of labels; null: the highest label + 1.
        mean: per channel or one for all, on the scale 0..1 of uint8 images; null: 0.5 for uint8, 0 for features.
        std: likewise; null: 0.5 for uint8, 1 for features.
        mapped: leave samples in the file and read them by the batch, for data sets larger than memory; the file must
            be uncompressed (numpy.savez), floating-point samples float32.
    """

    path: str
    task: Task = "classification"
    num_classes: Count | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[Annotated[float, Gt(0)], ...] | None = None
    mapped: bool = False

    def __post_init__(self) -> None:
        from_arrays.refuse_classes_of_regression(self.task, self.num_classes)

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if the file does not exist.
            DataDamaged: if it cannot be read.
        """
        path = search.find(self.path, "npz", "a file with x_train, y_train, x_test and y_test (numpy.savez).")
        arrays = _arrays(path, self.mapped, SAVE_AGAIN)
        splits, columns = _splits(path, arrays, self.task, integers=True), {}
        for name in (key.removesuffix("_train") for key in arrays.keys() - KERAS_KEYS if key.endswith("_train")):
            columns[name] = {split: arrays[key] for split in splits if (key := f"{name}_{split}") in arrays}
        keys = self.task, self.num_classes, self.mean, self.std
        return dataset_from_arrays("npz", str(path), splits, *keys, columns or None)


def read_keras_npz(path: Path) -> dict[str, Pair]:
    """Return the images and classes of both splits of a published .npz in Keras's layout.

    Images are uint8 or float32 [N, H, W, C] (a missing channel axis is added; a table [N, F] becomes [N, 1, F, 1]).
    Labels are int64 [N] (Keras's [N, 1] is flattened).

    Raises:
        DataDamaged: if an array is missing, cut, or of another kind.
    """
    return _splits(path, _arrays(path, False, DOWNLOAD_AGAIN), "classification", integers=False)


def _splits(path: Path, arrays: dict[str, np.ndarray], task: str, integers: bool) -> dict[str, Pair]:
    return {
        split: (
            as_samples(str(path), f"x_{split}", arrays[f"x_{split}"], integers),
            as_labels(str(path), f"y_{split}", arrays[f"y_{split}"], task),
        )
        for split in ("train", "test")
    }


def _arrays(path: Path, mapped: bool, advice: str) -> dict[str, np.ndarray]:
    """Return the arrays of the file, unchanged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            lacking = [key for key in KERAS_KEYS if key not in file]
            if lacking:
                raise damaged(path, f"no {', '.join(lacking)} in it; it has {listing(file.files) or 'nothing'}", advice)
            maps = _map_npz(path, ["x_train", "x_test"]) if mapped else {}
            arrays = {key: maps[key] if key in maps else file[key] for key in file.files}
    except (DataDamaged, ScenarioError):
        raise
    except Exception as error:  # a damaged header raises errors of any type
        raise damaged(path, str(error) or type(error).__name__, advice) from error
    for key, array in arrays.items():
        if not isinstance(array, np.ndarray):  # numpy returns an entry without a header as bytes
            raise damaged(path, f"{key} is not an array", advice)
        if isinstance(array, np.memmap) and array.dtype.kind == "f" and array.dtype != np.float32:
            raise DataDamaged(f"{path}: {key}: expected float32 for data.mapped, got {array.dtype}. Convert it.")
    return arrays


_NAME_LENGTH_AT, _LOCAL_HEADER_BYTES = 26, 30
"""In the header of a zip archive's entry (PKWARE, "APPNOTE", section 4.3.7)."""


def _map_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return arrays of an .npz that numpy.savez has written, memory-mapped.

    Args:
        path: the file.
        names: of the arrays.
    Raises:
        ScenarioError: if they are compressed.
        Exception: of any type, if the file is damaged.
    """
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(path) as file, path.open("rb") as raw:
        for name in names:
            entry = file.getinfo(f"{name}.npy")
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ScenarioError(f"data.mapped: {path} is compressed. Write it by numpy.savez, or set it to false.")
            raw.seek(entry.header_offset + _NAME_LENGTH_AT)
            name_bytes, extra_bytes = struct.unpack("<HH", raw.read(4))
            raw.seek(entry.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes)
            version = np.lib.format.read_magic(raw)
            head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = head(raw)
            found[name] = np.memmap(path, dtype, "r", raw.tell(), shape, "F" if fortran else "C")
    return found
