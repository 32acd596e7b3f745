"""Clusters of classes with few samples of each: every node has the same number of samples of each of its cluster's
classes, and its own test samples.

Source: Mukherjee, "Model agnostic peer-to-peer learning", 2023: two clusters; scenario 1: five classes each; scenario
2: `overlap: 4`, seven classes each of which four are shared; 100 +- 25 samples per class (uniform or normal is not
stated), 15 test samples per class. The published code has other amounts: 300 samples per class, or 100 to 300, and
`stride: 200`, so that nodes that follow each other share samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ddlsim.data.partitions import Partition
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.units import Count, CountOrZero


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

    def __post_init__(self):
        if self.draw == "uniform" and self.spread >= self.samples_per_class:
            raise ScenarioError(
                f"spread: must be below samples_per_class ({self.samples_per_class}), got {self.spread}."
            )

    def idle(self, rounds: int) -> Iterator[tuple[str, str]]:
        if not self.spread:
            yield "draw", "spread is 0"

    def known_samples(self, pool: int, held_out: int, clusters: Sequence[int], num_classes: int) -> int:
        self._check_overlap(len(clusters), num_classes)
        return self.samples_per_class * len(self.cluster_labels(len(clusters), num_classes)[0])

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: np.random.Generator) -> list[np.ndarray]:
        return self.assign_classes(labels, clusters, rng, int(labels.max()) + 1)

    def assign_classes(
        self, labels: np.ndarray, clusters: Sequence[int], rng: np.random.Generator, num_classes: int
    ) -> list[np.ndarray]:
        """Deal the samples as Partition does.

        Raises:
            ScenarioError: if a class has too few samples, or clusters cannot share so many classes.
        """
        self._check_overlap(len(clusters), num_classes)
        pools = [np.flatnonzero(labels == label) for label in range(num_classes)]
        if self.stride is None:
            pools = [rng.permutation(pool) for pool in pools]
        return self._deal(pools, clusters, self.stride, lambda: self._amount(rng), "samples_per_class")

    def assign_test_classes(
        self, labels: np.ndarray, clusters: Sequence[int], rng: np.random.Generator, num_classes: int
    ) -> list[np.ndarray] | None:
        """Return per node the indices of its own test samples, disjoint; None if nodes have none.

        Raises:
            ScenarioError: if a class has too few samples.
        """
        if not self.test_samples_per_class:
            return None
        pools = [rng.permutation(np.flatnonzero(labels == label)) for label in range(num_classes)]
        return self._deal(pools, clusters, None, lambda: self.test_samples_per_class, "test_samples_per_class")

    def cluster_labels(self, num_clusters: int, num_classes: int) -> list[list[int]]:
        """Per cluster its classes: windows of equal width, the first from class 0, the last to the last class."""
        width = (num_classes + (num_clusters - 1) * self.overlap) // num_clusters
        if width <= self.overlap and num_clusters > 1:
            raise ScenarioError(
                f"partition.overlap: {num_clusters} clusters of {num_classes} classes cannot share {self.overlap}."
            )
        starts = [cluster * (width - self.overlap) for cluster in range(num_clusters)]
        return [list(range(start, start + width)) for start in starts]

    def _check_overlap(self, num_clusters: int, num_classes: int) -> None:
        """Raise ScenarioError if windows cannot share exactly this number of classes and cover all of them."""
        if (num_classes + (num_clusters - 1) * self.overlap) % num_clusters:
            fit = [
                str(overlap)
                for overlap in range(num_classes)
                if (num_classes + (num_clusters - 1) * overlap) % num_clusters == 0
                and overlap * num_clusters < num_classes + (num_clusters - 1) * overlap
            ]
            raise ScenarioError(
                f"partition.overlap: {num_clusters} windows of equal width that share {self.overlap} classes with "
                f"their neighbors do not cover {num_classes} classes exactly. Overlaps that do: "
                f"{', '.join(fit) or 'none'}."
            )

    def _amount(self, rng: np.random.Generator) -> int:
        if self.draw == "normal":
            return max(1, round(rng.normal(self.samples_per_class, self.spread)))
        return self.samples_per_class + int(rng.integers(-self.spread, self.spread + 1))

    def _deal(self, pools, clusters: Sequence[int], stride: int | None, amount, key: str) -> list[np.ndarray]:
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
                        raise ScenarioError(
                            f"partition.{key}: node {len(nodes)} needs samples up to the {taken[label]}th of class "
                            f"{label}, which has {len(pools[label])}. Use fewer nodes or fewer samples per class."
                        )
                    pieces.append(pools[label][start : taken[label]])
                nodes.append(np.concatenate(pieces))
        return nodes
