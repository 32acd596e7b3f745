"""Any data set in an .npz file of Keras's layout: x_train, y_train, x_test, y_test."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from annotated_types import Gt

from ddlsim.data.base import DataSettings
from ddlsim.data.dataset import DataSearch, Dataset, Task
from ddlsim.data.own import own_dataset
from ddlsim.data.readers import read_columns, read_keras_npz
from ddlsim.errors import ScenarioError
from ddlsim.units import Count


@dataclass(frozen=True, kw_only=True)
class Npz(DataSettings):
    """Your own arrays in one .npz file, in Keras's layout: x_train, y_train, x_test, y_test.

    Images are uint8 [N, H, W] or [N, H, W, C]; floating-point features [N, F] or [N, H, W, C] are used as they are, as
    are other integers (token ids) [N, T]. Labels are [N], or [N, T] for T labels per sample.
    Further arrays `<name>_train` (and `<name>_test`), one value per sample, are columns for `by_column`.

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
        """The data set.

        Raises:
            DataMissing: if there is no such file.
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
