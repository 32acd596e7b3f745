"""Partitions whose clusters differ: in their labels, domains or classes; a cluster is evaluated on its own.

Sources: `label_clusters`: Listo Zec et al., "Decentralized adaptive clustering of deep nets", 2022, with CIFAR-10's
vehicles and animals; CIFAR-100 in three groups of superclasses as in Hagander and Ihre-Thomason, "With a little help
from my friends", master's thesis, Lund 2024, table A.2. The code of the published numbers takes the labels to be sorted
by superclass (superclass 0 has labels 0 to 4, and so on), though torchvision sorts them by name, so its groups are not
superclasses; `cifar100_published` are those groups, worked out from the table and that rule.

`class_clusters`: Mukherjee, "Model agnostic peer-to-peer learning", 2023: two clusters; scenario 1: five classes each;
scenario 2: `overlap: 4`, seven classes each of which four are shared; 100 +- 25 samples per class (uniform or normal is
not stated), 15 test samples per class. The published code has other amounts: 300 samples per class, or 100 to 300, and
`stride: 200`, so that nodes that follow each other share samples.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.random import Generator

from ddlsim.data.dataset import Dataset
from ddlsim.data.partitions import Dealt, Partition, equal_cuts
from ddlsim.foundation.errors import ScenarioError, listing
from ddlsim.foundation.units import Count, CountOrZero

CIFAR100_SUPERCLASSES: tuple[tuple[int, ...], ...] = (
    (4, 30, 55, 72, 95),  # aquatic mammals
    (1, 32, 67, 73, 91),  # fish
    (54, 62, 70, 82, 92),  # flowers
    (9, 10, 16, 28, 61),  # food containers
    (0, 51, 53, 57, 83),  # fruit and vegetables
    (22, 39, 40, 86, 87),  # household electrical devices
    (5, 20, 25, 84, 94),  # household furniture
    (6, 7, 14, 18, 24),  # insects
    (3, 42, 43, 88, 97),  # large carnivores
    (12, 17, 37, 68, 76),  # large man-made outdoor things
    (23, 33, 49, 60, 71),  # large natural outdoor scenes
    (15, 19, 21, 31, 38),  # large omnivores and herbivores
    (34, 63, 64, 66, 75),  # medium-sized mammals
    (26, 45, 77, 79, 99),  # non-insect invertebrates
    (2, 11, 35, 46, 98),  # people
    (27, 29, 44, 78, 93),  # reptiles
    (36, 50, 65, 74, 80),  # small mammals
    (47, 52, 56, 59, 96),  # trees
    (8, 13, 48, 58, 90),  # vehicles 1
    (41, 69, 81, 85, 89),  # vehicles 2
)
"""The labels (torchvision's, sorted by name) of each superclass."""

THREE_WORLDS = ((0, 1, 7, 8, 11, 12, 13, 14, 15, 16), (2, 3, 4, 10, 17), (5, 6, 9, 18, 19))
"""Superclasses of the thesis's three clusters: animals and people; plants, food and nature; things and vehicles."""

LABEL_GROUPS: dict[str, tuple[tuple[int, ...], ...]] = {
    "vehicles_animals": ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7)),
    "cifar100_superclasses": tuple(
        tuple(sorted(label for group in groups for label in CIFAR100_SUPERCLASSES[group])) for groups in THREE_WORLDS
    ),
    "cifar100_published": tuple(
        tuple(5 * group + number for group in groups for number in range(5)) for groups in THREE_WORLDS
    ),
}
"""Name -> per cluster its labels."""


@dataclass(frozen=True, kw_only=True)
class LabelClusters(Partition):
    """Each cluster has its own labels, and is evaluated on these; inside a cluster the split is random.

    A label of several clusters is shared out by their numbers of nodes. Remainders are dropped.

    Args:
        labels: per cluster the list of its labels; even: labels in order, as many for each cluster as possible;
            vehicles_animals: of CIFAR-10; cifar100_superclasses: three groups of superclasses, or cifar100_published:
            the groups by which the published code took them for the same.
        samples_per_node: no node gets more than this; null: all there are.
    """

    needs_classes: ClassVar = True
    drops_remainders: ClassVar[bool] = True

    labels: (
        tuple[tuple[CountOrZero, ...], ...]
        | Literal["even", "vehicles_animals", "cifar100_superclasses", "cifar100_published"]
    ) = "even"
    samples_per_node: Count | None = None

    def known_samples(self, pool: int, held_out: int, clusters: Sequence[int], num_classes: int) -> int:
        owned = [set(own) for own in self.cluster_labels(len(clusters), num_classes)]
        sharing = [
            sum(nodes for nodes, own in zip(clusters, owned, strict=True) if label in own)
            for label in range(num_classes)
        ]
        shares = [int(sum(pool / num_classes / sharing[label] for label in own)) for own in owned]
        dealt = (
            nodes * min(share, self.samples_per_node or share) for nodes, share in zip(clusters, shares, strict=True)
        )
        return sum(dealt) // sum(clusters)

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        return self.assign_classes(labels, clusters, rng, int(labels.max()) + 1)

    def assign_classes(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator, num_classes: int) -> Dealt:
        owned = self.cluster_labels(len(clusters), num_classes)
        pools: list[list[np.ndarray]] = [[] for _ in clusters]
        for label in np.unique(labels):
            owners = [cluster for cluster, own in enumerate(owned) if label in own]
            if not owners:
                continue
            order = rng.permutation(np.flatnonzero(labels == label))
            counts = np.array([clusters[cluster] for cluster in owners])
            ends = np.cumsum(counts) * len(order) // counts.sum()
            for cluster, piece in zip(owners, np.split(order, ends[:-1]), strict=True):
                pools[cluster].append(piece)
        nodes = []
        for pieces, count in zip(pools, clusters, strict=True):
            pool = rng.permutation(np.concatenate([np.empty(0, np.int64), *pieces]))
            nodes += equal_cuts(pool, count, len(pool) // count, self.samples_per_node)
        return nodes

    def cluster_labels(self, num_clusters: int, num_classes: int) -> list[list[int]]:
        """Per cluster its labels.

        Raises:
            ScenarioError: if there is not one list per cluster, or a label does not exist.
        """
        if self.labels == "even":
            return [part.tolist() for part in np.array_split(np.arange(num_classes), num_clusters)]
        groups = LABEL_GROUPS[self.labels] if isinstance(self.labels, str) else self.labels
        wrong = sorted({label for own in groups for label in own if label >= num_classes})
        if wrong or len(groups) != num_clusters:
            expected = f"{num_clusters} lists, one per cluster, of labels 0..{num_classes - 1}"
            got = f"labels {listing(wrong)}" if wrong else f"{len(groups)} lists"
            raise ScenarioError(f"partition.labels: expected {expected}, got {got}.")
        return [list(own) for own in groups]


@dataclass(frozen=True, kw_only=True)
class Domains(Partition):
    """Each cluster has its own domain (part of joined data, process of synthetic data); inside, the split is random.

    A cluster is evaluated on its own domain only. Remainders are dropped.

    Args:
        samples_per_node: no node gets more than this; null: all there are.
    """

    by_domain: ClassVar = True
    drops_remainders: ClassVar[bool] = True

    samples_per_node: Count | None = None

    def dealt_at_random(self, samples: int, nodes: int) -> int:
        return samples if self.samples_per_node is None else min(samples, self.samples_per_node * nodes)

    def known_samples(self, pool: int, held_out: int, clusters: Sequence[int], num_classes: int) -> int:
        return self._as_labels(len(clusters)).known_samples(pool, held_out, clusters, len(clusters))

    def dealt_by(self, dataset: Dataset) -> np.ndarray:
        return dataset.domain_of("train")

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        """Deal the samples; `labels` are domains."""
        return self._as_labels(len(clusters)).assign(labels, clusters, rng)

    def _as_labels(self, num_clusters: int) -> LabelClusters:
        """The same rule, for domains in the place of labels."""
        own = tuple((cluster,) for cluster in range(num_clusters))
        return LabelClusters(labels=own, samples_per_node=self.samples_per_node)


@dataclass(frozen=True, kw_only=True)
class ClassClusters(Partition):
    """Each cluster has its own classes in order, each node a number of samples of each, and its own test samples.

    Args:
        overlap: classes that neighboring clusters share.
        samples_per_class: training samples of a node per class of its cluster, in the mean.
        spread: by how many that number may differ, drawn per node and class.
        draw: uniform: any number up to `spread` more or less; normal: `spread` is the standard deviation.
        stride: null: nodes' samples are disjoint; a number: of each class the i-th node (from 0), counted cluster
            by cluster (by id where nodes.placement is contiguous), has those from stride * i on.
        test_samples_per_class: a node's own test samples per class; 0: its cluster's classes of the whole test set.
    """

    overlap: CountOrZero = 0
    samples_per_class: Count = 100
    spread: CountOrZero = 25
    draw: Literal["uniform", "normal"] = "uniform"
    stride: Count | None = None
    test_samples_per_class: CountOrZero = 15

    def __post_init__(self) -> None:
        if self.draw == "uniform" and self.spread >= self.samples_per_class:
            raise ScenarioError(f"spread: expected less than samples_per_class, got {self.spread}.")

    def unused_keys(self, rounds: int) -> Iterator[tuple[str, str]]:
        if not self.spread:
            yield "draw", "spread is 0"

    def known_samples(self, pool: int, held_out: int, clusters: Sequence[int], num_classes: int) -> int:
        self._check_overlap(len(clusters), num_classes)
        return self.samples_per_class * len(self.cluster_labels(len(clusters), num_classes)[0])

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        return self.assign_classes(labels, clusters, rng, int(labels.max()) + 1)

    def assign_classes(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator, num_classes: int) -> Dealt:
        """Deal the samples as Partition does.

        Raises:
            ScenarioError: if a class has too few samples, or clusters cannot share so many classes.
        """
        self._check_overlap(len(clusters), num_classes)
        pools = [np.flatnonzero(labels == label) for label in range(num_classes)]
        if self.stride is None:
            pools = [rng.permutation(pool) for pool in pools]
        return self._deal(pools, clusters, self.stride, lambda: self._amount(rng), "samples_per_class")

    def assign_test(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator, classes: int) -> Dealt | None:
        """Return per node the indices of its own test samples, disjoint; None if nodes have none.

        Raises:
            ScenarioError: if a class has too few samples.
        """
        if not self.test_samples_per_class:
            return None
        pools = [rng.permutation(np.flatnonzero(labels == label)) for label in range(classes)]
        return self._deal(pools, clusters, None, lambda: self.test_samples_per_class, "test_samples_per_class")

    def cluster_labels(self, num_clusters: int, num_classes: int) -> list[list[int]]:
        """Per cluster its classes: windows of equal width, the first from class 0, the last to the last class."""
        width = (num_classes + (num_clusters - 1) * self.overlap) // num_clusters
        if width <= self.overlap and num_clusters > 1:
            text = f"{num_clusters} clusters of {num_classes} classes cannot share {self.overlap}"
            raise ScenarioError(f"partition.overlap: {text}.")
        starts = [cluster * (width - self.overlap) for cluster in range(num_clusters)]
        return [list(range(start, start + width)) for start in starts]

    def _check_overlap(self, num_clusters: int, num_classes: int) -> None:
        """Raise ScenarioError if windows cannot share exactly this number of classes and cover all of them."""
        if (num_classes + (num_clusters - 1) * self.overlap) % num_clusters:
            widths = [num_classes + (num_clusters - 1) * overlap for overlap in range(num_classes)]
            fit = [n for n, width in enumerate(widths) if width % num_clusters == 0 and n * num_clusters < width]
            text = f"{num_clusters} equal windows cover {num_classes} classes, got {self.overlap}"
            raise ScenarioError(f"partition.overlap: expected {listing(fit, 20) or 'one cluster'}: {text}.")

    def _amount(self, rng: Generator) -> int:
        if self.draw == "normal":
            return max(1, round(rng.normal(self.samples_per_class, self.spread)))
        return self.samples_per_class + int(rng.integers(-self.spread, self.spread + 1))

    def _deal(
        self, pools: Sequence[np.ndarray], clusters: Sequence[int], stride: int | None, amount: Callable, key: str
    ) -> list[np.ndarray]:
        owned = self.cluster_labels(len(clusters), len(pools))
        taken = [0] * len(pools)
        nodes: list[np.ndarray] = []
        for cluster, count in enumerate(clusters):
            for _ in range(count):
                pieces = []
                for label in owned[cluster]:
                    start = taken[label] if stride is None else stride * len(nodes)
                    taken[label] = start + amount()
                    if taken[label] > len(pools[label]):
                        text = f"expected {taken[label]} samples of class {label}, got {len(pools[label])}"
                        raise ScenarioError(f"partition.{key}: node {len(nodes)}: {text}. Use fewer of both.")
                    pieces.append(pools[label][start : taken[label]])
                nodes.append(np.concatenate(pieces))
        return nodes
