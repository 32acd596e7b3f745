"""The parameters of all nodes and of all messages in flight: flat rows in one bank per part.

Architectures whose parts have equal shapes (heads over the same features, say) share that part's bank.

A row is an immutable value. Training or merging makes a new one; sending one costs no copy, since every receiver holds
the same row. Two kinds of holders keep it: `Params`, the handles in algorithms, messages and records, and the pending
jobs that read it. When the last holder drops it, Python's reference count frees the row.

Freed memory is kept in the process.

Training small models frees and allocates the same megabyte-sized tensors thousands of times a second. glibc returns
such blocks to the kernel each time, which zeroes their pages again at the next request (benches/README.md shows the
cost for plain PyTorch code).

Lazy values are computed elsewhere, on a device or in another process, while the simulation continues.
"""

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any
from weakref import ref

import numpy as np
import torch

from ddlsim.kernels.matrices import uploaded
from ddlsim.kernels.row_blocks import RowBlocks
from ddlsim.learning.architecture import Architecture
from ddlsim.learning.layout import Part


class Row:
    """The flat values of one part of a model, possibly not yet computed.

    Args:
        part: the part that it holds.
        bank: will hold it.
        number: its name in the run.

    Attributes:
        node: the node that it is computed for; None if for no node in particular.
    """

    __slots__ = ("__weakref__", "bank", "job", "node", "number", "part", "slot")

    def __init__(self, part: Part, bank: "Bank", number: int):
        self.part = part
        self.bank = bank
        self.number = number
        self.node: int | None = None
        self.slot: int | None = None  # its place in the bank; None: still to be computed
        self.job: Any = None  # the job that computes it, see jobs.py: Job

    @property
    def size(self) -> int:
        """Number of float32 values."""
        return self.part.size

    def allocate(self) -> int:
        """Allocate a place, to be filled; a wave that is repeated keeps its places."""
        if self.slot is None:
            self.slot = self.bank.allocate()
        return self.slot

    def values(self) -> torch.Tensor:
        """The row itself, float32 [P]; only once it has been computed (see Jobs.force)."""
        assert self.slot is not None, "asked for the values of parameters that are still to be computed"
        return self.bank.row(self.slot)

    def __del__(self) -> None:
        if self.job is not None:
            self.job.num_held -= 1
        if self.slot is not None:
            self.bank.free(self.slot)


class RowValues:
    """The values of a row outside of its bank, to be loaded in the row's place.

    Args:
        part: the part that it holds.
        values: float32 [P].
    """

    def __init__(self, part: Part, values: torch.Tensor):
        self.part = part
        self.size = part.size
        self._values = values

    def values(self) -> torch.Tensor:
        """float32 [P]."""
        return self._values


class Params:
    """A handle to one row, as algorithms hold it.

    How long a handle lives depends on simulated events alone; a row may live longer, while a pending job reads it.
    """

    __slots__ = ("__weakref__", "row")

    def __init__(self, row: Row):
        self.row = row

    @property
    def part(self) -> Part:
        """The part that it holds."""
        return self.row.part

    @property
    def size(self) -> int:
        """Number of float32 values."""
        return self.row.part.size

    @property
    def serial(self) -> int:
        """Number of the row in the run, in the order in which jobs are enqueued; unlike id(), never reused."""
        return self.row.number

    def values(self) -> torch.Tensor:
        """The values, float32 [P]; only once they have been computed."""
        return self.row.values()


def architecture_of(model: Sequence[Params] | Sequence[Row]) -> str:
    """Return the architecture of the first part of a model (of rows or handles), since heads may come from other
    nodes.
    """
    return model[0].part.architecture


class Bank(RowBlocks):
    """All rows of a part's shapes."""

    def merge(self, targets: list[Row], sources: list[list[Row]], weights: list[list[float]]) -> None:
        """Fill each target with the weighted sum of its sources, all targets together.

        Args:
            targets: rows without a place.
            sources: per target the rows to sum, in the order in which they are summed.
            weights: per target as many weights.
        """
        places = np.array([target.allocate() for target in targets], dtype=np.int64)
        indptr = np.zeros(len(targets) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in sources], out=indptr[1:])
        used = np.array([row.slot for rows in sources for row in rows], dtype=np.int64)
        values = np.array([weight for row in weights for weight in row], dtype=np.float32)
        self.merge_places(indptr, used, values, places)


ROWS_KEPT = 1000
"""Numbers of freed rows that are kept, in addition to as many as there are rows."""


class Rows:
    """All rows of a run by number.

    Rows are numbered in the order in which they are requested, which simulated events decide: a row has the same number
    in every process that replays the run.

    Args:
        device: device of the banks.

    Attributes:
        num_assigned: numbers assigned so far.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self.num_assigned = 0
        self._banks: dict[tuple, Bank] = {}
        self._bank_of: dict[Part, Bank] = {}
        self._rows: dict[int, ref[Row]] = {}  # without callbacks of freed rows, which take longer than the rows
        self._most_rows = ROWS_KEPT

    def __getitem__(self, number: int) -> Row:
        row = self._rows[number]()
        if row is None:
            raise KeyError(number)
        return row

    def get(self, number: int | None) -> Row | None:
        """A row, or None if nothing holds it any more."""
        found = None if number is None else self._rows.get(number)
        return None if found is None else found()

    def held(self) -> list[Row]:
        """All rows that something holds, in the order of their numbers."""
        return [row for _, found in sorted(self._rows.items()) if (row := found()) is not None]

    def new(self, part: Part) -> Params:
        """A handle to a row that a job will fill."""
        number = self.num_assigned
        self.num_assigned += 1
        return Params(self.numbered(part, number))

    def numbered(self, part: Part, number: int) -> Row:
        """Return the row of a number that has been assigned, here or in another process."""
        row = Row(part, self._bank_of.get(part) or self.bank(part), number)
        self._rows[number] = ref(row)
        if len(self._rows) > self._most_rows:
            self._rows = {number: found for number, found in self._rows.items() if found() is not None}
            self._most_rows = 2 * len(self._rows) + ROWS_KEPT
        return row

    def draw(
        self, architecture: Architecture, parts: Sequence[Part], seed: int, count: int, node: int, known: bool
    ) -> list[tuple[Params, ...]]:
        """Draw fresh models, one after the other, from one seed.

        Args:
            architecture: of the models.
            parts: parts of a model.
            seed: of these draws alone.
            count: number of models.
            node: the node that they are for.
            known: false if their values are loaded later, see jobs.py.
        """
        if not known:
            return [tuple(map(self.new, parts)) for _ in range(count)]
        return [
            tuple(self.store(part, architecture.layout.flatten(module, part.name)) for part in parts)
            for module in architecture.draw(seed, count)
        ]

    def gather(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        """The values of rows that have been computed, float32 [P] each, on the CPU."""
        return [row.values().cpu() for row in rows]

    def load(self, rows: Iterable[tuple[Row, torch.Tensor]]) -> None:
        """Fill rows without values, float32 [P] each."""
        for row, values in rows:
            row.allocate()
            row.values().copy_(values)

    def store(self, part: Part, values: torch.Tensor) -> Params:
        """A handle to a copy of `values`, float32 [P]."""
        params = self.new(part)
        self.load([(params.row, values)])
        return params

    def share_banks(self, other: "Rows") -> None:
        """Put rows from now on into the matrices of another run, which keeps its own numbers."""
        self._banks = other._banks

    def bank(self, part: Part) -> Bank:
        """The bank of all parts of this name and these shapes, whatever their architecture."""
        key = (part.name, part.signature)
        if key not in self._banks:
            self._banks[key] = Bank(part.size, self.device)
        self._bank_of[part] = self._banks[key]
        return self._banks[key]


def stacked_rows(rows: Sequence[Row]) -> torch.Tensor:
    """The values of rows of one bank as a matrix [N, P], in one launch per block whatever their number."""
    return rows[0].bank.stacked(places_of(rows))


def store_rows(rows: Sequence[Row | None], values: torch.Tensor) -> None:
    """Fill rows of one bank, which have places, from a matrix [N, P], in one launch per block; None skips a row."""
    kept = [(number, row) for number, row in enumerate(rows) if row is not None]
    if kept:
        numbers, targets = zip(*kept, strict=True)
        if len(kept) < len(rows):
            values = values.index_select(0, uploaded(np.array(numbers), values.device))
        targets[0].bank.store(places_of(targets), values)


def places_of(rows: Sequence[Row]) -> np.ndarray:
    """Return the places of rows of one bank, int64 [N]."""
    return np.array([row.slot for row in rows], dtype=np.int64)


def by_bank(rows: Iterable[Row]) -> dict[Bank, list[int]]:
    """Group positions of rows by their bank."""
    found: dict[Bank, list[int]] = {}
    for position, row in enumerate(rows):
        found.setdefault(row.bank, []).append(position)
    return found


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Make glibc keep freed blocks up to 32 MiB, in the whole process; return False without glibc."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        return bool(libc.mallopt(M_TRIM_THRESHOLD, 1 << 30) and libc.mallopt(M_MMAP_THRESHOLD, 1 << 25))
    except (OSError, AttributeError):
        return False


class LazyValue:
    """A value that is computed elsewhere, possibly not finished.

    Args:
        values: waits for a list of values, this one among them; the same object for all values of the list.
        place: position of this one in the list.
    """

    def __init__(self, values: Callable[[], Sequence[Any]], place: int):
        self._values = values
        self._place = place

    def get(self) -> Any:
        """Wait for the value and return it."""
        return self._values()[self._place]


def lazy_values(values: Callable[[], Sequence[Any]], count: int) -> list[LazyValue]:
    """Return `count` values that one function waits for; it is called at most once."""
    once = cache(values)
    return [LazyValue(once, place) for place in range(count)]
