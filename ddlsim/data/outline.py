"""What is known of a data set without reading it: enough for a run that learns nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ddlsim.data.base import DataSettings
from ddlsim.data.dataset import DataSearch, Task, load_dataset
from ddlsim.data.prepared import Nodes, Validation, place


@dataclass(frozen=True)
class Outline:
    """The outline of PreparedData.

    Args:
        node_cluster: int64 [nodes], the hidden truth.
        num_classes: number of labels.
        image_shape: (C, H, W); of samples that are no images their shape.
        samples: a node's samples of "train" and "validation", the mean over nodes rounded up.
        about: for the manifest.
        task: classification or regression.
        dtype: numpy's name of the samples' type.
    """

    node_cluster: np.ndarray
    num_classes: int
    image_shape: tuple[int, ...]
    samples: dict[str, int]
    about: dict = field(default_factory=dict)
    task: Task = "classification"
    dtype: str = "float32"


def outline(data: DataSettings, nodes: Nodes, validation: Validation, seed: int, search: DataSearch) -> Outline:
    """What a data set looks like, dealt evenly; read only if its class does not say (a folder, a file of your own).

    Args:
        data: an entry of DATASETS.
        nodes, validation: scenario sections of these names.
        seed: the scenario's seed.
        search: where data that must be read is looked for.
    Raises:
        DataMissing: if it must be read and is not there.
    """
    if data.num_samples is not None:
        shape, classes, sizes = data.image_shape, data.num_classes, data.num_samples
        dtype = data.sample_dtype
    else:
        dataset = load_dataset(data, nodes, seed, search)
        shape, classes, dtype = dataset.sample_shape, dataset.num_classes, dataset.sample_dtype
        sizes = [
            len(dataset.samples(split)[1]) // (1 if split == "train" else dataset.num_domains)
            for split in dataset.splits
        ]
    node_cluster = place(nodes, seed)
    samples = _samples(sizes, validation, len(node_cluster))
    return Outline(node_cluster, classes, tuple(shape), samples, {"origin": "not read"}, data.task, dtype)


def _samples(sizes: Sequence[int], validation: Validation, num_nodes: int) -> dict[str, int]:
    """What prepare() would deal a node; with source train, test or own all nodes of a cluster share the validation
    set."""
    train, test = sizes[:2]
    held_out = round(validation.fraction * {"train": train, "test": test}.get(validation.source, 0))
    if validation.source == "own":
        held_out = sizes[2]
    own = -(-(train - held_out * (validation.source == "train")) // num_nodes)
    if validation.source == "node":
        held_out = max(1, round(validation.fraction * own))
        own -= held_out
    return {"train": max(1, own), "validation": held_out}
