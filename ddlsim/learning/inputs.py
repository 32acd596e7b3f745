"""Samples that become tensors by the batch: images that stay bytes on the device, and samples in files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from ddlsim.data.images_as_bytes import ByteImages, Normalization
    from ddlsim.data.mapped import MappedSamples

Index = torch.Tensor | slice
"""Rows, int64 [b], or a range of them."""


class ByteInputs:
    """Images as bytes on a device; an index gives float32 [b, C, H, W], to the last bit what numpy makes of them.

    Args:
        pixels: uint8 [n, C, H, W].
        normalizations: L of them.
        which: int64 [n], position in `normalizations` of each image; None: all have the first.
    """

    dtype = torch.float32

    def __init__(self, pixels: torch.Tensor, normalizations: "Sequence[Normalization]", which: torch.Tensor | None):
        device = pixels.device
        self.pixels = pixels
        self.which = which
        self.normalizations = list(normalizations)
        self._most = torch.full((), 255.0, device=device)  # a number would become a product with 1/255 on a GPU
        self._mean = _stacked([each.mean for each in normalizations], device)[:, :, None, None]  # [L, C, 1, 1]
        self._std = _stacked([each.std for each in normalizations], device)[:, :, None, None]
        turned = [each for each in normalizations if each.outside is not None]
        self._outside: torch.Tensor | None = None
        if turned:
            nowhere = np.zeros(pixels.shape[2:], bool)
            outside = [nowhere if each.outside is None else each.outside for each in normalizations]
            fill = [
                np.zeros(pixels.shape[1], np.float32) if each.fill is None else each.fill for each in normalizations
            ]
            self._outside, self._fill = _stacked(outside, device)[:, None], _stacked(fill, device)[:, :, None, None]

    @classmethod
    def of(cls, images: "ByteImages", device: torch.device) -> "ByteInputs":
        """The same images on a device."""
        which = None if images.which is None else torch.as_tensor(images.which).to(device)
        return cls(torch.as_tensor(images.values).to(device), images.normalizations, which)

    @classmethod
    def joined(cls, pieces: "Sequence[ByteInputs]") -> "ByteInputs":
        """Images of one shape, piece after piece."""
        known: dict[tuple, tuple[int, Normalization]] = {}
        which = []
        for piece in pieces:
            places = [known.setdefault(each.key, (len(known), each))[0] for each in piece.normalizations]
            own = torch.zeros(len(piece), dtype=torch.int64) if piece.which is None else piece.which
            which.append(torch.tensor(places, device=own.device)[own].to(piece.device))
        joined = None if len(known) == 1 else torch.cat(which)
        return cls(torch.cat([piece.pixels for piece in pieces]), [each for _, each in known.values()], joined)

    def part(self, start: int, stop: int) -> "ByteInputs":
        """Some of the images, as a view."""
        which = None if self.which is None else self.which[start:stop]
        return ByteInputs(self.pixels[start:stop], self.normalizations, which)

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> torch.Size:
        """[n, C, H, W]."""
        return self.pixels.shape

    @property
    def device(self) -> torch.device:
        """Where the bytes are."""
        return self.pixels.device

    def __getitem__(self, index: Index) -> torch.Tensor:
        # An index of bytes takes twenty times as long as index_select, which goes by whole images.
        taken = self.pixels[index] if isinstance(index, slice) else self.pixels.index_select(0, index)
        images = taken.to(torch.float32).div_(self._most)
        own: Index = slice(0, 1) if self.which is None else self.which[index]
        images.sub_(self._mean[own]).div_(self._std[own])
        return images if self._outside is None else torch.where(self._outside[own], self._fill[own], images)

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


def gathered(
    inputs: Inputs, labels: torch.Tensor, batches: Sequence[np.ndarray]
) -> tuple[torch.Tensor, torch.Tensor, Sequence[np.ndarray]]:
    """The samples of a training as tensors: all there are, or those that its batches see, and their rows in these."""
    if isinstance(inputs, torch.Tensor):
        return inputs, labels, batches
    seen, rows = np.unique(np.concatenate(batches), return_inverse=True)
    places = torch.from_numpy(seen)
    ends = np.cumsum([len(batch) for batch in batches])
    return inputs[places], labels[places], np.split(rows, ends[:-1])


def _stacked(arrays: Sequence[np.ndarray], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(np.stack(arrays)).to(device)
