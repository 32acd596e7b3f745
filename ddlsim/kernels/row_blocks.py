"""Float32 rows of one length, in blocks [rows, P] on a device, with a free list of places.

A small first block grows by copying itself. From `COPIED_BYTES` on nothing is copied any more, in one of two ways:

- On a CPU, memory is taken only as it is filled. The first block is replaced, once, by one with room for as many rows
  as the machine's memory can hold, so that native calls find all rows in one matrix.
- On a GPU, and on a CPU that cannot reserve that much, blocks as large as the first are added. Native calls take one
  matrix, so rows of several blocks are copied for the call; for a merge, some columns at a time. Results are equal in
  all bits.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.kernels.matrices import aligned_rows, padded_stride, uploaded

HOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Memory of the machine."""


class RowBlocks:
    """Rows by their places: row `place % block_rows` of block `place // block_rows`.

    Args:
        size: number of values of a row, P.
        device: torch device of the blocks.

    Attributes:
        block_rows: number of rows of each block, once there are several.
    """

    INITIAL_ROWS, INITIAL_VALUES = 16, 2**26
    """Number of rows at the start, fewer if they have more values together."""
    COPIED_BYTES = 2**30
    """Most bytes to which the first block grows by copying itself."""
    PIECE_VALUES = 2**26
    """Most values that a merge of rows of several blocks copies at a time."""

    def __init__(self, size: int, device: torch.device):
        self.size = size
        self.device = device
        rows = max(1, min(self.INITIAL_ROWS, self.INITIAL_VALUES // max(1, size)))
        self.blocks = [aligned_rows(rows, size, device=device)]
        self.block_rows = sys.maxsize
        self._free: list[int] = []
        self._num_allocated = 0  # places from here on have never been allocated

    def allocate(self) -> int:
        """A free place."""
        if self._free:
            return self._free.pop()
        if self._num_allocated == (len(self.blocks) - 1) * self.block_rows + len(self.blocks[-1]):
            self._grow()
        self._num_allocated += 1
        return self._num_allocated - 1

    def free(self, place: int) -> None:
        self._free.append(place)

    def row(self, place: int) -> torch.Tensor:
        """A view of a row, float32 [P]; valid until `allocate` replaces the first block."""
        block, number = divmod(place, self.block_rows)
        return self.blocks[block][number]

    def merge_places(self, indptr: np.ndarray, sources: np.ndarray, weights: np.ndarray, targets: np.ndarray) -> None:
        """Merge rows into other rows; see `kernels.merge_rows` for the arguments."""
        if len(self.blocks) == 1:
            return kernels.merge_rows(self.blocks[0], indptr, sources, weights, targets)
        used, sources = np.unique(sources, return_inverse=True)
        count = len(used) + len(targets)
        width = max(1, self.PIECE_VALUES // count)
        for start in range(0, self.size, width):
            columns = slice(start, min(start + width, self.size))
            piece = aligned_rows(count, columns.stop - start, device=self.device)
            self._gather(used, piece[: len(used)], columns)
            kernels.merge_rows(piece, indptr, sources, weights, np.arange(len(used), count))
            self.store(targets, piece[len(used) :], columns)

    def stacked(self, places: np.ndarray) -> torch.Tensor:
        """The values of rows as a matrix [N, P], in one launch per block."""
        if len(self.blocks) == 1:
            return self.blocks[0].index_select(0, uploaded(places, self.device))
        return self._gather(places, torch.empty(len(places), self.size, device=self.device), slice(None))

    def store(self, places: np.ndarray, values: torch.Tensor, columns: slice = slice(None)) -> None:
        """Fill rows, or columns of them, from a matrix [N, P], in one launch per block."""
        if len(self.blocks) == 1:
            self.blocks[0].index_copy_(0, uploaded(places, self.device), values)
            return
        for block, numbers, rows in self._by_block(places):
            block[:, columns].index_copy_(0, rows, values.index_select(0, numbers))

    def in_one_matrix(self, *places: np.ndarray) -> tuple[Any, ...]:
        """Return a matrix, to be read only, and the rows of it at each list of places (-1 for none): the only block, or
        a copy of these rows.
        """
        if len(self.blocks) == 1:
            return self.blocks[0], *places
        used = np.unique(np.concatenate([each[each >= 0] for each in places]))
        return self.stacked(used), *(np.where(each < 0, -1, np.searchsorted(used, each)) for each in places)

    def _gather(self, places: np.ndarray, out: torch.Tensor, columns: slice) -> torch.Tensor:
        for block, numbers, rows in self._by_block(places):
            out.index_copy_(0, numbers, block[:, columns].index_select(0, rows))
        return out

    def _by_block(self, places: np.ndarray) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Return per block the numbers of the places in it, and their rows."""
        blocks, rows = np.divmod(places, self.block_rows)
        for block in np.unique(blocks):
            numbers = np.flatnonzero(blocks == block)
            yield self.blocks[block], uploaded(numbers, self.device), uploaded(rows[numbers], self.device)

    def _grow(self) -> None:
        first = self.blocks[0]
        rows, row_bytes = len(first), 4 * padded_stride(self.size)
        larger = 2 * rows
        if larger * row_bytes > self.COPIED_BYTES:
            larger = HOST_BYTES // row_bytes if self.device.type == "cpu" else 0
        if len(self.blocks) == 1 and larger > rows:
            with suppress(MemoryError):
                self.blocks = [aligned_rows(larger, self.size, device=self.device)]
                self.blocks[0][:rows] = first
                return
        self.block_rows = rows
        self.blocks.append(aligned_rows(rows, self.size, device=self.device))
