"""MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100, from torchvision's files or Keras's .npz, downloaded when absent.

Normalization: CIFAR-10 and Fashion-MNIST 0.5 / 0.5 as in the FACADE and DAC papers' codes; MNIST and CIFAR-100 by
their own mean and deviation, as in the latter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from ddlsim.data.base import DataSettings
from ddlsim.data.dataset import DataSearch, Dataset
from ddlsim.data.readers import damaged, read_cifar_batch, read_idx, read_keras_npz

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
            DataDamaged: if what is there cannot be read.
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
