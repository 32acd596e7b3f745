"""The samples on the device: every node's own, and every cluster's copy of the test and validation sets."""

import warnings
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ddlsim.errors import DdlsimError
from ddlsim.learning.augmenting import Augmenter
from ddlsim.learning.inputs import ByteInputs, Decoder, Inputs, MappedInputs, compacted
from ddlsim.learning.transforms import TransformAugmenter, Transforms
from ddlsim.scenario.augmentation import BUILT_IN
from ddlsim.tasks import Task, as_task

if TYPE_CHECKING:
    from ddlsim.data.images_as_bytes import ByteImages
    from ddlsim.data.prepared import PreparedData
    from ddlsim.data.shifts import Samples as Prepared

Samples = tuple[Inputs, torch.Tensor]
"""Inputs [n, ...] (images float32 [n, C, H, W], token ids int64 [n, T], ...) and labels int64 [n] or [n, ...], of
a regression float32 [n]. An index of inputs gives a tensor, whatever they are kept as."""


class NodeDatasets:
    """Tensors of the prepared data.

    Args:
        prepared: result of `ddlsim.data.prepare`.
        device: torch device.
    """

    def __init__(self, prepared: "PreparedData", device: torch.device):
        self.num_classes: int = prepared.num_classes
        self.task: Task = as_task(prepared.task)
        self.loss = self.task.loss
        self._mean, self._std = (torch.as_tensor(values).to(device) for values in (prepared.mean, prepared.std))
        self._transforms: Transforms | None = None
        self.node_cluster = np.asarray(prepared.node_cluster)
        to = _Transfer(device)
        self.train = [to(pair) for pair in prepared.node_train]
        self._node_validation = [to(pair) for pair in prepared.node_validation or []]
        self._cluster = {
            "test": [to(pair) for pair in prepared.cluster_test],
            "validation": [to(pair) for pair in prepared.cluster_validation or []],
        }
        self._compact()

    def augmenter(self, kind: Any, seed: int) -> Augmenter | TransformAugmenter:
        """What augments the images of one training.

        Raises:
            DdlsimError: if the data are joined from domains with a normalization each.
        """
        if self._mean.dim() != 1:
            raise DdlsimError("training.augmentation: only none fits data of several domains.")
        if isinstance(kind, str) and kind in BUILT_IN:
            return Augmenter(kind, self._mean, self._std, seed)
        if self._transforms is None:
            self._transforms = Transforms(kind, self.train[0][0].shape[1:])
        return TransformAugmenter(self._transforms, self._mean, self._std, seed)

    def forget_inputs(self) -> None:
        """Keeps labels, and of inputs shape and type alone: where training is computed elsewhere."""
        self.train = [_outline(pair) for pair in self.train]
        self._node_validation = [_outline(pair) for pair in self._node_validation]
        self._cluster = {split: [_outline(pair) for pair in pairs] for split, pairs in self._cluster.items()}

    def keep_training_samples(self, nodes: Collection[int]) -> None:
        """Lets the training samples of all other nodes go."""
        self.train = [pair if node in nodes else _outline(pair) for node, pair in enumerate(self.train)]
        self._compact()

    def _compact(self) -> None:
        """Lets stored images go that nodes and clusters leave out."""
        lists = [self.train, self._node_validation, *self._cluster.values()]
        inputs = iter(compacted([pair[0] for pairs in lists for pair in pairs]))
        for pairs in lists:
            pairs[:] = [(next(inputs), labels) for _, labels in pairs]

    def occurring_classes(self) -> torch.Tensor:
        """The labels of any node's training samples or of a test set, ascending."""
        pairs = [*self.train[: len(self.node_cluster)], *self._cluster["test"]]
        return torch.cat([labels.unique() for _, labels in pairs]).unique()

    def num_samples(self, split: str, node: int) -> int:
        """How many samples a node may use of its own "train" or "validation" data; 0 where none are set aside."""
        if split == "validation" and not self._node_validation and not self._cluster["validation"]:
            return 0
        return len(self.local(split, node)[1])

    def local(self, split: str, node: int) -> Samples:
        """A node's own samples: "train", or "validation" (its own split, else its cluster's)."""
        if split == "train":
            return self.train[node]
        if self._node_validation:
            return self._node_validation[node]
        return self._cluster["validation"][self.node_cluster[node]]

    def add_split(self, name: str, change: Callable[[torch.Tensor, torch.Tensor], Samples]) -> None:
        """Another evaluation set, made of every cluster's test set.

        Args:
            name: of the split.
            change: inputs and labels of a test set -> those of the new one.
        """
        self._cluster[name] = [
            change(inputs[torch.arange(len(labels), device=labels.device)], labels)
            for inputs, labels in self._cluster["test"]
        ]

    def evaluation(self, split: str, cluster: int) -> Samples:
        """A cluster's copy of an evaluation set, or, as "own validation", what a node (not a cluster) validates on."""
        if split == "own validation":
            return self.local("validation", cluster)
        return self._cluster[split][cluster]


def _outline(pair: Samples) -> Samples:
    """Inputs of the same shape and type that take no memory, all zero."""
    inputs, labels = pair
    return torch.zeros(1, dtype=inputs.dtype).view([1] * len(inputs.shape)).expand(inputs.shape), labels


class _Transfer:
    """Brings samples to a device; what several pairs share is there once."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stored: dict[int, torch.Tensor] = {}
        self._decoders: dict[tuple, Decoder] = {}

    def __call__(self, pair: "Prepared") -> Samples:
        from ddlsim.data.images_as_bytes import ByteImages
        from ddlsim.data.mapped import MappedSamples

        images, labels = pair[0], torch.as_tensor(pair[1]).to(self._device)
        if isinstance(images, ByteImages):
            return self._byte_inputs(images), labels
        if isinstance(images, MappedSamples):
            return MappedInputs(images, self._device), labels
        return torch.as_tensor(np.ascontiguousarray(images)).to(self._device), labels

    def _byte_inputs(self, images: "ByteImages") -> ByteInputs:
        stored, decodings = id(images.stored), tuple(each.key for each in images.decodings)
        if stored not in self._stored:
            self._stored[stored] = _tensor(images.stored).to(self._device)
        if decodings not in self._decoders:
            self._decoders[decodings] = Decoder(images.decodings, self._device)
        rows = torch.as_tensor(images.rows).to(self._device)
        which = None if images.which is None else torch.as_tensor(images.which).to(self._device)
        return ByteInputs(self._stored[stored], rows, self._decoders[decodings], which)


def _tensor(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor that is only read, without a copy; torch warns of arrays that cannot be written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.as_tensor(array)
