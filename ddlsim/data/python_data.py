"""Arrays, tensors and PyTorch data sets from Python code, and .npz files in Keras's layout (x_train, y_train, x_test,
y_test).

A scenario is text, so it contains the SHA-256 of the samples; the samples themselves are found by it as long as
something holds them: the part, or a scenario with it.
"""

import weakref
from collections.abc import Mapping, Sized
from dataclasses import InitVar, dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Gt

from ddlsim.data.dataset import DataSearch, Dataset, DataSettings, Task, finite
from ddlsim.data.from_arrays import Pair, as_array, as_labels, as_samples, is_tensor, own_dataset, read_items
from ddlsim.data.standard import read_columns, read_keras_npz
from ddlsim.data.uint8_images import is_mapped
from ddlsim.foundation import augmentation
from ddlsim.foundation.errors import DataDamaged, DataMissing, ScenarioError
from ddlsim.foundation.units import Count

WHERE = "data: Arrays"
_given: "weakref.WeakValueDictionary[str, Dataset]" = weakref.WeakValueDictionary()
"""SHA-256 -> the data set, while something holds it."""


@dataclass(frozen=True, kw_only=True)
class Arrays(DataSettings):
    """Arrays or PyTorch data sets from Python: ddlsim.data.Arrays(train=(x, y), test=(x, y)).

    Samples and labels are numpy arrays or torch tensors; a split may also be a torch Dataset, or anything else with
    `len` and `[i]` that gives pairs (sample, label), which is read once as a whole; pictures that are neither gray nor
    RGB are converted to RGB. Arrays are as in `npz`: images uint8 [N, H, W] or [N, H, W, C], features floating [N, F]
    or as images, token ids of another integer type [N, ...]; tensors have their channels first, [N, C, H, W]. Labels
    are whole numbers [N] or [N, T], of a regression numbers [N].

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

    def __post_init__(self, train: Any, test: Any, validation: Any, columns: Any, layout: Any, augment: Any):
        object.__setattr__(self, "_augmentation", None if augment is None else augmentation.as_text(augment))
        if self.task == "regression" and self.num_classes is not None:
            raise ScenarioError("num_classes: a regression has no classes. Leave it out, or set task: classification.")
        if layout not in (None, "channels_first", "channels_last", "signals"):
            raise ScenarioError(f"{WHERE}: layout is channels_first, channels_last or signals, got {layout!r}.")
        if train is None and test is None:
            if not self.sha256:
                raise ScenarioError(
                    "data: arrays come from Python: ddlsim.data.Arrays(train=(x, y), test=(x, y)). In a file, name "
                    "npz, image-folder or another data set."
                )
            object.__setattr__(self, "_held", _given.get(self.sha256))
            return
        for key, given, kind, expected in (
            ("num_classes", self.num_classes, Integral, "a whole number"),
            ("mean", self.mean, Sized, "a list of numbers, such as [0.5]"),
            ("std", self.std, Sized, "a list of numbers, such as [0.5]"),
            ("columns", columns, Mapping, "a mapping of names to values"),
        ):
            if given is not None and not isinstance(given, kind):
                raise ScenarioError(f"{WHERE}: {key}: expected {expected}, got a {type(given).__name__}.")
        if train is None or test is None:
            lacking = "train" if train is None else "test"
            raise ScenarioError(
                f"{WHERE}: expected train=(x, y) and test=(x, y), {lacking} is missing. Split your samples in two."
            )
        named = {"train": train, "test": test, "validation": validation}
        splits = {
            name: read_split(name, given, self.task, layout) for name, given in named.items() if given is not None
        }
        task = self.task
        if task == "classification" and any(y.dtype == np.float32 for _, y in splits.values()):
            task = "regression"  # the scenario's task may be; `load` knows
            splits = {name: (x, y.astype(np.float32)) for name, (x, y) in splits.items()}
        classes = None if task == "regression" else self.num_classes
        made = own_dataset("arrays", WHERE, splits, task, classes, self.mean, self.std, _columns(columns or {}))
        kept = _given.setdefault(made.sha256, made)
        object.__setattr__(self, "sha256", made.sha256)
        object.__setattr__(self, "_held", kept)

    @property
    def augmentation(self) -> Any:
        """Value that training.augmentation must have for its `augment`; None without one."""
        return vars(self)["_augmentation"]

    @property
    def own_validation(self) -> bool:
        """Whether a validation set was provided; true also for samples that are not available in this process."""
        held: Dataset | None = vars(self)["_held"]
        return held is None or held.validation_labels is not None

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if the samples are not available in this process.
            DataDamaged: if labels do not fit the task, or a memory-mapped array has been written to since.
        """
        held: Dataset | None = vars(self)["_held"] or _given.get(self.sha256)
        if held is None:
            raise DataMissing(
                f"data: the samples of SHA-256 {self.sha256[:12]}... were given from Python and are not in this "
                "process. Make the same ddlsim.data.Arrays(train=..., test=...) here first; or keep them in a file: "
                "numpy.savez(path, x_train=..., y_train=..., ...), and use {name: npz, path: ...}."
            )
        splits: dict[str, Pair] = {}
        for split in held.splits:
            x, y = held.samples(split)
            splits[split] = x, as_labels(WHERE, f"y_{split}", y, self.task)
        made = own_dataset(
            "arrays", "given from Python", splits, self.task, self.num_classes, self.mean, self.std, held.columns
        )
        if any(is_mapped(array) for pair in splits.values() for array in pair):
            now = replace(held).sha256  # of the values that are there now
            if now != self.sha256:
                raise DataDamaged(
                    f"{WHERE}: a memory-mapped array has changed: the SHA-256 of the samples was {self.sha256}, is "
                    f"{now}. Make the ddlsim.data.Arrays anew."
                )
        made.__dict__["sha256"] = self.sha256  # it has been computed
        return made


def read_split(split: str, given: Any, task: str, layout: str | None) -> Pair:
    """Return the checked samples and labels of one split; numbers instead of classes are held as for a regression.

    Raises:
        DataDamaged, ScenarioError: if they are of another kind; names the kind.
    """
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ScenarioError(f"{WHERE}: {split}: expected (samples, labels), got a tuple of {len(given)}.")
        x, y = given
    elif hasattr(given, "columns"):
        raise ScenarioError(
            f"{WHERE}: {split}: expected (samples, labels), got one {type(given).__name__}. Give its columns apart: "
            "(df[features].to_numpy('float32'), df[label].to_numpy())."
        )
    elif hasattr(given, "__len__") and hasattr(given, "__getitem__") and not isinstance(given, Mapping | np.ndarray):
        first = {"channels_first": True, "channels_last": False, "signals": False}.get(layout or "")
        x, y = read_items(WHERE, split, given, channels_first=first)
        layout = (
            layout if is_tensor(x) or layout in (None, "signals") else "channels_last"
        )  # the items after conversion
    else:
        todo = " An iterable data set can be read into a list: list(data)." if hasattr(given, "__iter__") else ""
        if hasattr(given, "batch_size") and hasattr(given, "dataset"):
            todo = " Give what it loads, loader.dataset: mini-batches are drawn by the simulator."
        if isinstance(given, np.ndarray):
            todo = (
                " Arrays are given as data=((x, y), (x_test, y_test)): samples and labels, for training and for tests."
            )
        raise ScenarioError(
            f"{WHERE}: {split}: expected (samples, labels) or a data set with len() and [i], got a "
            f"{type(given).__name__}.{todo}"
        )
    first = layout == "channels_first" or (layout is None and is_tensor(x))
    x, y = as_array(WHERE, f"x_{split}", x), as_array(WHERE, f"y_{split}", y)
    if x.ndim == 4 and first:
        x = np.moveaxis(x, 1, 3)
    elif x.ndim == 4 and layout is None and x.shape[1] in (1, 3) and x.shape[3] > 4 and x.dtype.kind in "uf":
        raise ScenarioError(
            f"{WHERE}: x_{split} is {list(x.shape)}, which looks like [N, C, H, W]. Arrays are [N, H, W, C]; pass "
            "layout='channels_first', or layout='channels_last' if it is meant so."
        )
    if len(x) != len(y) if x.ndim and y.ndim else True:
        raise DataDamaged(
            f"{WHERE}: {split}: expected as many labels as samples, got x_{split} {list(x.shape)} and y_{split} "
            f"{list(y.shape)}."
        )
    if len(x) == 0:
        raise DataDamaged(f"{WHERE}: {split}: expected at least one sample, got none.")
    if task == "classification" and np.issubdtype(y.dtype, np.floating) and y.size == len(y):
        task = "regression"
    if layout == "signals" and (x.ndim != 3 or not np.issubdtype(x.dtype, np.floating)):
        raise DataDamaged(f"{WHERE}: x_{split}: expected signals, floating [N, C, T], got {x.dtype} {list(x.shape)}.")
    if layout == "signals":
        signals = finite(WHERE, f"x_{split}", x.astype(np.float32))
        return signals, _apart(as_labels(WHERE, f"y_{split}", y, task), y)
    return _apart(as_samples(WHERE, f"x_{split}", x), x), _apart(as_labels(WHERE, f"y_{split}", y, task), y)


def _apart(made: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return an array that does not change with the original, unless it is in a file."""
    shared = np.may_share_memory(made, given) and not is_mapped(made)
    return made.copy(order="K") if shared else made


def _columns(given: Mapping[str, Any]) -> dict[str, dict[str, np.ndarray]] | None:
    """Columns of the training set, or of several splits."""
    found = {}
    for name, values in given.items():
        by_split = values if isinstance(values, Mapping) else {"train": values}
        if "train" not in by_split:
            raise ScenarioError(f"{WHERE}: columns: {name} must have values for train, got {', '.join(by_split)}.")
        found[name] = {split: _column(name, own) for split, own in by_split.items()}
    return found or None


def _column(name: str, given: Any) -> np.ndarray:
    """The values of a column: numbers, or texts, of which pandas and NumPy also make arrays of objects."""
    from_elsewhere = hasattr(given, "__array__") and not isinstance(given, np.ndarray) and not is_tensor(given)
    values = np.asarray(given) if from_elsewhere else given
    if isinstance(values, np.ndarray) and values.dtype == object and all(isinstance(each, str) for each in values):
        values = values.astype(str)
    return as_array(WHERE, f"columns: {name}", values).copy()


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

    def __post_init__(self):
        if self.task == "regression" and self.num_classes is not None:
            raise ScenarioError("num_classes: a regression has no classes. Leave it out, or set task: classification.")

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if the file does not exist.
            DataDamaged: if it cannot be read.
        """
        path = find_path(self.path, search, "npz", "a file with x_train, y_train, x_test and y_test (numpy.savez).")
        x_train, y_train, x_test, y_test = read_keras_npz(path, self.task, own=True, mapped=self.mapped)
        splits = {"train": (x_train, y_train), "test": (x_test, y_test)}
        columns = read_columns(path, tuple(splits))
        return own_dataset("npz", str(path), splits, self.task, self.num_classes, self.mean, self.std, columns)


def find_path(path: str, search: DataSearch, name: str, layout: str) -> Path:
    """The file or folder `path`, from the working directory or from one of the data folders.

    Raises:
        DataMissing: if it is in none of them.
    """
    here = Path(path).expanduser()
    if here.exists():
        return here.absolute()
    found = next(search.candidates([path]), None)
    if found is None:
        raise search.missing(name, [str(here)], f"data.path names {layout}")
    return found
