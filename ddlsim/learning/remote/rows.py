"""The rows of a run in the simulation's process: handles, and the workers that hold the values of each.

A row counts as computed once a job that fills it has been sent: jobs that read it are sent after it. Data sent between
the simulation and workers, and from worker to worker, are plain and picklable.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch

from ddlsim.learning.architecture import Architecture
from ddlsim.learning.bank import Params, Row, Rows
from ddlsim.learning.job_spec import JobSpec
from ddlsim.learning.layout import Part

Ref = Any
"""Future result of a call, to wait for or to pass to another worker."""


Block = tuple[tuple[int, np.ndarray, np.ndarray], ...]
"""Rows being sent, grouped by part: number of the part, numbers of n rows int64 [n], their values float32
[n, P]."""


@dataclass(frozen=True)
class Drawn:
    """Fresh models that a worker draws by itself, so that they need not travel.

    Args:
        architecture: its name.
        seed, count: see Architecture.draw.
        rows: place among the drawn models, number of the part, number of the row.
    """

    architecture: str
    seed: int
    count: int
    rows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Wave:
    """Jobs of one kind for one worker.

    Args:
        kind: of all jobs.
        specs: the jobs.
        outputs: numbers of the rows that they fill, if something holds them, and of their parts.
        drawn: rows that it has to draw first.
        released: rows that nothing holds any more.
        parts: parts whose numbers the worker does not know yet.
    """

    kind: str
    specs: Sequence[JobSpec]
    outputs: tuple[tuple[int, int], ...]
    drawn: tuple[Drawn, ...]
    released: tuple[int, ...]
    parts: dict[int, Part]


class Workers(Protocol):
    """The processes that compute, each with a Shard (shard.py). Calls to one worker are run in their order."""

    count: int
    block_bytes: int
    """Rows under way from worker to worker should not be more."""

    def call(self, worker: int, method: str, *arguments: Any) -> Ref:
        """Start a call of a Shard's method; arguments may be future results of other calls."""

    def calls(self, worker: int, method: str, results: int, *arguments: Any) -> list[Ref]:
        """Call a method that returns `count` results, each of which can be passed on separately."""

    def wait(self, ref: Ref) -> Any:
        """Return the result of a call.

        Raises:
            WorkerLost: if its worker, or one whose rows it needs, was lost.
            Exception: the exception that the call raised.
        """

    def packed(self, value: Any) -> bytes:
        """Bytes that a worker can unpickle."""

    def close(self) -> None:
        """End the processes."""


AT_ONCE_BYTES = 2**26
"""Rows that are loaded together."""


Recipe = tuple[Architecture, int, int, int]
"""Recipe to draw a row again wherever it is needed: architecture, seed and count of Architecture.draw, and the position
of the row's model among those drawn."""


class RemoteRows(Rows):
    """Rows whose values are held by workers.

    Args:
        workers: they hold the values.
        worker_of: per node its worker; the last one is for rows that belong to no node.

    Attributes:
        moved_bytes: from worker to worker, by (source, target).
        owners: number of an additional data set -> the node that trains on it.
    """

    def __init__(self, workers: Workers, worker_of: Sequence[int]):
        super().__init__(torch.device("cpu"))
        self._workers = workers
        self._worker_of = worker_of
        self._bank = SimpleNamespace(device=self.device, free=self._free)
        self._holders: dict[int, int] = {}  # number -> a bit per worker that has the row
        self._recipes: dict[int, Recipe] = {}
        self._released: list[list[int]] = [[] for _ in range(workers.count)]
        self._part_numbers: dict[Part, int] = {}
        self._known_parts = [0] * workers.count  # parts are numbered; a worker knows the first so many
        self.owners: dict[int, int] = {}
        self.moved_bytes: dict[tuple[int, int], int] = defaultdict(int)

    def bank(self, part: Part) -> Any:
        """Return a replacement of a matrix: a row's slot is its number, and workers are notified when it is freed."""
        return self._bank

    def draw(
        self, architecture: Architecture, parts: Sequence[Part], seed: int, count: int, node: int, known: bool
    ) -> list[tuple[Params, ...]]:
        """Draw fresh models; workers draw them when they need them."""
        models = [tuple(map(self.new, parts)) for _ in range(count)]
        for place, model in enumerate(models):
            for params in model:
                params.row.slot, params.row.node = params.serial, node
                self._holders[params.serial] = 0
                self._recipes[params.serial] = (architecture, seed, count, place)
        return models

    def gather(self, rows: Sequence[Row]) -> list[torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        wanted: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row in rows:
            holders = self._holders[row.number]
            if holders:
                wanted[_lowest(holders)].append((row.number, self.part_number(row.part)))
            else:
                architecture, seed, count, place = self._recipes[row.number]
                module = architecture.draw(seed, count)[place]
                found[row.number] = architecture.layout.flatten(module, row.part.name)
        refs = [self._workers.call(worker, "export", [numbers]) for worker, numbers in wanted.items()]
        for ref in refs:
            block: Block = self._workers.wait(ref)
            for _, numbers, values in block:
                found |= zip(numbers.tolist(), map(torch.from_numpy, np.array(values)), strict=True)
        return [found[row.number] for row in rows]

    def load(self, rows: Iterable[tuple[Row, torch.Tensor]]) -> None:
        """Load rows; every row goes to the worker of the node that it was computed for."""
        total = 0

        def piece_of(pair: tuple[Row, torch.Tensor]) -> int:
            nonlocal total
            total += 4 * pair[0].size
            return total // AT_ONCE_BYTES

        for _, piece in groupby((pair for pair in rows if pair[0].slot is None), piece_of):
            of_worker: dict[int, list[tuple[Row, torch.Tensor]]] = defaultdict(list)
            for row, values in piece:
                of_worker[self.worker_of(row.node)].append((row, values))
            refs = [self._load(worker, some) for worker, some in of_worker.items()]
            for ref in refs:
                self._workers.wait(ref)

    def worker_of(self, node: int | None) -> int:
        """The worker that computes for a node, or for the one that trains on a further data set."""
        return self._worker_of[-1 if node is None else self.owners.get(node, node)]

    def holder_of(self, number: int) -> int | None:
        """Return a worker that has a row; None if it is to be drawn."""
        holders = self._holders[number]
        return _lowest(holders) if holders else None

    def is_at(self, number: int, worker: int) -> bool:
        """Whether a worker has a row, or will have it when all calls so far have run."""
        return bool(self._holders[number] >> worker & 1)

    def add_holder(self, row: Row, worker: int) -> None:
        """A worker has been sent a row, or a job that fills it."""
        row.slot = row.number
        self._holders[row.number] = self._holders.get(row.number, 0) | 1 << worker

    def drawn(self, numbers: Iterable[int]) -> tuple[Drawn, ...]:
        """Return the recipes of rows that are drawn and that no worker holds yet."""
        alike: dict[tuple[str, int, int], list[tuple[int, int, int]]] = defaultdict(list)
        for number in numbers:
            if self._holders[number]:
                continue
            architecture, seed, count, place = self._recipes[number]
            key = architecture.layout.architecture, seed, count
            alike[key].append((place, self.part_number(self[number].part), number))
        return tuple(Drawn(name, seed, count, tuple(rows)) for (name, seed, count), rows in alike.items())

    def part_number(self, part: Part) -> int:
        """The number under which workers know a part."""
        return self._part_numbers.setdefault(part, len(self._part_numbers))

    def new_parts(self, worker: int) -> dict[int, Part]:
        """Return the parts, by number, that a worker does not know yet; they then count as known."""
        known, self._known_parts[worker] = self._known_parts[worker], len(self._part_numbers)
        return {number: part for part, number in self._part_numbers.items() if number >= known}

    def take_released(self, worker: int) -> tuple[int, ...]:
        """Return, once, the rows of a worker that nothing holds any more."""
        released, self._released[worker] = self._released[worker], []
        return tuple(released)

    def _free(self, number: int) -> None:
        self._recipes.pop(number, None)
        holders = self._holders.pop(number, 0)
        while holders:
            worker = _lowest(holders)
            self._released[worker].append(number)
            holders &= holders - 1

    def _load(self, worker: int, some: Sequence[tuple[Row, torch.Tensor]]) -> Any:
        of_part: dict[int, list[tuple[Row, torch.Tensor]]] = defaultdict(list)
        for row, values in some:
            self.add_holder(row, worker)
            of_part[self.part_number(row.part)].append((row, values))
        pieces = tuple(
            (part, np.array([row.number for row, _ in own]), torch.stack([values for _, values in own]).numpy())
            for part, own in of_part.items()
        )
        return self._workers.call(worker, "load", self.new_parts(worker), pieces)


def _lowest(holders: int) -> int:
    """The first worker of a set of bits."""
    return (holders & -holders).bit_length() - 1
