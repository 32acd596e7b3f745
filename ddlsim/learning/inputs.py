"""Samples that become tensors by the batch: images that stay bytes on the device, and samples in files."""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from ddlsim.learning.batches import Batches

if TYPE_CHECKING:
    from ddlsim.data.images_as_bytes import Decoding
    from ddlsim.data.mapped import MappedSamples

Index = torch.Tensor | slice
"""Rows, int64 [b], or a range of them."""


class Decoder:
    """Makes float32 images of stored bytes on a device, to the last bit what numpy makes of them.

    Args:
        decodings: L of them, of one shape.
        device: torch device.
    """

    def __init__(self, decodings: "Sequence[Decoding]", device: torch.device):
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
        """Where the bytes are."""
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

    Args:
        samples: see there.
        device: of the tensors.
    """

    def __init__(self, samples: "MappedSamples", device: torch.device):
        self._samples = samples
        self.device = device
        self.shape = torch.Size(samples.shape)
        self.dtype = torch.from_numpy(np.empty(0, samples.sample_dtype)).dtype

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: Index) -> torch.Tensor:
        rows = index if isinstance(index, slice) else index.cpu().numpy()
        return torch.from_numpy(self._samples[rows]).to(self.device)

    def index_select(self, dim: int, rows: torch.Tensor) -> torch.Tensor:
        """The samples at rows [b]; as torch.Tensor.index_select with dimension 0."""
        return self[rows]


Inputs = torch.Tensor | ByteInputs | MappedInputs
"""Samples [n, ...], of which an index gives a tensor."""


def gathered(inputs: Inputs, labels: torch.Tensor, batches: Batches) -> tuple[torch.Tensor, torch.Tensor, Batches]:
    """The samples of a training as tensors: all there are, or those that its batches see, and their rows in these."""
    if isinstance(inputs, torch.Tensor):
        return inputs, labels, batches
    seen, rows = np.unique(batches.rows, return_inverse=True)
    places = torch.from_numpy(seen)
    return inputs[places], labels[places], Batches(rows, batches.ends)


def compacted(pieces: Sequence[Inputs]) -> list[Inputs]:
    """The same inputs; of stored images that most of the pieces leave out, a copy of those that they hold."""
    rows_of: dict[int, list[torch.Tensor]] = defaultdict(list)
    for piece in pieces:
        if isinstance(piece, ByteInputs):
            rows_of[id(piece.stored)].append(piece.rows)
    kept: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    result: list[Inputs] = []
    for piece in pieces:
        if isinstance(piece, ByteInputs):
            key = id(piece.stored)
            if key in rows_of:
                rows = torch.cat(rows_of.pop(key)).unique()
                if 2 * len(rows) <= len(piece.stored):
                    kept[key] = rows, piece.stored.index_select(0, rows)
            if key in kept:
                rows, stored = kept[key]
                piece = ByteInputs(stored, torch.searchsorted(rows, piece.rows), piece.decoder, piece.which)
        result.append(piece)
    return result


def _stacked(arrays: Sequence[np.ndarray], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.stack(arrays)).to(device)
