"""State of a worker: the rows of its nodes, copies of other rows that its jobs read, and the backends.

Rows are held by number until the simulation reports that nothing holds them any more.
"""

import pickle
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ddlsim.foundation.errors import WorkerLost
from ddlsim.kernels.matrices import downloaded, uploaded
from ddlsim.learning.bank import LazyValue, Row, stacked_rows, store_rows
from ddlsim.learning.datasets import only_read
from ddlsim.learning.layout import Part
from ddlsim.learning.learner import Learner
from ddlsim.learning.remote.rows import Block, Drawn, Wave
from ddlsim.scenario.sections import Training


def _fails_once(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make all calls after a failed one fail for the same reason: the rows of that call are missing."""

    @wraps(method)
    def call(self: "Shard", *arguments: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        try:
            return method(self, *arguments)
        except Exception as error:
            self.failure = error
            raise

    return call


class Shard:
    """The part of a run that one worker computes.

    Args:
        learner: of the whole scenario, on the worker's device; it has the samples of the worker's nodes alone.
    """

    def __init__(self, learner: Learner):
        self._learner = learner
        self._rows: dict[int, Row] = {}
        self._parts: dict[int, Part] = {}
        self._wall_s: dict[str, float] = defaultdict(float)
        self.failure: Exception | None = None

    @_fails_once
    def wave(self, packed: bytes, *blocks: Block) -> list[Any] | None:
        """Load received rows, run jobs, and return their values if they have some."""
        return self.compute(self.receive(packed, *blocks))

    @_fails_once
    def receive(self, packed: bytes, *blocks: Block) -> Wave:
        """Load received rows, and return a wave whose rows are there."""
        wave: Wave = pickle.loads(packed)
        self._parts |= wave.parts
        for number in wave.released:
            self._rows.pop(number, None)
        for block in blocks:
            self._take(block)
        for drawn in wave.drawn:
            self._draw(drawn)
        for number, part in wave.outputs:
            self._rows[number] = self._learner.rows.numbered(self._parts[part], number)
        self._need(number for spec in wave.specs for number in spec.reads)
        return wave

    @_fails_once
    def compute(self, wave: Wave) -> list[Any] | None:
        """Run the jobs of a wave; return their values if they have some."""
        started = time.perf_counter()
        jobs = [spec.bound(self._learner.rows) for spec in wave.specs]
        values = known_values(wave, self._learner.backends.run(wave.kind, jobs))
        self._wall_s[wave.kind] += time.perf_counter() - started
        return values

    @_fails_once
    def export(self, wanted: Sequence[Sequence[tuple[int, int]]]) -> Any:
        """Rows, by their numbers and the numbers of their parts, as one block per receiver."""
        blocks = tuple(self._block(rows) for rows in wanted)
        return blocks if len(blocks) > 1 else blocks[0]

    @_fails_once
    def load(self, parts: dict[int, Part], block: Block) -> None:
        """Load rows whose values come from a checkpoint."""
        self._parts |= parts
        self._take(block)

    def use_training(self, packed: bytes) -> None:
        """Trainings from now on have these settings."""
        training: Training = pickle.loads(packed)
        self._learner.backends.use_training(training)

    def know(self, reasons: Mapping[str, Mapping[str, str]]) -> None:
        """Take over the reasons that backends of an earlier process had found."""
        self._learner.backends.know(reasons)

    @_fails_once
    def reasons(self) -> dict[str, dict[str, str]]:
        """Return the reasons that its backends have found."""
        return {name: dict(found) for name, found in self._learner.backends.reasons.items()}

    def report(self) -> dict[str, Any]:
        """Return its jobs by backend, the reasons why backends passed jobs on, seconds of host and device by kind, and
        most memory in MiB.
        """
        return {
            "taken": {name: dict(kinds) for name, kinds in self._learner.backends.taken.items()},
            "fallback_counts": self._learner.backends.fallback_counts(),
            "wall_s": dict(self._wall_s),
            "device_s": self._learner.backends.device_s(),
            "rows": len(self._rows),
            "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }

    def close(self) -> None:
        """End its threads."""
        self._learner.close()

    def _need(self, numbers: Iterable[int]) -> None:
        """Raise WorkerLost if rows are missing: a call that was to send them has not run, because its sender was
        lost.
        """
        for number in numbers:
            if number not in self._rows:
                raise WorkerLost(f"a worker was lost: row {number}, which it was to send, is missing.")

    def _draw(self, drawn: Drawn) -> None:
        architecture = self._learner.architectures[drawn.architecture]
        models = architecture.draw(drawn.seed, drawn.count)
        for place, part, number in drawn.rows:
            row = self._rows[number] = self._learner.rows.numbered(self._parts[part], number)
            self._learner.rows.load([(row, architecture.layout.flatten(models[place], row.part.name))])

    def _take(self, block: Block) -> None:
        """Store received rows, with one copy to the device per part."""
        for part, numbers, values in block:
            rows = [self._learner.rows.numbered(self._parts[part], number) for number in numbers.tolist()]
            self._rows.update((row.number, row) for row in rows)
            for row in rows:
                row.allocate()
            store_rows(rows, uploaded(only_read(values), rows[0].bank.device))

    def _block(self, rows: Sequence[tuple[int, int]]) -> Block:
        self._need(number for number, _ in rows)
        of_part: dict[int, list[int]] = defaultdict(list)
        for number, part in rows:
            of_part[part].append(number)
        pieces = []
        for part, numbers in of_part.items():
            values = downloaded(stacked_rows([self._rows[number] for number in numbers]))
            pieces.append((part, np.array(numbers, dtype=np.int64), values))
        return tuple((part, numbers, values()) for part, numbers, values in pieces)


def known_values(wave: Wave, values: Sequence[Any]) -> list[Any] | None:
    """Wait for the values of a wave, and return them if its jobs have some."""
    known = [value.get() if isinstance(value, LazyValue) else value for value in values]
    return known if wave.specs and not wave.specs[0].writes_in else None
