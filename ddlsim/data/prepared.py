"""Preparation of a data set for nodes and clusters: split, dealt, normalized, shifted.

Order: the validation set is taken off first (from train, or from test, which then loses it; or it is the data set's own
set), the rest of train is dealt to the nodes by the partition, and each cluster's shift is applied to its nodes'
samples and to its own view of the whole test and validation sets. Images that are bytes stay bytes in the data set's
array, and become float32 batch by batch; samples in a memory-mapped file are read batch by batch.

Validation samples are part of the training or test set for all nodes, or part of every node's samples.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ddlsim.data.dataset import Dataset, Outline
from ddlsim.data.partitions import Partition, check_dealt, check_indices
from ddlsim.data.pixels import Decoding, Uint8Images
from ddlsim.data.shifts import Samples, Shift
from ddlsim.data.views import ClusterView, samples_of, views_of
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.rng import stream
from ddlsim.tasks import as_task

Validation = Any
"""Scenario section `validation`: source, fraction and seed."""

Nodes = Any
"""Scenario section `nodes`: clusters and placement."""


def split(dataset: Dataset, validation: Validation, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the indices of the training pool, the test set and the validation set (empty without a common one).

    Args:
        dataset: as loaded.
        validation: as in prepare().
        seed: the scenario's; stream "validation", if the section sets no seed.

    Raises:
        ScenarioError: if one side would be empty, or the validation set does not exist.
    """
    pools = {"train": np.arange(len(dataset.train_labels)), "test": np.arange(len(dataset.test_labels))}
    held_out = np.empty(0, np.int64)
    if validation.source == "own":
        if dataset.validation_labels is None:
            raise ScenarioError(f"validation.source: {dataset.name} has no validation set. Use train, test or node.")
        held_out = np.arange(len(dataset.validation_labels))
    if validation.source in pools:
        pool = pools[validation.source]
        count = round(validation.fraction * len(pool))
        if not 0 < count < len(pool):
            text = f"{validation.fraction} of {len(pool)} {validation.source} samples leaves one side empty"
            raise ScenarioError(f"validation.fraction: {text}.")
        rng = stream(seed, "validation") if validation.seed is None else np.random.default_rng(validation.seed)
        order = rng.permutation(pool)
        held_out, pools[validation.source] = np.sort(order[:count]), np.sort(order[count:])
    return pools["train"], pools["test"], held_out


def split_of(validation: Validation) -> str:
    """Return the split of the data set that contains the common validation samples."""
    return "validation" if validation.source == "own" else validation.source


def deal_both(
    dataset: Dataset,
    train: np.ndarray,
    validation: Validation,
    partition: Partition,
    node_cluster: np.ndarray,
    seed: int,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return every node's training and validation samples, by node id; without a source `node` no validation samples.

    Without a validation seed, each node keeps a random fraction of its dealt samples. With one, the training samples
    (of each domain as many as its nodes get) are shuffled by it, and the last of them are dealt to the nodes
    separately.

    Args:
        dataset, validation, partition, node_cluster: as in prepare().
        train: int64 [M], the samples that can be dealt.
        seed: the scenario's; streams "validation", "partition" and "validation partition".

    Raises:
        ScenarioError: if a node would have nothing to train on or to validate with, or the partition does not deal at
            random.
    """

    def deal(pool: np.ndarray, name: str) -> list[np.ndarray]:
        return dealt(dataset, pool, partition, node_cluster, stream(seed, name))

    if validation.source != "node":
        return deal(train, "partition"), []
    if validation.seed is None:
        return _keep_a_part(deal(train, "partition"), validation.fraction, seed)
    for_training, for_validation = _pools(dataset, train, validation, partition, node_cluster)
    return deal(for_training, "partition"), deal(for_validation, "validation partition")


def _pools(
    dataset: Dataset, train: np.ndarray, validation: Validation, partition: Partition, node_cluster: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples for training and those for validation, both independent of the scenario's seed."""
    for_training, for_validation = [], []
    sizes = np.bincount(node_cluster) if partition.by_domain else np.array([len(node_cluster)])
    domains = dataset.domain_of("train")[train] if partition.by_domain else np.zeros(len(train), np.int64)
    for domain, nodes in enumerate(sizes.tolist()):
        own = train[domains == domain]
        size = partition.dealt_at_random(len(own), nodes)
        if size is None:
            raise ScenarioError("validation.seed: with source node it fits only a partition that deals at random.")
        order = np.random.default_rng(validation.seed).permutation(own)[:size]
        cut = size - round(validation.fraction * size)
        if min(cut, size - cut) < nodes:
            text = f"expected one training and one validation sample for each of {nodes} nodes"
            raise ScenarioError(f"validation.fraction: {text}, got {cut} and {size - cut}. Use fewer nodes.")
        for_training.append(order[:cut])
        for_validation.append(order[cut:])
    return np.sort(np.concatenate(for_training)), np.sort(np.concatenate(for_validation))


def _keep_a_part(owned: list[np.ndarray], fraction: float, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Move a random fraction, at least one sample, of each node's samples to its own validation samples."""
    train, validation = [], []
    for node, own in enumerate(owned):
        count = max(1, round(fraction * len(own)))
        if count >= len(own):
            text = f"{fraction} of node {node}'s {len(own)} samples leaves none to train on"
            raise ScenarioError(f"validation.fraction: {text}.")
        order = stream(seed, "validation", node).permutation(own)
        validation.append(order[:count])
        train.append(order[count:])
    return train, validation


@dataclass(kw_only=True)
class PreparedData(Outline):
    """Samples of a run for training and evaluation. Images are float32 [n, C, H, W], contiguous, or Uint8Images that
    return these. Other samples keep their shape, and integers (token ids) their type. Samples in a memory-mapped file
    are MappedSamples. Labels are int64 [n] or [n, ...], of a regression float32 [n].

    Args:
        node_train: per node its own training samples.
        cluster_test: per cluster its copy of the test set; clusters with equal sets share the arrays. If a partition
            gives every node its own test samples, those, per node.
        cluster_validation: per cluster its copy of the validation set, or None.
        node_validation: per node its own validation samples, or None.
        mean: per channel the subtracted value, float32 [C], on the scale of the values before.
        std: per channel the divisor.
        about: for the manifest: name, origin, sha256 of the samples, `dealt`: sha256 of the assignment of samples to
            nodes, number of samples; `inputs`: their preparation; `notes` for every report; `tested`: of test sets that
            are not used whole the pairs [samples used, samples available].
        test_set: int64 [nodes], position in `cluster_test` of each node's test set.
        further arguments: see Outline.
    """

    node_train: list[Samples] = field(repr=False)
    cluster_test: list[Samples] = field(repr=False)
    cluster_validation: list[Samples] | None = field(repr=False)
    node_validation: list[Samples] | None = field(repr=False)
    mean: np.ndarray = field(repr=False)
    std: np.ndarray = field(repr=False)
    test_set: np.ndarray

    def class_counts(self) -> np.ndarray | None:
        """Training samples per node and class, as the node sees them (shifted labels too), int64 [nodes, classes]; None
        where samples have not one class each."""
        if not as_task(self.task).has_classes or self.node_train[0][1].ndim > 1:
            return None
        return np.stack([np.bincount(labels, minlength=self.num_classes) for _, labels in self.node_train])

    def release(self) -> None:
        """Discard the samples, once they are where they are used (on a GPU, say)."""
        self.node_train, self.cluster_test = [], []
        self.cluster_validation = self.node_validation = None


def prepare(
    dataset: Dataset,
    partition: Partition,
    shift: Shift,
    validation: Validation,
    nodes: Nodes,
    seed: int,
    test_samples: int | None = None,
) -> PreparedData:
    """Deal a data set to nodes and clusters.

    Args:
        dataset: as loaded.
        partition: an entry of PARTITIONS.
        shift: an entry of SHIFTS.
        validation: source train, test, node, own or none; fraction 0..1 of train, test, or of each node's samples; seed
            that chooses them instead of the scenario's, or None.
        nodes: nodes per cluster, and placement: contiguous, or shuffled (ids dealt to clusters at random).
        seed: the scenario's seed, if the partition has none; streams "validation", "partition", "placement", "test
            samples".
        test_samples: number of samples drawn of each test set, the same ones for equal sets; None for all.

    Raises:
        ScenarioError: if a node would have no samples, or partition, shift or validation do not fit the data.
    """
    seed = split_seed(partition, seed)
    train, test, held_out = split(dataset, validation, seed)
    node_cluster = place(nodes, seed)
    views = views_of(dataset, partition, shift, len(nodes.clusters))

    owned, reserved = deal_both(dataset, train, validation, partition, node_cluster, seed)
    node_validation = _per_node(dataset, reserved, views, node_cluster) if reserved else None
    node_train = _per_node(dataset, owned, views, node_cluster)
    whole = [np.concatenate(both) for both in zip(owned, reserved, strict=True)] if reserved else owned
    own_tests = partition.deal_test(dataset, test, whole, node_cluster, stream(seed, "test partition"))
    draw = _Sample(test_samples, seed)
    if own_tests is None:
        cluster_test = _per_cluster(dataset, "test", test, views, draw)
    else:
        cluster_test = _per_node(dataset, [draw(own) for own in own_tests], views, node_cluster, "test")
    cluster_validation = None
    if len(held_out):
        cluster_validation = _per_cluster(dataset, split_of(validation), held_out, views)
    about = _about(dataset, {"train": len(train), "test": len(test), "validation": len(held_out)}, owned)
    about["dealt"] = _digest([node_cluster, test, held_out, *owned, *reserved, *(own_tests or ())])
    if test_samples is not None:
        about["tested"] = [list(pair) for pair in sorted(draw.taken)]
    return PreparedData(
        node_train=node_train,
        cluster_test=cluster_test,
        cluster_validation=cluster_validation,
        node_validation=node_validation,
        node_cluster=node_cluster,
        num_classes=dataset.num_outputs,
        image_shape=dataset.sample_shape,
        mean=dataset.mean,
        std=dataset.std,
        about=about,
        task=dataset.task,
        test_set=node_cluster if own_tests is None else np.arange(len(own_tests)),
        dtype=dataset.sample_dtype,
        num_tokens=dataset.known_tokens,
        label_shape=dataset.train_labels.shape[1:],
    )


def split_indices(
    dataset: Dataset, partition: Partition, validation: Validation, nodes: Nodes, seed: int
) -> dict[str, list[list[int]]]:
    """Return the split as `partition: file` reads it: per node the indices of its samples, and of its own test samples
    if it has any.

    Args:
        dataset, partition, validation, nodes, seed: as in prepare().

    Raises:
        ScenarioError: as prepare(), and for a validation set that no file can reproduce.
    """
    if validation.source == "node" and validation.seed is not None:
        raise ScenarioError(
            "validation.seed: with source node it deals training and validation samples apart, which a file of one "
            "list per node cannot hold. Set it to null."
        )
    seed = split_seed(partition, seed)
    train, test, _ = split(dataset, validation, seed)
    node_cluster = place(nodes, seed)
    owned = dealt(dataset, train, partition, node_cluster, stream(seed, "partition"))
    tests = partition.deal_test(dataset, test, owned, node_cluster, stream(seed, "test partition"))
    found = {"train": owned} if tests is None else {"train": owned, "test": tests}
    return {name: [own.tolist() for own in each] for name, each in found.items()}


def _about(dataset: Dataset, sizes: Mapping[str, int], owned: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return a description of the data for a manifest."""
    per_node = list(map(len, owned))
    return {
        "name": dataset.name,
        "origin": dataset.origin,
        "sha256": dataset.sha256,
        **sizes,
        "per_node": {"min": min(per_node), "max": max(per_node), "total": sum(per_node)},
        "inputs": dataset.inputs,
        **({"notes": list(dataset.notes)} if dataset.notes else {}),
    }


def _digest(indices: Sequence[np.ndarray]) -> str:
    """SHA-256 of the assignment of samples to nodes, in hex."""
    digest = hashlib.sha256()
    for each in indices:
        digest.update(f"{len(each)} ".encode())
        digest.update(np.ascontiguousarray(each, dtype="<i8").data)
    return digest.hexdigest()


class _Sample:
    """Simple random samples without replacement, equal ones of equally large sets; `taken` keeps (taken, there)."""

    def __init__(self, size: int | None, seed: int):
        self._size, self._seed = size, seed
        self.taken: set[tuple[int, int]] = set()

    def __call__(self, indices: np.ndarray) -> np.ndarray:
        size = len(indices) if self._size is None else min(self._size, len(indices))
        self.taken.add((size, len(indices)))
        if size == len(indices):
            return indices
        chosen = stream(self._seed, "test samples").choice(len(indices), size, replace=False)
        return indices[np.sort(chosen)]


def split_seed(partition: Partition | None, seed: int) -> int:
    """Return the seed of the split: the partition's, or else the scenario's."""
    own = None if partition is None else partition.seed
    return seed if own is None else own


def place(nodes: Nodes, seed: int) -> np.ndarray:
    """The cluster of every node."""
    node_cluster = np.repeat(np.arange(len(nodes.clusters)), nodes.clusters)
    return stream(seed, "placement").permutation(node_cluster) if nodes.placement == "shuffled" else node_cluster


def dealt(
    dataset: Dataset, pool: np.ndarray, partition: Partition, node_cluster: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Return per node, by id, the indices of its samples in the whole training set.

    Args:
        dataset, partition: as in prepare().
        pool: int64 [M], the dealt samples.
        node_cluster: int64 [nodes].
        rng: a separate generator.
    Raises:
        ScenarioError: if a node would have none, or the partition's rule cannot be satisfied.
    """
    owned = partition.deal(dataset, pool, node_cluster, rng)
    check_dealt(owned, len(node_cluster))
    owned = [check_indices(node, own, len(dataset.train_labels)) for node, own in enumerate(owned)]
    empty = [node for node, own in enumerate(owned) if len(own) == 0]
    if empty:
        text = f"{len(pool)} training samples leave {len(empty)} of {len(owned)} nodes (the first is node {empty[0]})"
        raise ScenarioError(f"partition: {text} without any. Use fewer nodes, more data, or another partition.")
    return owned


def _per_node(
    dataset: Dataset, owned: list[np.ndarray], views: list[ClusterView], node_cluster: np.ndarray, split: str = "train"
) -> list[Samples]:
    """Every node's samples as its cluster sees them."""
    found: list[Samples] = []
    known: dict[tuple, Sequence[Decoding]] = {}
    for own, cluster in zip(owned, node_cluster.tolist(), strict=True):
        images, labels = views[cluster].of(samples_of(dataset, split, own))
        if isinstance(images, Uint8Images):  # many nodes are of few clusters
            key = tuple(each.key for each in images.decodings)
            images = dataclasses.replace(images, decodings=known.setdefault(key, images.decodings))
        found.append((images, labels))
    return found


def _per_cluster(
    dataset: Dataset,
    split: str,
    chosen: np.ndarray,
    views: list[ClusterView],
    draw: Callable[[np.ndarray], np.ndarray] = lambda indices: indices,
) -> list[Samples]:
    """Every cluster's copy of an evaluation set; made once where clusters see the same."""
    copies: list[Samples] = []
    for number, view in enumerate(views):
        if number == 0 or not view.same_as(views[number - 1]):
            own = view.own(dataset, split, chosen)
            if len(own) == 0:
                raise ScenarioError(f"partition.labels: no evaluation sample has a label of cluster {view.cluster}.")
            base = samples_of(dataset, split, draw(own))
        copies.append(view.of(base))
    return copies
