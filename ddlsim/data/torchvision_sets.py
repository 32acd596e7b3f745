"""Image data sets of torchvision: MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100, and any other by its class.

MNIST, Fashion-MNIST and CIFAR are read from Keras's .npz or by torchvision, which downloads them. Normalization:
CIFAR-10 and Fashion-MNIST 0.5 / 0.5 as in the FACADE and DAC papers' codes; MNIST and CIFAR-100 by their own mean and
deviation, as in the latter.

The package contains a class-balanced part of Fashion-MNIST, so that every scenario runs offline. Source: Xiao, Rasul
and Vollgraf, "Fashion-MNIST", 2017 (MIT license, notice in embedded/LICENSE.fashion-mnist). Of each class the first
1,000 training images and the first 200 test images, in the original order; tools/make_fashion_mnist_mini.py makes the
file.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from ddlsim.data.arrays import read_keras_npz
from ddlsim.data.dataset import Dataset, DataSettings, Pair, split_off
from ddlsim.data.from_arrays import as_labels, as_samples, dataset_from_arrays, stack_items
from ddlsim.data.pixels import squared
from ddlsim.data.search import DataSearch, damaged
from ddlsim.foundation.environment import needed
from ddlsim.foundation.errors import ScenarioError, did_you_mean
from ddlsim.foundation.units import Count

EMBEDDED = Path(__file__).parent / "embedded" / "fashion-mnist-mini.npz"
Argument = bool | int | float | str


@dataclass(frozen=True, kw_only=True)
class FashionMnistMini(DataSettings):
    """Part of Fashion-MNIST inside the package: 10,000 + 2,000 images, 1 x 28 x 28, 10 classes; needs no network."""

    image_shape = (1, 28, 28)
    num_classes = 10
    num_samples = (10_000, 2_000)

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set; nothing is searched for."""
        return Dataset.of_splits("fashion-mnist-mini", "inside the package", read_keras_npz(EMBEDDED), 10, 0.5, 0.5)


class _Standard(DataSettings):
    """Base of data sets that are Keras's .npz or a class of torchvision."""

    name: ClassVar[str]
    torchvision_class: ClassVar[str]
    folder: ClassVar[str]
    mean: ClassVar[tuple[float, ...]]
    std: ClassVar[tuple[float, ...]]

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if it is in none of the folders and was not downloaded, or torchvision cannot read it.
            DataDamaged: if Keras's file cannot be read.
        """
        path = next(search.candidates([f"{self.name}.npz"]), None)
        if path is None:
            splits, origin = self._of_torchvision(search)
        else:
            splits, origin = read_keras_npz(path), str(path)
        images = splits["train"][0]
        channels, height, width = self.image_shape
        if images.shape[1:] != (height, width, channels) or images.dtype != np.uint8:
            expected = f"expected uint8 images {height} x {width} x {channels} in {self.name}"
            raise damaged(Path(origin), f"{expected}, got {images.dtype} {' x '.join(map(str, images.shape[1:]))}")
        return Dataset.of_splits(self.name, origin, splits, self.num_classes, self.mean, self.std)

    def _of_torchvision(self, search: DataSearch) -> tuple[dict[str, Pair], str]:
        """Return the splits as torchvision reads or downloads them, and the folder that contains them."""
        channels, height, width = self.image_shape
        shape = f"{height}, {width}" + (f", {channels}" if channels > 1 else "")
        train, test = self.num_samples
        layout = (
            f"either {self.name}.npz in Keras's layout (x_train uint8 [{train}, {shape}], y_train, x_test uint8 "
            f"[{test}, {shape}], y_test), or the folder {self.folder}/ that "
            f"torchvision.datasets.{self.torchvision_class} leaves."
        )
        cls, wanted = _class_named(self.torchvision_class), [f"{self.name}.npz", f"{self.folder}/"]
        splits, root = {}, ""
        for split in ("train", "test"):
            found, root = _open(cls, {"train": split == "train"}, search, self.name, wanted, layout)
            images = as_samples(root, f"x_{split}", np.asarray(found.data), False)
            splits[split] = images, np.asarray(found.targets, np.int64)
        return splits, root


@dataclass(frozen=True, kw_only=True)
class Mnist(_Standard):
    """Handwritten digits (LeCun et al.): 60,000 + 10,000 images, 1 x 28 x 28, 10 classes."""

    name, torchvision_class, folder = "mnist", "MNIST", "MNIST/raw"
    image_shape, num_classes, num_samples = (1, 28, 28), 10, (60_000, 10_000)
    mean, std = (0.1307,), (0.3081,)


@dataclass(frozen=True, kw_only=True)
class FashionMnist(_Standard):
    """Pieces of clothing (Xiao, Rasul and Vollgraf, 2017): 60,000 + 10,000 images, 1 x 28 x 28, 10 classes."""

    name, torchvision_class, folder = "fashion-mnist", "FashionMNIST", "FashionMNIST/raw"
    image_shape, num_classes, num_samples = (1, 28, 28), 10, (60_000, 10_000)
    mean, std = (0.5,), (0.5,)


@dataclass(frozen=True, kw_only=True)
class Cifar10(_Standard):
    """Small color photographs (Krizhevsky, 2009): 50,000 + 10,000 images, 3 x 32 x 32, 10 classes."""

    name, torchvision_class, folder = "cifar10", "CIFAR10", "cifar-10-batches-py"
    image_shape, num_classes, num_samples = (3, 32, 32), 10, (50_000, 10_000)
    mean, std = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)


@dataclass(frozen=True, kw_only=True)
class Cifar100(_Standard):
    """Small color photographs (Krizhevsky, 2009): 50,000 + 10,000 images, 3 x 32 x 32, 100 classes."""

    name, torchvision_class, folder = "cifar100", "CIFAR100", "cifar-100-python"
    image_shape, num_classes, num_samples = (3, 32, 32), 100, (50_000, 10_000)
    mean, std = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


@dataclass(frozen=True, kw_only=True)
class Torchvision(DataSettings):
    """An image data set of torchvision by its class, such as SVHN or STL10; images with one whole number as label.

    Train and test are `train=True` and `False`, or `split="train"` and `"test"`, depending on the class; if it has
    neither, a share of every class is the test set, the same for every seed.

    Args:
        dataset: name of a class in torchvision.datasets.
        arguments: further arguments of the class, by name, such as {split: letters} of EMNIST.
        train_split: the training set's name, if the class takes one.
        test_split: the test set's name, such as val for a class without test.
        size: height and width after resizing the short side and cutting the middle out; null: images have one size.
        test_fraction: part of the samples that is the test set, if the class has none.
        num_classes: number of labels; null: the highest label + 1.
        mean: per channel or one for all, on the scale 0..1.
        std: likewise, above 0.
    """

    dataset: str
    arguments: dict[str, Argument] = field(default_factory=dict, hash=False)
    train_split: str = "train"
    test_split: str = "test"
    size: Annotated[int, Ge(1), Le(10_000)] | None = None
    test_fraction: Annotated[float, Gt(0), Lt(1)] = 0.2
    num_classes: Count | None = None
    mean: tuple[float, ...] = (0.5,)
    std: tuple[Annotated[float, Gt(0)], ...] = (0.5,)

    def __post_init__(self) -> None:
        if self.train_split == self.test_split:
            raise ScenarioError(f"test_split: {self.test_split} is the training set; name another one.")

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if torchvision is not installed, or the data is in none of the folders and was not downloaded.
            DataDamaged: if its samples are not images with one label.
            ScenarioError: if the class does not exist, or does not take the arguments.
        """
        cls = _class_named(self.dataset)
        by_split = _split_arguments(_parameters(cls), self.arguments, self.train_split, self.test_split)
        where = f"torchvision.datasets.{self.dataset}"
        for key, name, usual in (("train_split", self.train_split, "train"), ("test_split", self.test_split, "test")):
            if name != usual and not any(name in more.values() for more in by_split.values()):
                raise ScenarioError(f"data.{key}: {where} takes no name of a split. Leave {key} out.")
        layout = f"the files that {where}(root=...) reads."
        splits = {}
        for split, more in (by_split or {"train": {}}).items():
            found, _ = _open(cls, {**self.arguments, **more}, search, self.dataset, [self.dataset], layout)
            splits[split] = self._read(where, split, found)
        if not by_split:
            x, y = splits["train"]
            train, test = split_off(where, y, self.test_fraction)
            splits = {"train": (x[train], y[train]), "test": (x[test], y[test])}
        return dataset_from_arrays(self.dataset, where, splits, "classification", self.num_classes, self.mean, self.std)

    def _read(self, where: str, split: str, data: Any) -> Pair:
        """Read images and labels, item by item."""
        size = self.size
        change = (lambda image: squared(image, size)) if size else (lambda image: image)
        x, y = stack_items(where, split, data, change)
        x = as_samples(where, f"x_{split}", np.asarray(x), False)
        return x, as_labels(where, f"y_{split}", y, "classification")


def _class_named(name: str) -> Any:
    """Return a class of torchvision.datasets.

    Raises:
        DataMissing: if torchvision is not installed. ScenarioError: if there is no class of this name.
    """
    datasets = needed("torchvision.datasets", "vision", f"data: {name}")
    cls = getattr(datasets, name, None)
    if not inspect.isclass(cls):
        meant = did_you_mean(name, dir(datasets))
        raise ScenarioError(f"data.dataset: torchvision.datasets has no class {name}.{meant}")
    return cls


def _open(
    cls: Any, arguments: Mapping[str, Any], search: DataSearch, name: str, wanted: Sequence[str], layout: str
) -> tuple[Any, str]:
    """Return a data set of torchvision, from the first data folder that has it, else downloaded into the first; and
    this folder.

    Args:
        cls: the class.
        arguments: of the class, without root and download.
        search, name, wanted, layout: as in DataSearch.missing.
    Raises:
        DataMissing: if no folder has it, and it was not downloaded.
        ScenarioError: if the class does not take the arguments.
    """
    where, parameters = f"torchvision.datasets.{cls.__name__}", _parameters(cls)
    unknown = [key for key in arguments if key not in parameters]
    if unknown:
        raise ScenarioError(f"data.arguments: {where} has no argument {unknown[0]}; it has {', '.join(parameters)}.")

    def make(**places: Any) -> Any:
        try:
            return cls(**places, **arguments)
        except (TypeError, ValueError) as error:
            raise ScenarioError(f"data.arguments: {where}: {error}") from error

    if "root" not in parameters:
        return make(), where
    why = ""
    for root in filter(Path.is_dir, search.roots()):
        try:
            return make(root=str(root)), str(root)
        except (RuntimeError, OSError, AssertionError) as error:  # absent, incomplete or damaged
            why = why or f" torchvision: {' '.join(str(error).split()):.200}."
    found: list[Any] = []
    failed: str | None = "torchvision cannot download it"
    if "download" in parameters:
        failed = search.fetch(lambda root: found.extend((make(root=root, download=True), root)))
    if failed is not None:
        raise search.missing(name, wanted, layout + why, failed)
    return found[0], found[1]


def _parameters(cls: Any) -> list[str]:
    """Return the arguments that a class takes, including the ones that it passes to its base class, as EMNIST does."""
    found: list[str] = []
    for each in inspect.getmro(cls):
        own = inspect.signature(vars(each).get("__init__", object.__init__)).parameters.values()
        found += [one.name for one in own if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        if all(one.kind != one.VAR_KEYWORD for one in own):
            break
    return [name for name in dict.fromkeys(found) if name != "self"]


def _split_arguments(
    parameters: list[str], arguments: dict[str, Any], train: str, test: str
) -> dict[str, dict[str, Any]]:
    """Return the arguments by which a class selects each split; empty if it has only one."""
    if "train" in parameters and "train" not in arguments:
        return {"train": {"train": True}, "test": {"train": False}}
    for key in ("split", "image_set"):
        if key in parameters and key not in arguments:
            return {"train": {key: train}, "test": {key: test}}
    return {}
