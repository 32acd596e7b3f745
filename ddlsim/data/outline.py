"""What is known of a data set without reading it: enough for a run that learns nothing."""

from dataclasses import dataclass, field

import numpy as np

from ddlsim.data.dataset import DataSearch
from ddlsim.data.prepared import place


@dataclass(frozen=True)
class Outline:
    """The outline of PreparedData.

    Args:
        node_cluster: int64 [nodes], the hidden truth.
        num_classes: number of labels.
        image_shape: (C, H, W).
        node_samples: training samples of a node, the mean over nodes rounded up.
        about: for the manifest.
    """

    node_cluster: np.ndarray
    num_classes: int
    image_shape: tuple[int, int, int]
    node_samples: int
    about: dict = field(default_factory=dict)


def outline(data, nodes, seed: int, search: DataSearch) -> Outline:
    """What a data set looks like, dealt evenly; read only if its class does not say (a folder, a file of your own).

    Args:
        data: an entry of DATASETS.
        nodes: scenario section `nodes`.
        seed: the scenario's seed.
        search: where data that must be read is looked for.
    Raises:
        DataMissing: if it must be read and is not there.
    """
    if hasattr(data, "num_samples"):
        shape, classes, train = data.image_shape, data.num_classes, data.num_samples[0]
    else:
        dataset = data.load(search)
        height, width, channels = dataset.train_images.shape[1:]
        shape, classes, train = (channels, height, width), dataset.num_classes, len(dataset.train_labels)
    node_cluster = place(nodes, seed)
    return Outline(node_cluster, classes, tuple(shape), -(-train // len(node_cluster)), {"origin": "not read"})
