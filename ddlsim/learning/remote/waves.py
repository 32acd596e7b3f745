"""Waves of jobs in other processes; each worker computes the jobs of its nodes.

A wave is one call per worker that has jobs in it. Rows that a worker lacks are sent there first, as one block per
worker that holds them, and stay there until nothing holds them any more: a row is sent at most once to each worker.
Calls are started and not waited for; the simulation continues until a value steers it, and full waves of training are
sent as soon as they are full (jobs.py), as on a GPU.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from ddlsim.foundation.errors import WorkerLost
from ddlsim.learning.backends.base import EvaluationCache
from ddlsim.learning.bank import lazy_values
from ddlsim.learning.job_spec import JobSpec
from ddlsim.learning.remote.rows import Drawn, Ref, RemoteRows, Wave, Workers
from ddlsim.scenario.sections import Training

AHEAD = 16
"""Waves that may be under way at a worker; the simulation then waits for the oldest."""


class RemoteWaves:
    """Waves (backends/base.py) that workers compute.

    Args:
        workers: each computes for some nodes.
        worker_of: per node its worker; the last one is for jobs that belong to no node.
        about: for the manifest.

    Attributes:
        rows: of the run.
        calls: number of calls started so far.
    """

    def __init__(self, workers: Workers, worker_of: Sequence[int], about: Mapping[str, Any] = MappingProxyType({})):
        self.about = about
        self.asynchronous = True
        self.rows = RemoteRows(workers, worker_of)
        self._evaluations = EvaluationCache()
        self._workers = workers
        self._under_way: list[deque[tuple[Ref, int]]] = [deque() for _ in range(workers.count)]
        self.calls = 0

    @property
    def reasons(self) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for of_worker in self._ask_all("reasons"):
            for name, reasons in of_worker.items():
                found.setdefault(name, {}).update(reasons)
        return found

    def know(self, reasons: Mapping[str, Mapping[str, str]]) -> None:
        self._ask_all("know", {name: dict(found) for name, found in reasons.items()})

    def run(self, kind: str, specs: Sequence[JobSpec]) -> list[Any]:
        """Compute a wave of one kind; values are LazyValue."""
        return self._evaluations.run(specs, partial(self._run_distinct, kind))

    def _run_distinct(self, kind: str, jobs: Sequence[JobSpec]) -> list[Any]:
        specs = [job.numbered() for job in jobs]
        of_worker: dict[int, list[int]] = defaultdict(list)
        for place, spec in enumerate(specs):
            of_worker[self._worker_of(spec)].append(place)
        for worker in of_worker:
            self._wait_for_room(worker)
        lacking = {worker: self._lacking(worker, [specs[i] for i in places]) for worker, places in of_worker.items()}
        drawn = {worker: self.rows.drawn(numbers) for worker, numbers in lacking.items()}
        blocks, num_bytes = self._exported(lacking)
        values: list[Any] = [None] * len(specs)
        for worker, places in of_worker.items():
            own = [specs[place] for place in places]
            for number in lacking[worker]:
                self.rows.add_holder(self.rows[number], worker)
            ref = self._send(worker, kind, own, drawn[worker], blocks[worker])
            self._under_way[worker].append((ref, num_bytes[worker]))
            if not own[0].writes_in:
                for place, value in zip(places, lazy_values(partial(self._wait, ref), len(places)), strict=True):
                    values[place] = value
        return values

    def _worker_of(self, spec: JobSpec) -> int:
        return self.rows.worker_of(self.rows[spec.reads[0]].node if spec.node is None else spec.node)

    def _lacking(self, worker: int, specs: Sequence[JobSpec]) -> list[int]:
        """Rows that jobs read and that their worker does not have, in the order of the jobs."""
        reads = dict.fromkeys(number for spec in specs for number in spec.reads)
        return [number for number in reads if not self.rows.is_at(number, worker)]

    def _exported(self, lacking: Mapping[int, Sequence[int]]) -> tuple[dict[int, list[Ref]], Counter[int]]:
        """Start sending rows to the workers that lack them, with one call of every worker that has some.

        Returns:
            Per worker the blocks that it gets, and their bytes.
        """
        wanted: dict[int, dict[int, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        num_bytes: Counter[int] = Counter()
        for worker, numbers in lacking.items():
            for number in numbers:
                source = self.rows.holder_of(number)
                if source is not None:
                    part = self.rows[number].part
                    wanted[source][worker].append((number, self.rows.part_number(part)))
                    num_bytes[worker] += 4 * part.size
                    self.rows.moved_bytes[source, worker] += 4 * part.size
        blocks: dict[int, list[Ref]] = defaultdict(list)
        for source, of_target in wanted.items():
            refs = self._workers.calls(source, "export", len(of_target), list(of_target.values()))
            self.calls += 1
            for target, ref in zip(of_target, refs, strict=True):
                blocks[target].append(ref)
        return blocks, num_bytes

    def _send(
        self, worker: int, kind: str, specs: Sequence[JobSpec], drawn: tuple[Drawn, ...], blocks: Sequence[Ref]
    ) -> Ref:
        """Start a worker's part of a wave."""
        rows = self.rows
        written = [row for spec in specs for number in spec.writes if (row := rows.get(number)) is not None]
        outputs = tuple((row.number, rows.part_number(row.part)) for row in written)
        wave = Wave(kind, specs, outputs, drawn, rows.take_released(worker), rows.new_parts(worker))
        for row in written:
            rows.add_holder(row, worker)
        self.calls += 1
        return self._workers.call(worker, "wave", self._workers.packed(wave), *blocks)

    def _wait_for_room(self, worker: int) -> None:
        """Wait until a worker has few calls under way, because data sent to it occupy memory until they finish."""
        under_way = self._under_way[worker]
        while under_way and (len(under_way) >= AHEAD or sum(size for _, size in under_way) > self._workers.block_bytes):
            self._wait(under_way.popleft()[0])

    def _wait(self, ref: Ref) -> Any:
        """Return the result of a call.

        A failed call also makes calls of other workers fail; the first failure is raised.
        """
        try:
            return self._workers.wait(ref)
        except WorkerLost:
            for other, _ in (call for calls in self._under_way for call in calls):
                with suppress(WorkerLost):
                    self._workers.wait(other)
            raise

    def _ask_all(self, method: str, *arguments: Any) -> list[Any]:
        refs = [self._workers.call(worker, method, *arguments) for worker in range(self._workers.count)]
        return [self._wait(ref) for ref in refs]

    def about_end(self) -> dict[str, Any]:
        moved = self.rows.moved_bytes
        return {
            "calls": self.calls,
            "moved_bytes": sum(moved.values()),
            "moved_between": [[*pair, num_bytes] for pair, num_bytes in sorted(moved.items())],
            "ended": [{key: report[key] for key in ("wall_s", "peak_rss_mib")} for report in self.reports()],
        }

    def reports(self) -> list[dict[str, Any]]:
        """Return the report of each worker, see Shard.report."""
        return self._ask_all("report")

    @property
    def taken(self) -> dict[str, dict[str, int]]:
        return _summed(report["taken"] for report in self.reports())

    def fallback_counts(self) -> dict[str, dict[str, int]]:
        return _summed(report["fallback_counts"] for report in self.reports())

    def device_s(self) -> dict[str, float]:
        """Return the device seconds by kind, summed over workers."""
        found: Counter[str] = Counter()
        for report in self.reports():
            found.update(report["device_s"])
        return dict(found)

    def use_training(self, training: Training) -> None:
        self._ask_all("use_training", self._workers.packed(training))

    def close(self) -> None:
        self._workers.close()


def _summed(tables: Any) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for table in tables:
        for name, counts in table.items():
            found[name].update(counts)
    return {name: dict(counts) for name, counts in found.items()}
