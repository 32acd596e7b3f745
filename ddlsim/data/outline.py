"""What is known of a data set without reading it: enough for a run that learns nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ddlsim.data.base import DataSettings
from ddlsim.data.dataset import DataSearch, load_dataset
from ddlsim.data.held_out import Validation
from ddlsim.data.partition import Partition
from ddlsim.data.prepared import Nodes, place
from ddlsim.tasks import Task, as_task


@dataclass(frozen=True)
class Outline:
    """The outline of PreparedData.

    Args:
        node_cluster: int64 [nodes], the hidden truth.
        num_classes: the outputs of a model, per label.
        image_shape: (C, H, W); of samples that are no images their shape.
        samples: a node's samples of "train" and "validation", the mean over nodes, rounded up if all samples are dealt.
        about: for the manifest.
        task: what is learned, or the name of an entry of TASKS.
        dtype: numpy's name of the samples' type.
        num_tokens: how many different tokens samples consist of; None: they are no tokens.
        label_shape: of one sample's labels; () of a single one.
    """

    node_cluster: np.ndarray
    num_classes: int
    image_shape: tuple[int, ...]
    samples: dict[str, int]
    about: dict = field(default_factory=dict)
    task: Task | str = "classification"
    dtype: str = "float32"
    num_tokens: int | None = None
    label_shape: tuple[int, ...] = ()


def outline(
    data: DataSettings,
    nodes: Nodes,
    validation: Validation,
    seed: int,
    search: DataSearch,
    task: Task | None = None,
    partition: Partition | None = None,
) -> Outline:
    """What a data set looks like, dealt evenly, to each node as much as the partition gives it in the mean.

    It is read only if its class does not say (a folder, a file of your own).

    Args:
        data: an entry of DATASETS.
        nodes, validation: scenario sections of these names.
        seed: the scenario's seed.
        search: where data that must be read is looked for.
        task: what is learned; None: what the data set says.
        partition: an entry of PARTITIONS; None: all samples are dealt.
    Raises:
        DataMissing: if it must be read and is not there.
    """
    learned = as_task(data.task if task is None else task)
    if data.num_samples is not None:
        shape, sizes = data.image_shape, data.num_samples
        dtype, tokens, labels = data.sample_dtype, data.num_tokens, tuple(data.label_shape)
        classes = data.num_classes
    else:
        dataset = load_dataset(data, nodes, seed, search)
        shape, dtype, tokens = dataset.sample_shape, dataset.sample_dtype, dataset.known_tokens
        classes, labels = dataset.num_classes, dataset.train_labels.shape[1:]
        sizes = [
            len(dataset.samples(split)[1]) // (1 if split == "train" else dataset.num_domains)
            for split in dataset.splits
        ]
    node_cluster = place(nodes, seed)

    def known(pool: int) -> int:
        if partition is None:
            return -(-pool // len(node_cluster))
        share = pool // len(node_cluster) if partition.drops_remainders else -(-pool // len(node_cluster))
        return partition.known_samples(share, len(nodes.clusters), classes)

    samples = _samples(sizes, validation, known)
    outputs, about = learned.num_outputs(classes, labels), {"origin": "not read"}
    return Outline(node_cluster, outputs, tuple(shape), samples, about, learned, dtype, tokens, labels)


def _samples(sizes: Sequence[int], validation: Validation, known: Callable[[int], int]) -> dict[str, int]:
    """What prepare() would deal a node; `known` says how much of so many samples it gets.

    With source train, test or own all nodes of a cluster share the validation set.
    """
    train, test = sizes[:2]
    held_out = round(validation.fraction * {"train": train, "test": test}.get(validation.source, 0))
    if validation.source == "own":
        held_out = sizes[2]
    own = known(train - held_out * (validation.source == "train"))
    if validation.source == "node":
        held_out = max(1, round(validation.fraction * own))
        own -= held_out
    return {"train": max(1, own), "validation": held_out}
