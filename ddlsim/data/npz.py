"""Any data set in an .npz file of Keras's layout: x_train, y_train, x_test, y_test."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Gt

from ddlsim.data.base import DataSettings
from ddlsim.data.dataset import DataSearch, Dataset, Task
from ddlsim.data.readers import read_keras_npz
from ddlsim.errors import DataDamaged, ScenarioError
from ddlsim.units import Count

MANY_CLASSES = 1000
"""So many classes may be counted from the highest label even where there are fewer samples."""


@dataclass(frozen=True, kw_only=True)
class Npz(DataSettings):
    """Your own arrays in one .npz file, in Keras's layout: x_train, y_train, x_test, y_test.

    Images are uint8 [N, H, W] or [N, H, W, C]; floating-point features [N, F] or [N, H, W, C] are used as they are, as
    are other integers (token ids) of any shape [N, ...]. Labels are [N], or [N, T] for T labels per sample.

    Args:
        path: the file, relative to the working directory or to one of the data folders.
        task: classification: labels are whole numbers from 0; regression: they are any numbers.
        num_classes: number of labels; null: the highest label + 1.
        mean: per channel or one for all, on the scale 0..1 of uint8 images; null: 0.5 for uint8, 0 for features.
        std: likewise; null: 0.5 for uint8, 1 for features.
    """

    path: str
    task: Task = "classification"
    num_classes: Count | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[Annotated[float, Gt(0)], ...] | None = None

    def __post_init__(self):
        if self.task == "regression" and self.num_classes is not None:
            raise ScenarioError("num_classes: a regression has no classes. Leave it out, or set task: classification.")

    def load(self, search: DataSearch) -> Dataset:
        """The data set.

        Raises:
            DataMissing: if there is no such file.
            DataDamaged: if it cannot be read.
        """
        path = find_path(self.path, search, "npz", "a file with x_train, y_train, x_test and y_test (numpy.savez).")
        x_train, y_train, x_test, y_test = read_keras_npz(path, self.task, integers=True)
        classes = 1 if self.task == "regression" else self.num_classes or _count_classes(path, y_train, y_test)
        is_bytes, is_token = x_train.dtype == np.uint8, x_train.dtype.kind in "iu" and x_train.dtype != np.uint8
        channels = 1 if is_token else x_train.shape[3]
        if x_test.dtype != x_train.dtype:
            raise DataDamaged(f"{path}: x_train is {x_train.dtype}, x_test {x_test.dtype}; they must be alike.")
        mean = per_channel(self.mean or (0.5 if is_bytes else 0.0,), channels, "data.mean", str(path))
        std = per_channel(self.std or (0.5 if is_bytes else 1.0,), channels, "data.std", str(path))
        return Dataset("npz", x_train, y_train, x_test, y_test, classes, mean, std, str(path), self.task)


def _count_classes(path: Path, y_train: np.ndarray, y_test: np.ndarray) -> int:
    """The highest label + 1; a model has an output for each, so labels that are far apart are refused."""
    classes = int(max(y_train.max(initial=0), y_test.max(initial=0))) + 1
    samples = len(y_train) + len(y_test)
    if classes > max(samples, MANY_CLASSES):
        raise DataDamaged(
            f"{path}: labels must be whole numbers from 0, one after the other; the highest is {classes - 1}, which "
            f"would be {classes} classes of {samples} samples. Number the classes anew, or give data.num_classes."
        )
    return classes


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


def per_channel(values: tuple[float, ...], channels: int, key: str, where: str) -> np.ndarray:
    """One value per channel, float32 [C]; a single one is used for all.

    Raises:
        ScenarioError: if there is another number of them.
    """
    if len(values) not in (1, channels):
        raise ScenarioError(
            f"{key}: expected one value, or one for each of the {channels} channels of {where}, got {len(values)}."
        )
    return np.broadcast_to(np.float32(values), channels).copy()
