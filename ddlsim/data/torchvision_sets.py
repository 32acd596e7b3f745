"""Any image classification data set of torchvision, by the name of its class: SVHN, STL10, EMNIST, GTSRB, ..."""

import dataclasses
import inspect
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from ddlsim.data.dataset import DataSearch, Dataset, DataSettings, split_off
from ddlsim.data.from_arrays import Pair, as_labels, as_samples, own_dataset, read_items
from ddlsim.data.images import squared
from ddlsim.foundation.errors import DataDamaged, ScenarioError
from ddlsim.foundation.extras import needed
from ddlsim.foundation.units import Count

Argument = bool | int | float | str


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

    def __post_init__(self):
        if self.train_split == self.test_split:
            raise ScenarioError(f"test_split: {self.test_split} is the training set; name another one.")

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if torchvision is not installed, or the data is in none of the folders and was not downloaded.
            DataDamaged: if its samples are not images with one label.
            ScenarioError: if the class does not exist, or does not take the arguments.
        """
        cls = self._class()
        parameters = _parameters(cls)
        by_split = _split_arguments(parameters, self.arguments, self.train_split, self.test_split)
        where = f"torchvision.datasets.{self.dataset}"
        for key, name, usual in (("train_split", self.train_split, "train"), ("test_split", self.test_split, "test")):
            if name != usual and not any(name in more.values() for more in by_split.values()):
                raise ScenarioError(f"data.{key}: {where} is not asked for a split by its name; leave {key} out.")
        if not by_split:
            everything = self._read(where, "train", self._open(cls, {}, search))
            train, test = split_off(where, everything[1], self.test_fraction)
            splits = {
                name: (everything[0][rows], everything[1][rows]) for name, rows in (("train", train), ("test", test))
            }
        else:
            splits = {
                split: self._read(where, split, self._open(cls, more, search)) for split, more in by_split.items()
            }
        found = own_dataset("torchvision", where, splits, "classification", self.num_classes, self.mean, self.std)
        return dataclasses.replace(found, name=self.dataset)

    def _class(self) -> Any:
        datasets = needed("torchvision.datasets", "vision", f"data: {self.dataset}")
        cls = getattr(datasets, self.dataset, None)
        if not inspect.isclass(cls):
            import difflib

            near = difflib.get_close_matches(self.dataset, datasets.__all__, n=3, cutoff=0.4)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise ScenarioError(f"data.dataset: torchvision.datasets has no class {self.dataset}.{hint}")
        return cls

    def _open(self, cls: Any, more: dict[str, Any], search: DataSearch) -> Any:
        """The first data folder's that has it, else downloaded into the first."""
        arguments = {**self.arguments, **more}
        parameters = _parameters(cls)
        unknown = [key for key in arguments if key not in parameters]
        if unknown:
            raise ScenarioError(
                f"data.arguments: torchvision.datasets.{self.dataset} has no argument {unknown[0]}; it has "
                f"{', '.join(parameters)}."
            )
        if "root" not in parameters:
            return _made(self.dataset, cls, arguments)
        why = ""
        for root in search.roots():
            if root.is_dir():
                try:
                    return _made(self.dataset, cls, {"root": str(root), **arguments})
                except (RuntimeError, OSError) as error:  # not there, or not whole
                    why = why or " ".join(str(error).split())
        got: list[Any] = []
        if "download" in parameters:
            failed = search.fetch(lambda root: got.append(cls(root=root, download=True, **arguments)))
        else:
            failed = "torchvision cannot download it"
        if got:
            return got[0]
        layout = f"the files that torchvision.datasets.{self.dataset}(root=...) reads. {why:.200}"
        raise search.missing(self.dataset, [self.dataset], layout.rstrip(), failed)

    def _read(self, where: str, split: str, data: Any) -> Pair:
        """Read images and labels, all at once if the class has them as an array."""
        size = self.size
        change = (lambda image: squared(image, size)) if size else (lambda image: image)
        try:
            x, y = read_items(where, split, data, change)
        except DataDamaged as error:
            if "all must be alike" in str(error):
                raise DataDamaged(f"{error} Give data.size, which resizes every image.") from error
            raise
        return as_samples(where, f"x_{split}", np.asarray(x), False), as_labels(
            where, f"y_{split}", y, "classification"
        )


def _parameters(cls: Any) -> list[str]:
    """Return the arguments that a class takes, including those that it passes to its base class, as EMNIST does."""
    found: list[str] = []
    for each in inspect.getmro(cls):
        own = inspect.signature(each.__init__).parameters.values()
        found += [one.name for one in own if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
        if all(one.kind != one.VAR_KEYWORD for one in own):
            break
    return [name for name in dict.fromkeys(found) if name != "self"]


def _made(name: str, cls: Any, arguments: dict[str, Any]) -> Any:
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"data.arguments: torchvision.datasets.{name}: {error}") from error


def _split_arguments(parameters: list[str], given: dict[str, Any], train: str, test: str) -> dict[str, dict[str, Any]]:
    """Return the arguments by which a class selects each split; empty if it has only one."""
    if "train" in parameters and "train" not in given:
        return {"train": {"train": True}, "test": {"train": False}}
    for key in ("split", "image_set"):
        if key in parameters and key not in given:
            return {"train": {key: train}, "test": {key: test}}
    return {}
