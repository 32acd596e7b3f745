"""MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100, from torchvision's files or Keras's .npz, downloaded when absent.

Normalization: CIFAR-10 and Fashion-MNIST 0.5 / 0.5 as in the FACADE and DAC papers' codes; MNIST and CIFAR-100 by their
own mean and deviation, as in the latter.

A truncated or corrupted file raises DataDamaged. Formats: IDX (LeCun, Cortes and Burges, "The MNIST database"), the
pickled batches of CIFAR (Krizhevsky, 2009), and Keras's .npz (x_train, y_train, x_test, y_test).

The package contains a class-balanced part of Fashion-MNIST, so that every scenario runs offline. Source: Xiao, Rasul
and Vollgraf, "Fashion-MNIST", 2017 (MIT license, notice in embedded/LICENSE.fashion-mnist). Of each class the first
1,000 training images and the first 200 test images, in the original order; the file is made by
tools/make_fashion_mnist_mini.py.
"""

import gzip
import math
import pickle
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ddlsim.data.dataset import DataSearch, Dataset, DataSettings
from ddlsim.data.from_arrays import as_labels, as_samples
from ddlsim.data.uint8_images import map_npz
from ddlsim.foundation.errors import DataDamaged, ScenarioError

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
    """Read an IDX file of bytes, plain or .gz, as uint8 of the shape in its header.

    Raises:
        DataDamaged: if it is not an IDX file of bytes, or its length differs from its header.
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
    """Return the four arrays of the file, unchanged."""
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
        if not isinstance(array, np.ndarray):  # numpy returns an entry without a header as bytes
            raise damaged(path, f"{key} is no array", advice)
    return arrays


def damaged(path: Path, what: str, advice: str = GOT_ANEW) -> DataDamaged:
    """The error for a file that is there but cannot be used, and what to do about it."""
    return DataDamaged(f"{path} cannot be read: {what.rstrip('.')}. {advice}")


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Train images, train labels, test images, test labels."""


class _Standard(DataSettings):
    """Looks for the .npz and for torchvision's folder in every place, then downloads."""

    name: ClassVar[str]
    folders: ClassVar[tuple[str, ...]]
    torchvision_class: ClassVar[str]
    image_shape: ClassVar[tuple[int, int, int]]
    num_classes: ClassVar[int]
    mean: ClassVar[tuple[float, ...]]
    std: ClassVar[tuple[float, ...]]
    num_samples: ClassVar[tuple[int, int]] = (60000, 10000)

    def load(self, search: DataSearch) -> Dataset:
        """The data set.

        Raises:
            DataMissing: if it is in none of the places and did not come by download.
            DataDamaged: if the files cannot be read.
        """
        found = self._find(search)
        why = None
        if found is None:
            why = search.fetch(self._download)
            found = None if why else self._find(search)
        if found is None:
            raise search.missing(self.name, [f"{self.name}.npz", f"{self.folders[0]}/"], self._layout(), why)
        return self._read(found)

    def _find(self, search: DataSearch) -> Path | None:
        for path in search.candidates([f"{self.name}.npz", *self.folders]):
            if path.suffix == ".npz" or self._complete(path):
                return path
        return None

    def _read(self, path: Path) -> Dataset:
        arrays = read_keras_npz(path) if path.suffix == ".npz" else self._read_folder(path)
        channels, height, width = self.image_shape
        if arrays[0].shape[1:] != (height, width, channels) or arrays[0].dtype != np.uint8:
            raise damaged(
                path,
                f"{self.name} has uint8 images {height} x {width} x {channels}, these are {arrays[0].dtype} "
                f"{' x '.join(map(str, arrays[0].shape[1:]))}",
            )
        mean, std = np.float32(self.mean), np.float32(self.std)
        return Dataset(self.name, *arrays, self.num_classes, mean, std, str(path))

    def _layout(self) -> str:
        channels, height, width = self.image_shape
        shape = f"{height}, {width}" + (f", {channels}" if channels > 1 else "")
        train, test = self.num_samples
        return (
            f"either {self.name}.npz in Keras's layout (x_train uint8 [{train}, {shape}], y_train, x_test uint8 "
            f"[{test}, {shape}], y_test), or the folder {self.folders[0]}/ that "
            f"torchvision.datasets.{self.torchvision_class} leaves."
        )

    def _download(self, root: str) -> None:
        from torchvision import datasets

        get: Callable = getattr(datasets, self.torchvision_class)
        get(root, download=True)

    def _complete(self, folder: Path) -> bool:
        raise NotImplementedError

    def _read_folder(self, folder: Path) -> Arrays:
        raise NotImplementedError


class _Idx(_Standard):
    image_shape = (1, 28, 28)
    num_classes = 10
    files = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

    def _complete(self, folder: Path) -> bool:
        return all(_plain_or_packed(folder / file) for file in self.files)

    def _read_folder(self, folder: Path) -> Arrays:
        x_train, y_train, x_test, y_test = (read_idx(_plain_or_packed(folder / file)) for file in self.files)
        return x_train[..., None], y_train.astype(np.int64), x_test[..., None], y_test.astype(np.int64)


def _plain_or_packed(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


class _Cifar(_Standard):
    image_shape = (3, 32, 32)
    num_samples = (50000, 10000)
    train_files: ClassVar[tuple[str, ...]]
    test_file: ClassVar[str]
    label_key: ClassVar[str]

    def _complete(self, folder: Path) -> bool:
        return all((folder / file).is_file() for file in (*self.train_files, self.test_file))

    def _read_folder(self, folder: Path) -> Arrays:
        images, labels = np.empty((0, 3, 32, 32), np.uint8), []
        for file in self.train_files:
            batch, own = read_cifar_batch(folder / file, self.label_key)
            labels.append(own)
            # Grown in place: all batches and one array of all would be twice the data set.
            images.resize((len(images) + len(batch), 3, 32, 32), refcheck=False)
            images[len(images) - len(batch) :] = batch.transpose(0, 3, 1, 2)
        test_images, test_labels = read_cifar_batch(folder / self.test_file, self.label_key)
        return images.transpose(0, 2, 3, 1), np.concatenate(labels), test_images, test_labels


@dataclass(frozen=True, kw_only=True)
class Mnist(_Idx):
    """Handwritten digits (LeCun et al.): 60,000 + 10,000 images, 1 x 28 x 28, 10 classes."""

    name = "mnist"
    folders = ("MNIST/raw", "mnist")
    torchvision_class = "MNIST"
    mean, std = (0.1307,), (0.3081,)


@dataclass(frozen=True, kw_only=True)
class FashionMnist(_Idx):
    """Pieces of clothing (Xiao, Rasul and Vollgraf, 2017): 60,000 + 10,000 images, 1 x 28 x 28, 10 classes."""

    name = "fashion-mnist"
    folders = ("FashionMNIST/raw", "fashion-mnist")
    torchvision_class = "FashionMNIST"
    mean, std = (0.5,), (0.5,)


@dataclass(frozen=True, kw_only=True)
class Cifar10(_Cifar):
    """Small color photographs (Krizhevsky, 2009): 50,000 + 10,000 images, 3 x 32 x 32, 10 classes."""

    name = "cifar10"
    folders = ("cifar-10-batches-py",)
    torchvision_class = "CIFAR10"
    num_classes = 10
    mean, std = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
    train_files = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
    test_file = "test_batch"
    label_key = "labels"


@dataclass(frozen=True, kw_only=True)
class Cifar100(_Cifar):
    """Small color photographs (Krizhevsky, 2009): 50,000 + 10,000 images, 3 x 32 x 32, 100 classes."""

    name = "cifar100"
    folders = ("cifar-100-python",)
    torchvision_class = "CIFAR100"
    num_classes = 100
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)
    train_files = ("train",)
    test_file = "test"
    label_key = "fine_labels"


EMBEDDED = Path(__file__).parent / "embedded" / "fashion-mnist-mini.npz"


@dataclass(frozen=True, kw_only=True)
class FashionMnistMini(DataSettings):
    """Part of Fashion-MNIST inside the package: 10,000 + 2,000 images, 1 x 28 x 28, 10 classes; needs no network."""

    image_shape: ClassVar = (1, 28, 28)
    num_classes: ClassVar = 10
    num_samples: ClassVar = (10_000, 2_000)

    def load(self, search: DataSearch) -> Dataset:
        """The data set; nothing is searched for."""
        half = np.float32([0.5])
        return Dataset("fashion-mnist-mini", *read_keras_npz(EMBEDDED), 10, half, half, "inside the package")
