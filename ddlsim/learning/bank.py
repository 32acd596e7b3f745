"""The parameters of all nodes and of all messages in flight: rows of one flat matrix per part.

Architectures whose parts have equal shapes (heads over the same features, say) share that part's matrix.

A `Params` is an immutable value. Training or merging makes a new one; sending one costs no copy, since every receiver
holds the same row; when the last holder lets go of it, Python's reference count gives the row back.
"""

from collections.abc import Iterator

import numpy as np
import torch

from ddlsim import kernels
from ddlsim.learning.layout import Part


class Params:
    """A handle to one row: the flat values of one part of a model, perhaps still to be computed by a job.

    Its `serial` is given once in a run, in the order in which rows are asked for (unlike id(), never twice).
    """

    __slots__ = ("__weakref__", "_bank", "job", "part", "row", "serial")

    def __init__(self, part: Part, bank: "Bank", job: object | None = None):
        self.part = part
        self._bank = bank
        self.row: int | None = None
        self.job = job
        self.serial = next(bank.serials)

    @property
    def size(self) -> int:
        """Number of float32 values."""
        return self.part.size

    def allocate(self) -> int:
        """Gives it a row to be filled."""
        self.row = self._bank.allocate()
        return self.row

    def values(self) -> torch.Tensor:
        """The row itself, float32 [P]; only once it has been computed (see Jobs.force)."""
        assert self.row is not None, "asked for the values of parameters that are still to be computed"
        return self._bank.matrix[self.row, : self.part.size]

    def __del__(self) -> None:
        if self.row is not None:
            self._bank.free(self.row)


class Bank:
    """One growing float32 matrix [rows, P] on a device, with a free list.

    Args:
        part: what a row holds.
        device: torch device of the matrix.
        serials: numbers for new rows; all banks of a run share one iterator.
    """

    INITIAL_ROWS = 16

    def __init__(self, part: Part, device: torch.device, serials: Iterator[int]):
        self.part = part
        self.device = device
        self.serials = serials
        self.matrix = kernels.aligned_rows(self.INITIAL_ROWS, part.size, device=device)
        self._free = list(range(self.INITIAL_ROWS - 1, -1, -1))

    @property
    def rows_in_use(self) -> int:
        return len(self.matrix) - len(self._free)

    def allocate(self) -> int:
        """A free row."""
        if not self._free:
            self._grow()
        return self._free.pop()

    def free(self, row: int) -> None:
        self._free.append(row)

    def store(self, values: torch.Tensor, part: Part | None = None) -> Params:
        """A new handle to a copy of `values`, float32 [P]; `part` if it is another architecture's of equal shape."""
        params = Params(part or self.part, self)
        params.allocate()  # may replace the matrix by a larger one
        params.values().copy_(values)
        return params

    def merge(self, targets: list[Params], sources: list[list[Params]], weights: list[list[float]]) -> None:
        """Fills each target with the weighted sum of its sources, all targets in one native call.

        Args:
            targets: handles without a row.
            sources: per target the rows to sum, in the order in which they are summed.
            weights: per target as many weights.
        """
        rows = np.array([target.allocate() for target in targets], dtype=np.int64)
        indptr = np.zeros(len(targets) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in sources], out=indptr[1:])
        indices = np.array([params.row for row in sources for params in row], dtype=np.int64)
        values = np.array([weight for row in weights for weight in row], dtype=np.float32)
        kernels.merge_rows(self.matrix, indptr, indices, values, rows)

    def _grow(self) -> None:
        old = self.matrix
        self.matrix = kernels.aligned_rows(2 * len(old), self.part.size, device=self.device)
        self.matrix[: len(old)] = old
        self._free.extend(range(2 * len(old) - 1, len(old) - 1, -1))
