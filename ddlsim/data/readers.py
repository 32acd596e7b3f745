"""Reads the file formats that the standard data sets come in; a cut or corrupted file is a DataDamaged, no traceback.

Formats: IDX (LeCun, Cortes and Burges, "The MNIST database"), the pickled batches of CIFAR (Krizhevsky, 2009), and
Keras's .npz (x_train, y_train, x_test, y_test).
"""

import gzip
import math
import pickle
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ddlsim.data.mapped import map_npz
from ddlsim.data.own import as_labels, as_samples
from ddlsim.errors import DataDamaged, ScenarioError

IDX_UINT8 = 0x08
KERAS_KEYS = ("x_train", "y_train", "x_test", "y_test")
GOT_ANEW = "It may be cut or corrupted: delete it and get it again."
MADE_ANEW = (
    "Save it anew, as numbers: numpy.savez(path, x_train=..., y_train=..., x_test=..., y_test=...); "
    "array.astype('float32') makes numbers of objects that are some."
)
_PICKLED_NUMPY = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_idx(path: Path) -> np.ndarray:
    """An IDX file of bytes, plain or .gz, as uint8 of the shape that it states.

    Raises:
        DataDamaged: if it is no IDX file of bytes or its length is not what its head says.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise damaged(path, str(error)) from error
    if len(raw) < 4 or raw[:2] != b"\0\0" or raw[2] != IDX_UINT8:
        raise damaged(path, "it does not start as an IDX file of bytes does")
    start = 4 + 4 * raw[3]
    shape = np.frombuffer(raw[4:start], dtype=">u4").tolist()
    if len(shape) != raw[3] or len(raw) != start + math.prod(shape):
        follow = max(0, len(raw) - start)
        raise damaged(path, f"its head speaks of {' x '.join(map(str, shape))} bytes, {follow} follow")
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


class _NumpyOnly(pickle.Unpickler):
    """A pickle can run any code; CIFAR's need nothing but numpy arrays."""

    def find_class(self, module: str, name: str):
        if (module, name) not in _PICKLED_NUMPY:
            raise pickle.UnpicklingError(f"it wants {module}.{name}, which no CIFAR batch does")
        return super().find_class(module, name)


def read_cifar_batch(path: Path, label_key: str) -> tuple[np.ndarray, np.ndarray]:
    """One pickled batch of CIFAR: images uint8 [n, 32, 32, 3] and labels int64 [n].

    Args:
        path: e.g. cifar-10-batches-py/data_batch_1.
        label_key: "labels" (CIFAR-10) or "fine_labels" (CIFAR-100).
    Raises:
        DataDamaged: if it cannot be read as such.
    """
    try:
        with path.open("rb") as file:
            batch = _NumpyOnly(file, encoding="bytes").load()
        flat = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        labels = np.asarray(batch[label_key.encode()], dtype=np.int64)
    except Exception as error:  # a damaged pickle fails in any way it likes
        raise damaged(path, f"{type(error).__name__}: {error}") from error
    return flat.transpose(0, 2, 3, 1), labels


def read_keras_npz(
    path: Path, task: str = "classification", own: bool = False, mapped: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Train images, train labels, test images, test labels of an .npz in Keras's layout.

    Images come back as uint8 or float32 [N, H, W, C] (a missing channel axis is added; a table [N, F] becomes
    [N, 1, F, 1]). Labels come back as int64 [N] or [N, T], of a regression as float32 [N] (Keras's [N, 1] is
    flattened). With `own`, a file that the user has made, samples may also be integers other than bytes, such as token
    ids [N, T]: they keep their shape and type. With `mapped`, samples stay in the file, which must be uncompressed.

    Raises:
        DataDamaged: if an array is missing, cut, or of another kind.
    """
    arrays = dict(zip(KERAS_KEYS, _arrays(path, mapped, MADE_ANEW if own else GOT_ANEW), strict=True))
    return (
        as_samples(str(path), "x_train", arrays["x_train"], own),
        as_labels(str(path), "y_train", arrays["y_train"], task),
        as_samples(str(path), "x_test", arrays["x_test"], own),
        as_labels(str(path), "y_test", arrays["y_test"], task),
    )


def read_columns(path: Path, splits: Sequence[str]) -> dict[str, dict[str, np.ndarray]] | None:
    """Further arrays of an .npz in Keras's layout, such as speaker_train: name -> split -> one value per sample.

    Raises:
        DataDamaged: if one cannot be read.
    """
    found: dict[str, dict[str, np.ndarray]] = {}
    try:
        with np.load(path, allow_pickle=False) as file:
            for key in file.files:
                name, _, split = key.rpartition("_")
                if key not in KERAS_KEYS and name and split in splits:
                    found.setdefault(name, {})[split] = file[key]
    except Exception as error:  # a damaged head fails in any way it likes
        raise damaged(path, str(error) or type(error).__name__, MADE_ANEW) from error
    return {name: by_split for name, by_split in found.items() if "train" in by_split} or None


def _arrays(path: Path, mapped: bool, advice: str) -> list[np.ndarray]:
    """The four arrays as they are in the file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            lacking = [key for key in KERAS_KEYS if key not in file]
            if lacking:
                raise damaged(
                    path, f"no {', '.join(lacking)} in it; it has {', '.join(file.files) or 'nothing'}", advice
                )
            maps = map_npz(path, [key for key in KERAS_KEYS if key.startswith("x_")]) if mapped else {}
            arrays = [maps[key] if key in maps else file[key] for key in KERAS_KEYS]
    except (DataDamaged, ScenarioError):
        raise
    except MemoryError as error:
        raise damaged(path, f"an array in it asks for more memory than there is ({error})", advice) from error
    except Exception as error:  # a damaged head fails in any way it likes
        raise damaged(path, str(error) or type(error).__name__, advice) from error
    for key, array in zip(KERAS_KEYS, arrays, strict=True):
        if isinstance(array, np.memmap) and array.dtype.kind == "f" and array.dtype != np.float32:
            raise DataDamaged(f"{path}: {key} is {array.dtype}; data.mapped needs float32, which is read as it is.")
        if not isinstance(array, np.ndarray):  # numpy hands out an entry without a head of its own as bytes
            raise damaged(path, f"{key} is no array", advice)
    return arrays


def damaged(path: Path, what: str, advice: str = GOT_ANEW) -> DataDamaged:
    """The error for a file that is there but cannot be used, and what to do about it."""
    return DataDamaged(f"{path} cannot be read: {what.rstrip('.')}. {advice}")
