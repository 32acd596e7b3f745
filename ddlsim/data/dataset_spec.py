"""Shapes and sizes of a data set, known without reading it, which suffice for a run without learning."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ddlsim.data.dataset import Dataset, DataSettings, Outline, load_dataset
from ddlsim.data.partitions import Partition
from ddlsim.data.prepared import Nodes, Validation, deal_both, place, split, split_of, split_seed
from ddlsim.data.search import DataSearch
from ddlsim.data.shifts import NoShift
from ddlsim.data.views import views_of
from ddlsim.tasks import Task, as_task


@dataclass(kw_only=True)
class DatasetSpec(Outline):
    """The outline of PreparedData, with the number of samples.

    Args:
        samples: a node's samples of "train" and "validation", the mean over nodes, in whole samples.
        further arguments: see Outline.
    """

    samples: dict[str, int]


def outline(
    data: DataSettings,
    nodes: Nodes,
    validation: Validation,
    seed: int,
    search: DataSearch,
    task: Task | None = None,
    partition: Partition | None = None,
) -> DatasetSpec:
    """Return the outline of a data set: its shapes and sizes, and the mean number of samples per node.

    The data set is read only if its class does not describe it (a folder, a user's file). It is then dealt as in a run
    with learning, by partitions that do not simply cut all samples into pieces.

    Args:
        data: an entry of DATASETS.
        nodes, validation: scenario sections of these names.
        seed: the scenario's seed.
        search: the search for data that must be read.
        task: the task; None for the data set's default.
        partition: an entry of PARTITIONS; None if all samples are dealt evenly.
    Raises:
        DataMissing: if it must be read and is missing.
        ScenarioError: if the data cannot be dealt by the partition.
    """
    learned = as_task(data.task if task is None else task)
    split_by = split_seed(partition, seed)
    node_cluster = place(nodes, split_by)
    dataset = None
    if data.num_samples is not None:
        shape, sizes = data.image_shape, data.num_samples
        dtype, tokens, labels = data.sample_dtype, data.num_tokens, tuple(data.label_shape)
        classes = data.num_classes
    else:
        dataset = load_dataset(data, nodes, seed, search)
        shape, dtype, tokens = dataset.sample_shape, dataset.sample_dtype, dataset.known_tokens
        classes, labels = dataset.num_classes, dataset.train_labels.shape[1:]
        sizes = [len(dataset.samples(split)[1]) for split in dataset.splits]
    if dataset is None or partition is None or partition.deals_apart:
        samples = _expected_samples(sizes, validation, partition, nodes.clusters, classes)
    else:
        samples = _count_samples(dataset, validation, partition, node_cluster, len(nodes.clusters), split_by)
    outputs, about = learned.num_outputs(classes, labels), {"origin": "not read"}
    return DatasetSpec(node_cluster, outputs, tuple(shape), about, learned, dtype, tokens, labels, samples=samples)


def _expected_samples(
    sizes: Sequence[int], validation: Validation, partition: Partition | None, clusters: Sequence[int], num_classes: int
) -> dict[str, int]:
    """Return the expected samples per node from prepare(), for data with these split sizes and equally many samples per
    class.

    With source train, test or own all nodes of a cluster share the validation set, or its part for the cluster.
    """
    train, test = sizes[:2]
    source = validation.source
    held_out = round(validation.fraction * {"train": train, "test": test}.get(source, 0))
    taken = held_out if source == "train" else 0
    if partition is None:
        own = -(-(train - taken) // sum(clusters))
    else:
        own = partition.known_samples(train - taken, taken, clusters, num_classes)
    if source == "own":
        held_out = sizes[2]
    if source == "node":
        held_out = max(1, round(validation.fraction * own))
        own -= held_out
    elif partition is not None:
        held_out = round(held_out * _seen_share(partition, clusters, num_classes))
    return {"train": max(1, own), "validation": held_out}


def _seen_share(partition: Partition, clusters: Sequence[int], num_classes: int) -> float:
    """The share of an evaluation set that a node is measured on, in the mean over nodes."""
    if partition.by_domain:
        return 1 / len(clusters)
    labels = partition.cluster_labels(len(clusters), num_classes)
    if labels is None:
        return 1.0
    return sum(n * len(own) for n, own in zip(clusters, labels, strict=True)) / (sum(clusters) * num_classes)


def _count_samples(
    dataset: Dataset,
    validation: Validation,
    partition: Partition,
    node_cluster: np.ndarray,
    num_clusters: int,
    seed: int,
) -> dict[str, int]:
    """Return the samples per node from prepare() for a data set that has been read."""
    train, _, held_out = split(dataset, validation, seed)

    owned, validation_samples = deal_both(dataset, train, validation, partition, node_cluster, seed)
    if not validation_samples and len(held_out):
        views = views_of(dataset, partition, NoShift(), num_clusters)
        seen = [view.own(dataset, split_of(validation), held_out) for view in views]
        validation_samples = [seen[cluster] for cluster in node_cluster.tolist()]
    return {
        name: round(sum(map(len, own)) / len(owned))
        for name, own in (("train", owned), ("validation", validation_samples))
    }
