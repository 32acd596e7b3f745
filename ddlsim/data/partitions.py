"""Partitions of the samples over nodes: every rule deals indices of the training labels to nodes, cluster by cluster.

Sources: `random` as the FACADE paper's code cuts its data (Biswas et al., SaTML 2025), `uniform` as its text says;
`dirichlet`: Yurochkin et al., "Bayesian nonparametric federated learning of neural networks", ICML 2019, with the
minimum per node of Li et al., "Federated learning on non-IID data silos", ICDE 2022: every label over the nodes; with
equal sizes Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for federated visual
classification", 2019: every node over the labels; `shards`: McMahan et al., "Communication-efficient
learning of deep networks from decentralized data", AISTATS 2017. Nodes' samples are disjoint. Same generator, same
cuts.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import Gt
from numpy.random import Generator

from ddlsim.data.dataset import Dataset
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.registry import Part
from ddlsim.foundation.units import Count, CountOrZero

Dealt = list[np.ndarray]
"""Per node the indices of its samples."""


@dataclass(frozen=True, kw_only=True)
class Partition(Part, ABC):
    """Interface of every entry of PARTITIONS.

    Args:
        seed: seed of the whole split: placement of nodes, samples held out, samples of each node, and test samples.
            null: the scenario's seed. With a number, runs of all seeds have the same split and differ in their initial
            models and batches.
    """

    why: ClassVar[Mapping[str, str]] = {"seed": "the scenario's seed draws all"}

    seed: CountOrZero | None = None

    by_domain: ClassVar[bool] = False
    """Whether clusters see their own domain only."""

    deals_apart: ClassVar[bool] = False
    """Whether it is known that no sample goes to two nodes, so that there cannot be more nodes than samples."""

    drops_remainders: ClassVar[bool] = False
    """Whether samples that do not divide evenly go to no node."""

    def dealt_at_random(self, samples: int, nodes: int) -> int | None:
        """Return the number of `samples` of one domain that go to its nodes if chance alone decides. Default: None, not
        chance alone, so that samples of two pools would be dealt in two ways.
        """
        return None

    def known_samples(self, pool: int, held_out: int, clusters: Sequence[int], num_classes: int) -> int:
        """Training samples of a node in a run that reads no data, in the mean over nodes, where every class and every
        domain has equally many. Default: dealt evenly, rounded up, or down if it drops remainders; not more than
        `samples_per_node`.

        Args:
            pool: number of samples to deal.
            held_out: number of further samples, held out for validation.
            clusters: number of nodes of each cluster.
            num_classes: of the data set.
        """
        nodes = sum(clusters)
        share = pool // nodes if self.drops_remainders else -(-pool // nodes)
        return min(share, getattr(self, "samples_per_node", None) or share)

    def deal(self, dataset: Dataset, pool: np.ndarray, node_cluster: np.ndarray, rng: Generator) -> Dealt:
        """Deal the training set. Default: as `assign` does with its labels.

        Args:
            dataset: as loaded.
            pool: int64 [M], the training samples that are dealt, without those held out for validation.
            node_cluster: int64 [nodes], the cluster of every node.
            rng: a separate generator.
        Returns:
            Per node, by id, the indices of its samples in the whole training set.
        Raises:
            ScenarioError: if the rule cannot be satisfied.
        """
        sizes = np.bincount(node_cluster).tolist()
        dealt = self.assign_classes(self.dealt_by(dataset)[pool], sizes, rng, dataset.num_classes)
        return by_node(dealt, pool, node_cluster)

    def dealt_by(self, dataset: Dataset) -> np.ndarray:
        """Return the values of the training samples, [N], by which `assign` deals them. Default: their labels."""
        labels = dataset.train_labels
        if labels.ndim > 1 and self.needs_classes:
            text = f"expected one label per sample, got {labels.shape[1]} in {dataset.name}"
            raise ScenarioError(f"partition: {text}. Use random, quantity_skew or by_column.")
        return labels if labels.ndim == 1 else np.zeros(len(labels), np.int64)  # only their number matters then

    def deal_test(
        self, dataset: Dataset, pool: np.ndarray, owned: Dealt, node_cluster: np.ndarray, rng: Generator
    ) -> Dealt | None:
        """Deal the test set; return None if nodes share their cluster's. Default: as `assign_test` does with its
        labels.

        Args:
            dataset, node_cluster, rng: as in `deal`.
            pool: int64 [M], the test samples that are not held out for validation.
            owned: per node its training samples, including its own validation samples.
        Raises:
            ScenarioError: if the rule cannot be satisfied.
        """
        sizes = np.bincount(node_cluster).tolist()
        dealt = self.assign_test(dataset.test_labels[pool], sizes, rng, dataset.num_classes)
        return None if dealt is None else by_node(dealt, pool, node_cluster)

    @abstractmethod
    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        """Deal the samples.

        Args:
            labels: int64 [N].
            clusters: number of nodes of each cluster.
            rng: a separate generator.
        Returns:
            Per node the indices of its samples, the nodes of the first cluster first.
        Raises:
            ScenarioError: if the rule cannot be satisfied.
        """

    def assign_classes(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator, num_classes: int) -> Dealt:
        """Deal as `assign` does, for rules that depend on the number of classes, of which samples may lack some.

        Args:
            labels, clusters, rng: as in `assign`.
            num_classes: of the data set, as in `cluster_labels`.
        """
        return self.assign(labels, clusters, rng)

    def assign_test(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator, classes: int) -> Dealt | None:
        """Return per node the indices of its own test samples. Default: nodes have none, and share their cluster's test
        set.

        Args:
            labels: of the test set, int64 [N].
            clusters, rng, classes: as in `assign_classes`.
        Raises:
            ScenarioError: if the rule cannot be satisfied.
        """
        return None

    def cluster_labels(self, num_clusters: int, num_classes: int) -> list[list[int]] | None:
        """Per cluster the labels that it is evaluated on. Default: all labels for all.

        Raises:
            ScenarioError: if the clusters do not fit.
        """
        return None


def by_node(dealt: Sequence[np.ndarray], pool: np.ndarray, node_cluster: np.ndarray) -> list[np.ndarray]:
    """Convert samples dealt cluster by cluster, a cluster's nodes by ascending id, to indices per node by id.

    Args:
        dealt: positions in `pool`.
        pool: int64 [M].
        node_cluster: int64 [nodes].
    Raises:
        ScenarioError: if they are not positions, or the number of nodes differs.
    """
    owned = [np.empty(0, np.int64)] * len(node_cluster)
    check_dealt(dealt, len(owned))
    for node, own in zip(np.argsort(node_cluster, kind="stable"), dealt, strict=True):
        owned[node] = pool[check_indices(int(node), own, len(pool))]
    return owned


def check_dealt(dealt: Any, count: int) -> None:
    """Raise ScenarioError unless there is one entry per node."""
    if not isinstance(dealt, Sized) or isinstance(dealt, Mapping) or len(dealt) != count:
        got = f"{kind_of(dealt)}{f' of {len(dealt)}' if isinstance(dealt, Sized) else ''}"
        raise ScenarioError(f"partition: expected a list with the samples of {count} nodes, got {got}.")


def check_indices(node: int, own: Any, count: int) -> np.ndarray:
    """Return the indices of a node's samples, checked against the number of samples.

    Raises:
        ScenarioError: if an index is out of range; one below 0 would count from the end.
    """
    found = np.empty((0, 0))
    with suppress(ValueError):  # lists of several lengths
        found = np.asarray(own)
    fits = found.ndim == 1 and (np.issubdtype(found.dtype, np.integer) or not found.size)
    wrong = found[(found < 0) | (found >= count)]
    if not fits or len(wrong):
        got = wrong[0] if fits else f"{found.dtype} {list(found.shape)}"
        raise ScenarioError(f"partition: node {node}: expected indices [M] of 0 to {count - 1}, got {got}.")
    return found.astype(np.int64, copy=False)


MAX_DRAWS = 1000
"""Most draws of proportions before nodes below the minimum are topped up."""


class _DealtApart(Partition):
    deals_apart: ClassVar[bool] = True


class _OfClasses(_DealtApart):
    needs_classes: ClassVar = True


@dataclass(frozen=True, kw_only=True)
class Random(_DealtApart):
    """Shuffle, cut into one piece per cluster, then one per node; equal sizes, labels as chance has it.

    Remainders of the cuts are dropped.

    Args:
        samples_per_node: no node gets more than this; null: all there are.
    """

    drops_remainders: ClassVar[bool] = True

    samples_per_node: Count | None = None

    def dealt_at_random(self, samples: int, nodes: int) -> int:
        return samples if self.samples_per_node is None else min(samples, self.samples_per_node * nodes)

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        order = rng.permutation(len(labels))
        ends = np.cumsum(clusters) * len(order) // sum(clusters)
        return [
            piece
            for chunk, count in zip(np.split(order, ends[:-1]), clusters, strict=True)
            for piece in equal_cuts(chunk, count, len(order) // sum(clusters), self.samples_per_node)
        ]


@dataclass(frozen=True, kw_only=True)
class Uniform(_OfClasses):
    """Every node gets the same number of samples of each label.

    Remainders are dropped: per label less than one sample per node.

    Args:
        samples_per_node: no node gets more than this, rounded down to equal numbers of all labels, at least as
            many as there are labels; null: all there are.
    """

    drops_remainders: ClassVar[bool] = True

    samples_per_node: Count | None = None

    def known_samples(self, pool: int, held_out: int, clusters: Sequence[int], num_classes: int) -> int:
        found = super().known_samples(pool, held_out, clusters, num_classes)
        return max(1, found // num_classes) * num_classes

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        present = np.unique(labels)
        if self.samples_per_node is not None and self.samples_per_node < len(present):
            text = f"expected at least {len(present)}, the number of labels, got {self.samples_per_node}"
            raise ScenarioError(f"partition.samples_per_node: {text}. Raise it, or use partition: random.")
        per_label = None if self.samples_per_node is None else self.samples_per_node // len(present)
        dealt: list[list[np.ndarray]] = [[] for _ in range(sum(clusters))]
        for label in present:
            order = rng.permutation(np.flatnonzero(labels == label))
            size = len(order) // len(dealt)
            for pieces, piece in zip(dealt, equal_cuts(order, len(dealt), size, per_label), strict=True):
                pieces.append(piece)
        return [np.concatenate(pieces) for pieces in dealt]


@dataclass(frozen=True, kw_only=True)
class Dirichlet(_OfClasses):
    """Each label is spread over the nodes in proportions drawn from a Dirichlet distribution.

    All samples are dealt. Proportions are drawn again, up to 1,000 times, until every node has the minimum. If no draw
    has, the nodes below the minimum of the last draw get random samples of the largest nodes.

    With equal sizes, each node draws the proportions of its labels instead, from Dir(alpha p) with the labels' shares p
    in the data (Hsu, Qi and Brown 2019), so that the same alpha gives fewer labels per node. The other labels take the
    place of a label without samples left.

    Args:
        alpha: concentration; small: each node has few labels; large: all nodes alike.
        min_samples: fewest samples that a node may have.
        equal_sizes: whether all nodes have equally many samples; remainders are dropped.
    """

    alpha: Annotated[float, Gt(0)]
    min_samples: Count = 10
    equal_sizes: bool = False

    @property
    def drops_remainders(self) -> bool:  # type: ignore[override]
        return self.equal_sizes

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        num_nodes = sum(clusters)
        if len(labels) < num_nodes * self.min_samples:
            text = f"{len(labels)} samples cannot give each of {num_nodes} nodes {self.min_samples}"
            raise ScenarioError(f"partition.min_samples: {text}. Lower it, or use fewer nodes.")
        by_label = [rng.permutation(np.flatnonzero(labels == label)) for label in np.unique(labels)]
        if self.equal_sizes:
            return self._equal(by_label, num_nodes, rng)
        for _ in range(MAX_DRAWS):
            shares = rng.dirichlet(np.full(num_nodes, self.alpha), size=len(by_label))
            ends = [_ends(share, len(own)) for share, own in zip(shares, by_label, strict=True)]
            sizes = np.sum([np.diff(end, prepend=0) for end in ends], axis=0)
            if sizes.min() >= self.min_samples:
                break
        pieces = [np.split(own, end[:-1]) for own, end in zip(by_label, ends, strict=True)]
        dealt = [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
        return dealt if sizes.min() >= self.min_samples else _topped_up(dealt, self.min_samples, rng)

    def _equal(self, by_label: Sequence[np.ndarray], num_nodes: int, rng: Generator) -> Dealt:
        left = np.array([len(own) for own in by_label])
        size, prior = left.sum() // num_nodes, left / left.sum()
        dealt = []
        for _ in range(num_nodes):
            # Logarithms of gamma variates, which are proportional to the shares; with small alpha they would underflow.
            logs = np.log(rng.gamma(self.alpha * prior + 1)) + np.log(1 - rng.random(len(prior))) / (self.alpha * prior)
            taken = np.zeros_like(left)
            while (missing := size - taken.sum()) > 0:
                some = left > taken
                weights = np.exp(np.where(some, logs - logs[some].max(), -np.inf))
                taken = np.minimum(taken + rng.multinomial(missing, weights / weights.sum()), left)
            parts = [own[count - more : count] for own, count, more in zip(by_label, left, taken, strict=True)]
            dealt.append(np.concatenate(parts))
            left = left - taken
        return dealt


def _topped_up(dealt: Dealt, least: int, rng: Generator) -> Dealt:
    """Move random samples, one by one, from the largest node to the nodes with fewer than `least`."""
    owned = [rng.permutation(own).tolist() for own in dealt]
    largest = [(-len(own), node) for node, own in enumerate(owned)]
    heapq.heapify(largest)
    for own in owned:
        while len(own) < least:
            size, node = largest[0]
            own.append(owned[node].pop())
            heapq.heapreplace(largest, (size + 1, node))
    return [np.array(own, np.int64) for own in owned]


@dataclass(frozen=True, kw_only=True)
class Shards(_OfClasses):
    """Sort by label, cut into equal shards, deal the same number of shards to every node.

    All samples are dealt; shard sizes differ by one at most.

    Args:
        shards_per_node: number of shards of a node, which has about as many labels.
    """

    shards_per_node: Count = 2

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        num_shards = sum(clusters) * self.shards_per_node
        order = rng.permutation(len(labels))
        shards = np.array_split(order[np.argsort(labels[order], kind="stable")], num_shards)
        dealt = rng.permutation(num_shards).reshape(-1, self.shards_per_node)
        return [np.concatenate([shards[shard] for shard in own]) for own in dealt]


@dataclass(frozen=True, kw_only=True)
class QuantitySkew(_DealtApart):
    """Nodes own different amounts, in proportions drawn from a Dirichlet distribution; labels as chance has it.

    All samples are dealt. Proportions are drawn again, up to 1,000 times, until every node has the minimum; see
    dirichlet.

    Args:
        alpha: concentration; small: few nodes own most; large: all own the same.
        min_samples: fewest samples that a node may have.
    """

    alpha: Annotated[float, Gt(0)]
    min_samples: Count = 10

    def assign(self, labels: np.ndarray, clusters: Sequence[int], rng: Generator) -> Dealt:
        as_one = Dirichlet(alpha=self.alpha, min_samples=self.min_samples)
        return as_one.assign(np.zeros_like(labels), clusters, rng)


def equal_cuts(order: np.ndarray, count: int, size: int, limit: int | None) -> list[np.ndarray]:
    """The first `count` contiguous pieces of `size`, each cut to `limit`; the rest is dropped."""
    return [order[node * size : (node + 1) * size][:limit] for node in range(count)]


def _ends(share: np.ndarray, count: int) -> np.ndarray:
    """Return the ends of the pieces of `count` samples cut in these proportions; the last end is `count`."""
    ends = np.floor(np.cumsum(share) * count).astype(np.int64).clip(max=count)
    ends[-1] = count
    return ends
