"""Files .npz in Keras's layout: x_train, y_train, x_test and y_test, and optionally columns such as speaker_train."""

import struct
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from annotated_types import Gt

from ddlsim.data.dataset import Dataset, DataSettings, Pair, Task
from ddlsim.data.from_arrays import as_labels, as_samples, dataset_from_arrays, refuse_classes_of_regression
from ddlsim.data.search import DOWNLOAD_AGAIN, DataSearch, damaged
from ddlsim.foundation.errors import DataDamaged, ScenarioError, listing
from ddlsim.foundation.units import Count

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
        refuse_classes_of_regression(self.task, self.num_classes)

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
        return dataset_from_arrays(
            "npz", str(path), splits, self.task, self.num_classes, self.mean, self.std, columns or None
        )


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
            raise damaged(path, f"{key} is no array", advice)
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
                raise ScenarioError(
                    f"data.mapped: {path} is compressed. Write it by numpy.savez, or set mapped: false."
                )
            raw.seek(entry.header_offset + _NAME_LENGTH_AT)
            name_bytes, extra_bytes = struct.unpack("<HH", raw.read(4))
            raw.seek(entry.header_offset + _LOCAL_HEADER_BYTES + name_bytes + extra_bytes)
            version = np.lib.format.read_magic(raw)
            head = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = head(raw)
            found[name] = np.memmap(path, dtype, "r", raw.tell(), shape, "F" if fortran else "C")
    return found
