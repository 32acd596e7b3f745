"""From a data set to what every node and every cluster holds: split, dealt, normalised, shifted.

Order: the validation set is taken off first (from train, or from test, which then loses it), the rest of train is
dealt to the nodes by the partition, and each cluster's shift is applied to its nodes' samples and to its own copy of
the whole test and validation sets. Images become float32 only per node and per set, so that the peak is one float copy
of what is used beside the bytes that were loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ddlsim.data.dataset import Dataset
from ddlsim.data.partitions import Partition
from ddlsim.data.shifts import Samples, Setting, Shift
from ddlsim.errors import ScenarioError
from ddlsim.rng import stream


class Nodes(Protocol):
    """Scenario section `nodes`."""

    clusters: Sequence[int]
    placement: str


class Validation(Protocol):
    """Scenario section `validation`."""

    source: str
    fraction: float


@dataclass
class PreparedData:
    """What a run learns from and is measured on. Images are float32 [n, C, H, W], contiguous; labels int64 [n].

    Args:
        node_train: per node its own training samples.
        cluster_test: per cluster its copy of the test set; clusters that see the same share the arrays.
        cluster_validation: per cluster its copy of the validation set, or None.
        node_validation: per node its own validation samples, or None.
        node_cluster: int64 [nodes], the hidden truth.
        num_classes: number of labels.
        image_shape: (C, H, W).
        about: for the manifest: name, origin, sha256, number of samples.
    """

    node_train: list[Samples]
    cluster_test: list[Samples]
    cluster_validation: list[Samples] | None
    node_validation: list[Samples] | None
    node_cluster: np.ndarray
    num_classes: int
    image_shape: tuple[int, int, int]
    about: dict = field(default_factory=dict)

    def release(self) -> None:
        """Lets the samples go, once they are where they are used (on a GPU, say)."""
        self.node_train, self.cluster_test = [], []
        self.cluster_validation = self.node_validation = None


def prepare(
    dataset: Dataset, partition: Partition, shift: Shift, validation: Validation, nodes: Nodes, seed: int
) -> PreparedData:
    """Deals a data set to nodes and clusters.

    Args:
        dataset: as loaded.
        partition: an entry of PARTITIONS.
        shift: an entry of SHIFTS.
        validation: source train, test, node or none; fraction 0..1 of that source, or of each node's samples.
        nodes: nodes per cluster, and placement: contiguous, or shuffled (ids dealt to clusters at random).
        seed: the scenario's seed; streams "validation", "partition", "placement".
    Raises:
        ScenarioError: if a node would have no samples, or partition or shift do not fit.
    """
    train, test, held_out = _split(dataset, validation, stream(seed, "validation"))
    setting = Setting(len(nodes.clusters), dataset.num_classes, -dataset.mean / dataset.std)
    node_cluster = place(nodes, seed)
    owned = _assign(dataset.train_labels, train, partition, nodes, node_cluster, seed)
    node_validation = None
    if validation.source == "node":
        owned, kept = _split_nodes(owned, validation.fraction, seed)
        node_validation = _per_node(dataset, kept, shift, node_cluster, setting)
    node_train = _per_node(dataset, owned, shift, node_cluster, setting)
    labels = partition.cluster_labels(len(nodes.clusters), dataset.num_classes)
    cluster_test = _per_cluster(dataset, dataset.test_images, dataset.test_labels, test, shift, labels, setting)
    cluster_validation = None
    if validation.source in ("train", "test"):
        images, truth = getattr(dataset, f"{validation.source}_images"), getattr(dataset, f"{validation.source}_labels")
        cluster_validation = _per_cluster(dataset, images, truth, held_out, shift, labels, setting)
    height, width, channels = dataset.train_images.shape[1:]
    sizes = [len(own) for own in owned]
    about = {
        "name": dataset.name, "origin": dataset.origin, "sha256": dataset.sha256,
        "train": len(train), "test": len(test), "validation": len(held_out),
        "per_node": {"min": min(sizes), "max": max(sizes), "total": sum(sizes)},
    }  # fmt: skip
    return PreparedData(
        node_train, cluster_test, cluster_validation, node_validation, node_cluster, dataset.num_classes,
        (channels, height, width), about,
    )  # fmt: skip


def normalise(images: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """(x / 255 - mean) / std of bytes, (x - mean) / std of floats; float32 at every step, as torchvision does it.

    Args:
        images: uint8 or float32 [n, H, W, C].
        mean: float32 [C].
        std: float32 [C].
    Returns:
        float32 [n, C, H, W], contiguous.
    """
    count, height, width, channels = images.shape
    scale = 255 if images.dtype == np.uint8 else 1
    result = np.empty((count, channels, height, width), np.float32)
    for channel in range(channels):
        one = result[:, channel]
        np.divide(images[..., channel], np.float32(scale), out=one, dtype=np.float32)
        one -= mean[channel]
        one /= std[channel]
    return result


def _split(
    dataset: Dataset, validation: Validation, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices of the training pool, the test set and the validation set (empty if there is none of its own)."""
    pools = {"train": np.arange(len(dataset.train_labels)), "test": np.arange(len(dataset.test_labels))}
    held_out = np.empty(0, np.int64)
    if validation.source in pools:
        pool = pools[validation.source]
        count = round(validation.fraction * len(pool))
        if not 0 < count < len(pool):
            raise ScenarioError(
                f"validation.fraction: {validation.fraction} of {len(pool)} {validation.source} samples leaves one "
                "side empty."
            )
        order = rng.permutation(pool)
        held_out, pools[validation.source] = np.sort(order[:count]), np.sort(order[count:])
    return pools["train"], pools["test"], held_out


def place(nodes: Nodes, seed: int) -> np.ndarray:
    """The cluster of every node."""
    node_cluster = np.repeat(np.arange(len(nodes.clusters)), nodes.clusters)
    return stream(seed, "placement").permutation(node_cluster) if nodes.placement == "shuffled" else node_cluster


def _assign(
    labels: np.ndarray, pool: np.ndarray, partition: Partition, nodes: Nodes, node_cluster: np.ndarray, seed: int
) -> list[np.ndarray]:
    """Per node, by id, the indices of its samples in the whole training set."""
    dealt = partition.assign(labels[pool], nodes.clusters, stream(seed, "partition"))
    owned = [np.empty(0, np.int64)] * len(dealt)
    # cluster by cluster, a cluster's nodes by rising id
    for node, own in zip(np.argsort(node_cluster, kind="stable"), dealt, strict=True):
        owned[node] = pool[own]
    empty = [node for node, own in enumerate(owned) if len(own) == 0]
    if empty:
        raise ScenarioError(
            f"partition: {len(pool)} training samples leave {len(empty)} of {len(owned)} nodes (the first is node "
            f"{empty[0]}) without any. Use fewer nodes, more data, or another partition."
        )
    return owned


def _split_nodes(owned: list[np.ndarray], fraction: float, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Takes a random fraction, at least one sample, of each node's samples for its own validation."""
    train, kept = [], []
    for node, own in enumerate(owned):
        count = max(1, round(fraction * len(own)))
        if count >= len(own):
            raise ScenarioError(
                f"validation.fraction: {fraction} of node {node}'s {len(own)} samples leaves none to train on."
            )
        order = stream(seed, "validation", node).permutation(own)
        kept.append(order[:count])
        train.append(order[count:])
    return train, kept


def _per_node(
    dataset: Dataset, owned: list[np.ndarray], shift: Shift, node_cluster: np.ndarray, setting: Setting
) -> list[Samples]:
    """Every node's samples as its cluster sees them; the float copy is made node by node."""
    samples = []
    for own, cluster in zip(owned, node_cluster.tolist(), strict=True):
        images = normalise(dataset.train_images[own], dataset.mean, dataset.std)
        samples.append(_contiguous(shift.apply(images, dataset.train_labels[own], cluster, setting)))
    return samples


def _per_cluster(
    dataset: Dataset, images: np.ndarray, labels: np.ndarray, chosen: np.ndarray, shift: Shift,
    cluster_labels: list[list[int]] | None, setting: Setting,
) -> list[Samples]:  # fmt: skip
    """Every cluster's copy of an evaluation set; made once where clusters see the same."""
    base: Samples | None = None
    copies = []
    for cluster in range(setting.num_clusters):
        if cluster_labels is not None:
            own = chosen[np.isin(labels[chosen], cluster_labels[cluster])]
            if len(own) == 0:
                raise ScenarioError(f"partition.labels: no evaluation sample has a label of cluster {cluster}.")
            base = normalise(images[own], dataset.mean, dataset.std), labels[own]
        elif base is None:
            base = normalise(images[chosen], dataset.mean, dataset.std), labels[chosen]
        copies.append(_contiguous(shift.apply(*base, cluster, setting)))
    return copies


def _contiguous(samples: Samples) -> Samples:
    images, labels = samples
    return np.ascontiguousarray(images, np.float32), np.ascontiguousarray(labels, np.int64)
