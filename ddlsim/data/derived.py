"""Data sets made of others (attributes of images as several labels, several sets joined as domains) or of a seed.

An image's attributes follow from its class: 7 is odd, prime, above four and has no loop; a sneaker is footwear.

Source of joined sets: MNIST with Fashion-MNIST, labels apart, 20 outputs, as in Hagander and Ihre-Thomason, "With a
little help from my friends", master's thesis, Lund University, 2024. Each set keeps its own normalization, as there.

Synthetic data: linear regression with other parameters in each cluster (concept shift).

Source: the linear regression task of Hagander and Ihre-Thomason, "With a little help from my friends", master's thesis,
Lund University, 2024, and of "On the effects of similarity metrics in decentralized deep learning under distributional
shift", by the same code; their numbers are the defaults. Difference: here the test samples come from a stream of the
scenario's seed; there they are drawn again, without a seed, when a run is tested.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, MinLen

from ddlsim.data import DATASETS
from ddlsim.data.dataset import Dataset, DataSettings
from ddlsim.data.search import DataSearch
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import Count
from ddlsim.tasks import as_task

DIGITS: Mapping[str, tuple[int, ...]] = {
    "even": (0, 2, 4, 6, 8),
    "prime": (2, 3, 5, 7),
    "above four": (5, 6, 7, 8, 9),
    "with a loop": (0, 6, 8, 9),
    "square": (0, 1, 4, 9),
}
CLOTHES: Mapping[str, tuple[int, ...]] = {
    "upper body": (0, 2, 3, 4, 6),
    "long sleeves": (2, 4, 6),
    "footwear": (5, 7, 9),
    "legs": (1, 3),
    "buttoned": (4, 6),
}
"""Attribute -> the classes that have it."""


@dataclass(frozen=True, kw_only=True)
class Attributes(DataSettings):
    """Five attributes of each image of MNIST or Fashion-MNIST, for multi-label prediction.

    Digits: even, prime, above four, with a loop, square. Clothes: upper body, long sleeves, footwear, legs, buttoned.

    Args:
        of: whose images; fashion-mnist-mini is inside the package.
    """

    of: Literal["mnist", "fashion-mnist", "fashion-mnist-mini"] = "mnist"

    task = "multi_label"
    image_shape, num_classes, label_shape = (1, 28, 28), 5, (5,)

    @property
    def num_samples(self) -> tuple[int, int]:
        return (10_000, 2_000) if self.of == "fashion-mnist-mini" else (60_000, 10_000)

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing, DataDamaged: see the data set of these images.
        """
        found: Dataset = DATASETS[self.of]().load(search)
        groups = (DIGITS if self.of == "mnist" else CLOTHES).values()
        table = np.array([[int(label in group) for group in groups] for label in range(10)], np.int64)
        train, test = table[found.train_labels], table[found.test_labels]
        keys: dict[str, Any] = {"train_labels": train, "test_labels": test, "num_classes": table.shape[1]}
        return replace(found, name="attributes", task="multi_label", **keys)


@dataclass(frozen=True, kw_only=True)
class Joined(DataSettings):
    """Several data sets of one image shape, joined; each is a domain, which `partition: {name: domains}` deals apart.

    Args:
        sets: names of at least two data sets that need no keys, e.g. [mnist, fashion-mnist].
        labels: apart: every set's labels follow the labels of the sets before it (10 and 10 make 20 classes);
            common: label 3 of one set is label 3 of the other.
    """

    sets: Annotated[tuple[str, ...], MinLen(2)]
    labels: Literal["apart", "common"] = "apart"

    def __post_init__(self) -> None:
        for name in self.sets:
            if name not in DATASETS:
                raise ScenarioError(f"data.sets: unknown data set {name!r}. Known: {', '.join(DATASETS)}.")
            self._check(name)
        shapes = {tuple(self._one(name).image_shape) for name in self.sets}
        if len(shapes) > 1:
            raise ScenarioError(f"data.sets: images must have one shape, these have {sorted(shapes)} (C, H, W).")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self._one(self.sets[0]).image_shape

    @property
    def num_classes(self) -> int:
        """Number of labels."""
        each = [self._one(name).num_classes for name in self.sets]
        return sum(each) if self.labels == "apart" else max(each)

    @property
    def num_samples(self) -> tuple[int, int]:
        """Training and test images."""
        each = [self._one(name).num_samples for name in self.sets]
        return sum(train for train, _ in each), sum(test for _, test in each)

    def domains_for(self, num_clusters: int) -> int:
        """One domain per set, however many clusters there are."""
        return len(self.sets)

    def load(self, search: DataSearch) -> Dataset:
        """Return the data set.

        Raises:
            DataMissing: if one of the sets is neither found nor downloaded.
            DataDamaged: if one cannot be read.
        """
        parts = [self._one(name).load(search) for name in self.sets]
        before = np.cumsum([0, *(part.num_classes for part in parts[:-1])]) * (self.labels == "apart")
        splits, domains = {}, {}
        for split in ("train", "test"):
            images, labels = zip(*(part.samples(split) for part in parts), strict=True)
            moved = [each + offset for each, offset in zip(labels, before.tolist(), strict=True)]
            splits[split] = np.concatenate(images), np.concatenate(moved)
            domains[split] = np.repeat(np.arange(len(parts)), list(map(len, labels)))
        mean, std = (np.stack([getattr(part, name) for part in parts]) for name in ("mean", "std"))
        origin = ", ".join(part.origin for part in parts)
        return Dataset.of_splits("+".join(self.sets), origin, splits, self.num_classes, mean, std, domains=domains)

    def _check(self, name: str) -> None:
        """Raise ScenarioError if a set needs keys, or has not one label for each of its images."""
        try:
            one = self._one(name)
        except (TypeError, ScenarioError):  # it has keys without a default, or whose default alone is refused
            one = None
        if one is None or isinstance(one, Joined):
            raise ScenarioError(f"data.sets: {name} needs keys and cannot be joined by name.")
        is_of_images = one.image_shape is not None and len(one.image_shape) == 3 and one.may_hold_images
        if not is_of_images or not as_task(one.task).has_classes or one.label_shape:
            raise ScenarioError(f"data.sets: expected images of a known shape, of one class each, got {name}.")

    @staticmethod
    def _one(name: str) -> Any:
        """Return the set with its default keys."""
        return DATASETS[name]()


@dataclass(frozen=True, kw_only=True)
class SyntheticRegression(DataSettings):
    """Linear regression, y = x theta + noise, theta of each cluster drawn from the scenario's seed; needs no files.

    Every cluster has its own domain, so that `partition: {name: domains}` gives each node samples of its cluster's
    theta, and `validation: {source: own}` one set per cluster that all its nodes share.

    Args:
        features: length of x and of theta.
        theta_range: theta is uniform between minus and plus this.
        x_range: x is uniform between minus and plus this.
        noise_std: standard deviation of the normal noise; its square is the lowest mean squared error there is.
        samples_per_node: training samples of each node.
        validation_samples: of each cluster.
        test_samples: of each cluster.
    """

    task = "regression"
    own_validation = generated = True
    may_hold_images = False
    features: Count = 10
    theta_range: Annotated[float, Gt(0)] = 10.0
    x_range: Annotated[float, Gt(0)] = 10.0
    noise_std: Annotated[float, Ge(0)] = 3.0
    samples_per_node: Count = 50
    validation_samples: Count = 100
    test_samples: Count = 1000

    def domains_for(self, num_clusters: int) -> int:
        """Return the number of clusters."""
        return num_clusters

    def generate(self, nodes: Any, seed: int) -> Dataset:
        """Return the data of one seed.

        Args:
            nodes: scenario section `nodes`.
            seed: the scenario's seed; streams "synthetic theta", and "synthetic <split>" of each cluster.
        """
        clusters = np.arange(len(nodes.clusters))
        shape, most = (len(clusters), self.features), self.theta_range
        theta = stream(seed, "synthetic theta").uniform(-most, most, shape)
        counts = {
            "train": self.samples_per_node * np.asarray(nodes.clusters),
            "validation": np.full(len(clusters), self.validation_samples),
            "test": np.full(len(clusters), self.test_samples),
        }
        domains = {split: np.repeat(clusters, count) for split, count in counts.items()}
        drawn = {split: self._draw(split, count, theta, seed) for split, count in counts.items()}
        origin = f"drawn from seed {seed}"
        return Dataset.of_splits("synthetic_regression", origin, drawn, 1, task="regression", domains=domains)

    def _draw(self, split: str, counts: np.ndarray, theta: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """All clusters' samples of one split: x float32 [n, 1, features, 1], y float32 [n]."""
        xs, ys = [], []
        for cluster, count in enumerate(counts.tolist()):
            rng = stream(seed, f"synthetic {split}", cluster)
            xs.append(rng.uniform(-self.x_range, self.x_range, (count, self.features)))
            ys.append(xs[-1] @ theta[cluster] + rng.normal(0.0, self.noise_std, count))
        x, y = np.concatenate(xs).astype(np.float32), np.concatenate(ys).astype(np.float32)
        return x[:, None, :, None], y
