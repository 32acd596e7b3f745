"""Data sets of the run: samples that become tensors batch by batch, as bytes on the device or in files.

The device holds every node's own samples, and every cluster's copy of the test and validation sets.
"""

import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import torch

from ddlsim.data.pixels import Decoding, MappedSamples, Uint8Images
from ddlsim.data.prepared import PreparedData
from ddlsim.data.shifts import Samples as Prepared
from ddlsim.foundation.augmentation import BUILT_IN
from ddlsim.foundation.errors import DdlsimError
from ddlsim.kernels.matrices import uploaded
from ddlsim.learning.augmenting import Augmenter, TransformAugmenter, Transforms
from ddlsim.learning.training_inputs import Batches
from ddlsim.tasks import Task, as_task

Index = torch.Tensor | slice
"""Rows, int64 [b], or a range of them."""


class Decoder:
    """Makes float32 images of stored bytes on a device, to the last bit what numpy makes of them.

    Args:
        decodings: L of them, of one shape.
        device: torch device.
    """

    def __init__(self, decodings: Sequence[Decoding], device: torch.device):
        self.decodings = list(decodings)
        self.shape = decodings[0].order.shape
        self._most = torch.full((), 255.0, device=device)  # a number would become a product with 1/255 on a GPU
        self._mean = _stacked([each.mean for each in decodings], device)[:, :, None, None]  # [L, C, 1, 1]
        self._std = _stacked([each.std for each in decodings], device)[:, :, None, None]
        orders = {each.order.tobytes(): each.order for each in decodings}
        self._orders = [torch.tensor(order.reshape(1, -1), device=device) for order in orders.values()]  # [1, P] each
        self._order_of = torch.tensor([list(orders).index(each.order.tobytes()) for each in decodings], device=device)
        self._as_stored = len(orders) == 1 and bool((np.diff(decodings[0].order.ravel()) == 1).all())

        self._outside: torch.Tensor | None = None
        if any(each.outside is not None for each in decodings):
            nowhere = np.zeros(self.shape[1:], bool)
            outside = [nowhere if each.outside is None else each.outside for each in decodings]
            fill = [np.zeros(self.shape[0], np.float32) if each.fill is None else each.fill for each in decodings]
            self._outside, self._fill = _stacked(outside, device)[:, None], _stacked(fill, device)[:, :, None, None]

    def __call__(self, stored: torch.Tensor, own: Index) -> torch.Tensor:
        """Images [b, C, H, W] of bytes [b, P]; `own` are the decodings [b] of each, or the one of all."""
        images = self._ordered(stored, own).to(torch.float32).view(-1, *self.shape).div_(self._most)
        images.sub_(self._mean[own]).div_(self._std[own])
        return images if self._outside is None else torch.where(self._outside[own], self._fill[own], images)

    def _ordered(self, stored: torch.Tensor, own: Index) -> torch.Tensor:
        """Bytes [b, P] in the order in which models see them."""
        if self._as_stored:
            return stored
        found = stored.gather(1, self._orders[0].expand(len(stored), -1))
        for number, order in enumerate(self._orders[1:], 1):
            other = stored.gather(1, order.expand(len(stored), -1))
            found = torch.where((self._order_of[own] == number)[:, None], other, found)
        return found


class ByteInputs:
    """Images as bytes on a device; an index gives float32 [b, C, H, W].

    Args:
        stored: uint8 [N, P], the images of a data set, which all that hold some of them share.
        rows: int64 [n], which of them these are.
        decoder: makes images of them.
        which: int64 [n], the decoding of each image; None: all have the first.
    """

    dtype = torch.float32

    def __init__(self, stored: torch.Tensor, rows: torch.Tensor, decoder: Decoder, which: torch.Tensor | None = None):
        self.stored, self.rows, self.decoder, self.which = stored, rows, decoder, which

    @classmethod
    def joined(cls, pieces: "Sequence[ByteInputs]") -> "ByteInputs":
        """Images of one shape and of the same stored ones, piece after piece."""
        known: dict[tuple, tuple[int, Decoding]] = {}
        which = []
        for piece in pieces:
            places = [known.setdefault(each.key, (len(known), each))[0] for each in piece.decoder.decodings]
            own = torch.zeros(len(piece), dtype=torch.int64) if piece.which is None else piece.which
            which.append(torch.tensor(places, device=own.device)[own].to(piece.device))
        decoder = Decoder([each for _, each in known.values()], pieces[0].device)
        rows = torch.cat([piece.rows for piece in pieces])
        return cls(pieces[0].stored, rows, decoder, None if len(known) == 1 else torch.cat(which))

    def part(self, start: int, stop: int) -> "ByteInputs":
        """Some of the images."""
        which = None if self.which is None else self.which[start:stop]
        return ByteInputs(self.stored, self.rows[start:stop], self.decoder, which)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> torch.Size:
        """[n, C, H, W]."""
        return torch.Size((len(self.rows), *self.decoder.shape))

    @property
    def device(self) -> torch.device:
        """Device of the bytes."""
        return self.stored.device

    def __getitem__(self, index: Index) -> torch.Tensor:
        # An index of bytes takes twenty times as long as index_select, which goes by whole images.
        stored = self.stored.index_select(0, self.rows[index])
        return self.decoder(stored, slice(0, 1) if self.which is None else self.which[index])

    def index_select(self, dim: int, rows: torch.Tensor) -> torch.Tensor:
        """The images at rows [b]; as torch.Tensor.index_select with dimension 0."""
        return self[rows]


class MappedInputs:
    """Samples in a file; an index reads them and gives a tensor on the device.

    With an index on the host, the host does not wait for the device: it reads the samples of the next step and copies
    them through pinned memory while the device computes.

    Args:
        samples: see there.
        device: of the tensors.
    """

    def __init__(self, samples: MappedSamples, device: torch.device):
        self._samples = samples
        self.device = device
        self.shape = torch.Size(samples.shape)
        self.dtype = torch.from_numpy(np.empty(0, samples.sample_dtype)).dtype

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: Index | np.ndarray) -> torch.Tensor:
        rows = index.cpu().numpy() if isinstance(index, torch.Tensor) else index
        return uploaded(self._samples[rows], self.device)

    def index_select(self, dim: int, rows: torch.Tensor) -> torch.Tensor:
        """The samples at rows [b]; as torch.Tensor.index_select with dimension 0."""
        return self[rows]


Inputs = torch.Tensor | ByteInputs | MappedInputs
"""Samples [n, ...], of which an index gives a tensor."""


def gathered(inputs: Inputs, labels: torch.Tensor, batches: Batches) -> tuple[torch.Tensor, torch.Tensor, Batches]:
    """Return the samples of a training (all, or only those in its batches) as tensors, and the batches' rows in
    them.
    """
    if isinstance(inputs, torch.Tensor):
        return inputs, labels, batches
    seen, rows = np.unique(batches.rows, return_inverse=True)
    places = torch.from_numpy(seen)
    return inputs[places], labels[places], Batches(rows, batches.ends)


def batch_of(inputs: Inputs, labels: torch.Tensor, rows: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the samples of a batch, whose numbers are on the host; the host does not wait for a device."""
    places = uploaded(rows, labels.device)
    return inputs[rows] if isinstance(inputs, MappedInputs) else inputs[places], labels[places]


def _stacked(arrays: Sequence[np.ndarray], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.stack(arrays)).to(device)


Samples = tuple[Inputs, torch.Tensor]
"""Inputs [n, ...] (images float32 [n, C, H, W], token ids int64 [n, T], ...) and labels int64 [n] or [n, ...], of
a regression float32 [n]. An index of inputs gives a tensor, however they are stored."""


class NodeDatasets:
    """Tensors of the prepared data.

    Args:
        prepared: result of `ddlsim.data.prepare`.
        device: torch device.
    """

    def __init__(self, prepared: PreparedData, device: torch.device):
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

    def augmenter(
        self, kind: Any, seed: int, node: int, skipped: Sequence[int] = (), views: int = 1
    ) -> Augmenter | TransformAugmenter:
        """Return the augmenter of the images of one training, after these samples of earlier steps.

        Raises:
            DdlsimError: if the data are joined from domains with different normalizations.
        """
        if self._mean.dim() != 1:
            raise DdlsimError("training.augmentation: only none fits data of several domains.")
        if isinstance(kind, str) and kind in BUILT_IN:
            made: Augmenter | TransformAugmenter = Augmenter(kind, self._mean, self._std, seed)
        else:
            if self._transforms is None:
                self._transforms = Transforms(kind, self.train[0][0].shape[1:])
            made = TransformAugmenter(self._transforms, self._mean, self._std, seed)
        for count in skipped:
            made.skip((views * count, *self.train[node][0].shape[1:]))
        return made

    def byte_images(self) -> list[ByteInputs]:
        """Return the byte images of all nodes and evaluation sets, each object once."""
        sets = [*self.train, *self._node_validation, *(pair for pairs in self._cluster.values() for pair in pairs)]
        return list({id(inputs): inputs for inputs, _ in sets if isinstance(inputs, ByteInputs)}.values())

    def joins(self, other: "NodeDatasets") -> bool:
        """Whether both are normalized alike, and have equally many nodes and no poisoned samples."""
        counts = {len(each) for data in (self, other) for each in (data.train, data.node_cluster)}
        return len(counts) == 1 and self._mean.equal(other._mean) and self._std.equal(other._std)

    def forget_inputs(self) -> None:
        """Keep labels, and only shape and type of inputs, for training that is computed elsewhere."""
        self.train = [_outline(pair) for pair in self.train]
        self._node_validation = [_outline(pair) for pair in self._node_validation]
        self._cluster = {split: [_outline(pair) for pair in pairs] for split, pairs in self._cluster.items()}

    def keep_training_samples(self, nodes: Collection[int]) -> None:
        """Discard the training samples of all other nodes, and stored images that no data set has then."""
        nothing = torch.empty(0, dtype=torch.int64, device=self._mean.device)
        self.train = [
            (inputs, labels) if node in nodes else (inputs[nothing], labels[nothing])
            for node, (inputs, labels) in enumerate(self.train)
        ]
        images = self.byte_images()
        for stored in {id(each.stored): each.stored for each in images}.values():
            sharing = [each for each in images if each.stored is stored]
            used = torch.cat([each.rows for each in sharing]).unique()
            kept = stored.index_select(0, used)
            for each in sharing:
                each.stored, each.rows = kept, torch.searchsorted(used, each.rows)

    def occurring_classes(self) -> torch.Tensor:
        """The labels of any node's training samples or of a test set, ascending."""
        pairs = [*self.train[: len(self.node_cluster)], *self._cluster["test"]]
        return torch.cat([labels.unique() for _, labels in pairs]).unique()

    def num_samples(self, split: str, node: int) -> int:
        """Number of a node's own samples in its "train" or "validation" data; 0 if no validation data are set aside."""
        if split == "validation" and not self._node_validation and not self._cluster["validation"]:
            return 0
        return self.local(split, node)[1].shape[0]

    def local(self, split: str, node: int) -> Samples:
        """A node's own samples: "train", or "validation" (its own split, else its cluster's)."""
        return self.sets(split)[self.place(split, node)]

    def sets(self, split: str) -> list[Samples]:
        """The samples of all nodes, or of all clusters."""
        return self.train if split == "train" else self._node_validation or self._cluster["validation"]

    def place(self, split: str, node: int) -> int:
        """The place of a node's own samples in `sets`."""
        return node if split == "train" or self._node_validation else int(self.node_cluster[node])

    def add_split(self, name: str, change: Callable[[torch.Tensor, torch.Tensor], Samples]) -> None:
        """Add another evaluation set, made of every cluster's test set.

        Args:
            name: of the split.
            change: inputs and labels of a test set -> inputs and labels of the new one.
        """
        self._cluster[name] = [
            change(inputs[torch.arange(len(labels), device=labels.device)], labels)
            for inputs, labels in self._cluster["test"]
        ]

    def evaluation(self, split: str, cluster: int) -> Samples:
        """A cluster's copy of an evaluation set, or, as "own validation", the validation samples of a node (not a
        cluster).
        """
        if split == "own validation":
            return self.local("validation", cluster)
        return self._cluster[split][cluster]


class JoinedDatasets(NodeDatasets):
    """Data of several runs of N nodes each, numbered one run after the other; see NodeDatasets.joins.

    Args:
        each: the data of each run. Byte images with equal arrays share one of them, so that one gather makes batches.
    """

    def __init__(self, each: Sequence[NodeDatasets]):
        vars(self).update(vars(each[0]))
        self._each = each
        shared: dict[int, torch.Tensor] = {}
        for images in (images for data in each for images in data.byte_images()):
            if id(images.stored) not in shared:
                equal = (known for known in shared.values() if torch.equal(known, images.stored))
                shared[id(images.stored)] = next(equal, images.stored)
            images.stored = shared[id(images.stored)]
        self.train = [pair for data in each for pair in data.train]
        self._node_validation = [pair for data in each for pair in data._node_validation]
        validation = [data._cluster["validation"] for data in each]
        starts = np.cumsum([0, *map(len, validation)])
        self._cluster = {"validation": [pair for pairs in validation for pair in pairs]}
        self.node_cluster = np.concatenate(
            [data.node_cluster + start for data, start in zip(each, starts, strict=False)]
        )

    def evaluation(self, split: str, cluster: int) -> Samples:
        """See NodeDatasets; clusters of the runs are N apart, as nodes are."""
        run, own = divmod(cluster, len(self._each[0].train))
        return self._each[run].evaluation(split, own)


def _outline(pair: Samples) -> Samples:
    """Inputs of the same shape and type that take no memory, all zero."""
    inputs, labels = pair
    return torch.zeros(1, dtype=inputs.dtype).view([1] * len(inputs.shape)).expand(inputs.shape), labels


class _Transfer:
    """Transfers samples to a device; data shared by several pairs are transferred once."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stored: dict[int, torch.Tensor] = {}
        self._decoders: dict[tuple, Decoder] = {}

    def __call__(self, pair: Prepared) -> Samples:
        images, labels = pair[0], torch.as_tensor(pair[1]).to(self._device)
        if isinstance(images, Uint8Images):
            return self._byte_inputs(images), labels
        if isinstance(images, MappedSamples):
            return MappedInputs(images, self._device), labels
        return torch.as_tensor(np.ascontiguousarray(images)).to(self._device), labels

    def _byte_inputs(self, images: Uint8Images) -> ByteInputs:
        stored, decodings = id(images.stored), tuple(each.key for each in images.decodings)
        if stored not in self._stored:
            self._stored[stored] = only_read(images.stored).to(self._device)
        if decodings not in self._decoders:
            self._decoders[decodings] = Decoder(images.decodings, self._device)
        rows = torch.as_tensor(images.rows).to(self._device)
        which = None if images.which is None else torch.as_tensor(images.which).to(self._device)
        return ByteInputs(self._stored[stored], rows, self._decoders[decodings], which)


def only_read(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor that is only read, without a copy; torch warns of arrays that cannot be written."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.as_tensor(array)
