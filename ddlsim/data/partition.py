"""The contract of partitions: how training samples, and perhaps test samples, are dealt to nodes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ddlsim.errors import ScenarioError, kind_of
from ddlsim.part import Part

if TYPE_CHECKING:
    from ddlsim.data.dataset import Dataset


class Partition(Part, ABC):
    """What every entry of PARTITIONS is."""

    by_domain: ClassVar[bool] = False
    """Whether clusters see their own domain only."""

    deals_apart: ClassVar[bool] = False
    """Whether it is known that no sample goes to two nodes, so that there cannot be more nodes than samples."""

    drops_remainders: ClassVar[bool] = False
    """Whether samples that do not divide evenly go to no node."""

    def dealt_at_random(self, samples: int, nodes: int) -> int | None:
        """Of so many samples of one domain, how many go to its nodes, where chance alone says which. Default: None: not
        chance alone, so that samples of two pools would be dealt in two ways."""
        return None

    def known_samples(self, pool: int, held_out: int, clusters: Sequence[int], num_classes: int) -> int:
        """Training samples of a node in a run that reads no data, in the mean over nodes, where every class and every
        domain has equally many. Default: dealt evenly, rounded up, or down if it drops remainders; not more than
        `samples_per_node`.

        Args:
            pool: how many are dealt.
            held_out: how many more there are, held out for validation.
            clusters: number of nodes of each cluster.
            num_classes: of the data set.
        """
        nodes = sum(clusters)
        share = pool // nodes if self.drops_remainders else -(-pool // nodes)
        return min(share, getattr(self, "samples_per_node", None) or share)

    def deal(
        self, dataset: "Dataset", pool: np.ndarray, node_cluster: np.ndarray, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """Deals the training set. Default: as `assign` does with its labels.

        Args:
            dataset: as loaded.
            pool: int64 [M], the training samples that are dealt, without those held out for validation.
            node_cluster: int64 [nodes], the cluster of every node.
            rng: a generator of its own.
        Returns:
            Per node, by id, the indices of its samples in the whole training set.
        Raises:
            ScenarioError: if the rule cannot be kept.
        """
        labels = dataset.train_labels
        if labels.ndim > 1:
            if self.needs_classes:
                raise ScenarioError(
                    f"partition: {dataset.name} has {labels.shape[1]} labels per sample, and this partition deals "
                    "samples by their one label. Use one of: random, quantity_skew, by_column."
                )
            labels = np.zeros(len(labels), np.int64)  # how many samples there are is all that the others need
        sizes = np.bincount(node_cluster).tolist()
        return by_node(self.assign_classes(labels[pool], sizes, rng, dataset.num_classes), pool, node_cluster)

    def deal_test(
        self,
        dataset: "Dataset",
        pool: np.ndarray,
        owned: Sequence[np.ndarray],
        node_cluster: np.ndarray,
        rng: np.random.Generator,
    ) -> list[np.ndarray] | None:
        """Deals the test set; None: nodes share their cluster's. Default: as `assign_test` does with its labels.

        Args:
            dataset, node_cluster, rng: as of `deal`.
            pool: int64 [M], the test samples that are not held out for validation.
            owned: per node its training samples, with those that it keeps for its own validation.
        Raises:
            ScenarioError: if the rule cannot be kept.
        """
        sizes = np.bincount(node_cluster).tolist()
        dealt = self.assign_test_classes(dataset.test_labels[pool], sizes, rng, dataset.num_classes)
        return None if dealt is None else by_node(dealt, pool, node_cluster)

    @abstractmethod
    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: np.random.Generator) -> list[np.ndarray]:
        """Deals the samples.

        Args:
            labels: int64 [N].
            clusters: number of nodes of each cluster.
            rng: a generator of its own.
        Returns:
            Per node the indices of its samples, the nodes of the first cluster first.
        Raises:
            ScenarioError: if the rule cannot be kept.
        """

    def assign_classes(
        self, labels: np.ndarray, clusters: Sequence[int], rng: np.random.Generator, num_classes: int
    ) -> list[np.ndarray]:
        """As `assign`, for rules that go by how many classes there are, of which samples may lack some.

        Args:
            labels, clusters, rng: as of `assign`.
            num_classes: of the data set, as `cluster_labels` is given it.
        """
        return self.assign(labels, clusters, rng)

    def assign_test(
        self, labels: np.ndarray, clusters: Sequence[int], rng: np.random.Generator
    ) -> list[np.ndarray] | None:
        """Per node the indices of its own test samples. Default: nodes have none, and share their cluster's test set.

        Args:
            labels: of the test set, int64 [N].
            clusters, rng: as of `assign`.
        Raises:
            ScenarioError: if the rule cannot be kept.
        """
        return None

    def assign_test_classes(
        self, labels: np.ndarray, clusters: Sequence[int], rng: np.random.Generator, num_classes: int
    ) -> list[np.ndarray] | None:
        """As `assign_test`, for rules that go by how many classes there are; see `assign_classes`."""
        return self.assign_test(labels, clusters, rng)

    def cluster_labels(self, num_clusters: int, num_classes: int) -> list[list[int]] | None:
        """Per cluster the labels that it is evaluated on. Default: all labels for all.

        Raises:
            ScenarioError: if the clusters do not fit.
        """
        return None


def by_node(dealt: Sequence[np.ndarray], pool: np.ndarray, node_cluster: np.ndarray) -> list[np.ndarray]:
    """What was dealt cluster by cluster, a cluster's nodes by rising id, as indices per node by id.

    Args:
        dealt: positions in `pool`.
        pool: int64 [M].
        node_cluster: int64 [nodes].
    Raises:
        ScenarioError: if they are no positions, or not of as many nodes.
    """
    owned = [np.empty(0, np.int64)] * len(node_cluster)
    check_dealt(dealt, len(owned))
    for node, own in zip(np.argsort(node_cluster, kind="stable"), dealt, strict=True):
        owned[node] = pool[check_indices(int(node), own, len(pool))]
    return owned


def check_dealt(dealt: Any, count: int) -> None:
    """Raises ScenarioError unless there is an entry for each of so many nodes."""
    if not isinstance(dealt, Sized) or isinstance(dealt, Mapping):
        raise ScenarioError(
            f"partition: expected a list with the indices of every node's samples, got {kind_of(dealt)}."
        )
    if len(dealt) != count:
        raise ScenarioError(f"partition: expected the samples of {count} nodes, got those of {len(dealt)}.")


def check_indices(node: int, own: np.ndarray, count: int) -> np.ndarray:
    """The indices of a node's samples, of so many.

    Raises:
        ScenarioError: one below 0 would count from the end.
    """
    found = np.asarray(own)
    if found.ndim != 1 or not (np.issubdtype(found.dtype, np.integer) or not found.size):
        raise ScenarioError(
            f"partition: expected the indices of node {node}'s samples, whole numbers [M], got {found.dtype} "
            f"{list(found.shape)}."
        )
    wrong = found[(found < 0) | (found >= count)]
    if len(wrong):
        raise ScenarioError(
            f"partition: node {node} is dealt the sample {wrong[0]} ({len(wrong)} such), expected indices of 0 to "
            f"{count - 1}."
        )
    return found.astype(np.int64, copy=False)
