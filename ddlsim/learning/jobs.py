"""The queue between simulated time and real computing.

A verb of a node enqueues a job and continues; nothing is computed until a value is needed: a loss that steers the
control flow, an accuracy, a similarity. Then the required kinds of jobs run, wave after wave, each with all jobs of its
kind that are ready. Full waves of training on a device or in other processes do not wait for that. Results cannot
depend on how jobs were grouped, because a job is a pure function of its inputs and of random numbers drawn when it was
enqueued.

The rule of liveness: a job is dropped unrun if nothing holds a row that it would fill when its wave comes (a training
that a leaving node aborted), unless it computes a value. Rows are held by handles (bank.py: Params) and by the pending
jobs that read them, so what only dropped jobs would have read is dropped as well. Handles, by which equal work is
recognized, depend on simulated events alone and not on when waves run: a run that hands out logged values instead of
computing them enqueues the same jobs with the same numbers of rows.

Full waves: if a device or other processes compute, waves of training start before a value needs them. A wave of
training is full when every node that takes part has one pending: no further training can join it before one of these is
over. It is launched at once, and the simulation continues. A wave that never becomes full (a server that asks some
clients only, nodes that are not synchronized) runs when a value needs it, or at a flush.

That simulated time has passed a submission does not make a wave full: in asynchronous runs the nodes start one after
the other, and each would train alone.

Replay: a resumed run is repeated up to a cut without computing anything, and continues from there.

Simulated events are repeated; every job of the earlier process that had run by then finishes as soon as it is enqueued:
its value comes from a log, and the rows that it fills stay without values until the cut. There the rows that are still
held are loaded, and jobs run from then on. Jobs and rows have the same numbers in both processes, by which values and
rows are found; the counts at the cut are checked.
"""

import gc
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddlsim.foundation.errors import ReplayFailed
from ddlsim.foundation.torch_state import defaults, same_defaults
from ddlsim.learning.bank import LazyValue, Params, Row, Rows
from ddlsim.learning.job_spec import JobSpec
from ddlsim.learning.job_types import TrainSpec

if TYPE_CHECKING:
    import torch


Run = Callable[[str, Sequence[JobSpec]], Sequence[Any]]
"""(kind, specifications of that kind) -> their values, in order."""


WAITING = "waiting for values"
"""Key of values that are computed elsewhere, in the table of wall times."""


class Job:
    """One deferred computation, as the queue and the holders of its value have it.

    Args:
        spec: its specification.
        inputs: rows that must be known before it can run.
        outputs: rows that it will fill; empty if it computes a value.
    """

    __slots__ = (
        "computes_value",
        "done",
        "inputs",
        "is_lazy",
        "kind",
        "num_held",
        "number",
        "outputs",
        "spec",
        "value",
    )

    def __init__(self, spec: JobSpec, inputs: Sequence[Row], outputs: Sequence[Row]):
        self.spec: JobSpec | None = spec
        self.kind = spec.kind
        self.number = -1  # its place in the order in which the run's jobs are enqueued
        self.inputs = inputs
        self.done = False
        self.value: Any = None
        self.is_lazy = False  # the value is a LazyValue
        self.computes_value = not spec.writes_in
        self.num_held = len(outputs)  # rows count themselves off when nothing holds them
        self.outputs = [weakref.ref(row) for row in outputs]
        for row in outputs:
            row.job = self

    @property
    def ready(self) -> bool:
        return None not in [row.slot for row in self.inputs]  # lists are quicker than generators

    @property
    def wanted(self) -> bool:
        """Whether its result can still be used."""
        return self.computes_value or self.num_held > 0

    def finish(self, value: Any = None) -> None:
        """Mark the job as run and release its inputs, so that their rows can be freed."""
        self.done, self.value, self.is_lazy = True, value, isinstance(value, LazyValue)
        self.spec, self.inputs = None, ()
        for output in self.outputs:
            row = output()
            if row is not None:
                row.job = None


class Jobs:
    """Pending jobs, run in waves on demand.

    Args:
        kinds: all kinds of jobs. If several could run, the first of them does: list cheap kinds, which make others
            ready, first.
        run: computes a wave.

    Attributes:
        num_submitted: jobs enqueued so far.
        past: while an earlier process is repeated, the results of its jobs; None while jobs run.
        wall_s: seconds of the host by kind of work; if a device or other processes compute, only the seconds of
            launching it, and of WAITING.
        on_values: called with the number and the value of every job that has computed one, once it is known.
    """

    def __init__(self, kinds: Sequence[str], run: Run):
        self._kinds = kinds
        self._run = run
        self._defaults = defaults()
        self._pending: list[Job] = []
        self._num_old = 0  # of the pending ones, the first so many were already pending at the last flush
        self.num_submitted = 0
        self._under_way: list[Job] = []  # jobs whose values are computed elsewhere
        self.past: LoggedPast | None = None
        self.on_values: Callable[[list[tuple[int, Any]]], None] | None = None
        self.wall_s: dict[str, float] = defaultdict(float)
        self.waves: dict[str, list[int]] = defaultdict(list)

    def submit(self, job: Job) -> Job:
        """Enqueue a job; one that has run in the past finishes at once, and the rows it fills stay without values."""
        job.number, self.num_submitted = self.num_submitted, self.num_submitted + 1
        if self.past is not None and self.past.has_run(job.number):
            job.finish(self.past.value(job.number) if job.computes_value else None)
        else:
            self._pending.append(job)
        return job

    def cut(self, rows: Rows) -> "Cut":
        """Return the current state of the queue of a run with these rows."""
        self._drop()
        return Cut(self.num_submitted, rows.num_assigned, tuple(job.number for job in self._pending), self._num_old)

    def begin(self, num_old: int) -> None:
        """End the past: jobs run from here on.

        Args:
            num_old: pending jobs that were pending at the last flush of the past.
        """
        self.past, self._num_old = None, num_old

    def force(self, jobs: Iterable[Job]) -> None:
        """Run waves until all of `jobs` have run, or are dropped.

        Only kinds of jobs run that these jobs wait for, but of such a kind all jobs that are ready: jobs that other
        nodes will soon need join the wave, and kinds that nothing needs yet wait for their own.
        """
        needed = [job for job in jobs if not job.done]
        if needed and self.past is not None:
            raise ReplayFailed(f"job {needed[0].number} ({needed[0].kind}) is needed, which had not run by then.")
        while needed:
            self._run_wave(self._next_kind(needed))
            needed = [job for job in needed if not job.done and job.wanted]

    def values(self, jobs: Sequence[Job]) -> list[Any]:
        """Return the values of jobs; the pending ones run together."""
        self.force(jobs)
        self._fetch([job for job in jobs if job.is_lazy])
        return [job.value for job in jobs]

    def settle(self) -> None:
        """Wait for all values that are computed elsewhere."""
        self._fetch(self._under_way)
        self._under_way = []

    def force_params(self, params: Iterable[Params]) -> None:
        """Run waves until these parameters are known."""
        self.force([handle.row.job for handle in params if handle.row.job is not None])

    def flush(self) -> None:
        """Run the jobs that were already pending at the last flush, so that work does not accumulate if no value is
        needed for many rounds. Jobs submitted since then are left: a wave of them may not be full yet.
        """
        if self.past is not None:
            return
        self._drop()
        self.force(self._pending[: self._num_old])
        self._drop()
        self._num_old = len(self._pending)

    def run_all(self) -> None:
        """Run all pending jobs."""
        self._drop()
        self.force(self._pending)

    def _next_kind(self, needed: Iterable[Job]) -> str:
        """The kind of the next wave on the way to these jobs."""
        ready, seen, stack = set(), set(), list(needed)
        while stack:
            job = stack.pop()
            if job in seen:
                continue
            seen.add(job)
            before = [row.job for row in job.inputs if row.slot is None]
            assert None not in before, "a job waits for parameters that no job computes"
            if before:
                stack.extend(before)
            else:
                ready.add(job.kind)
        return next(kind for kind in self._kinds if kind in ready)

    def _drop(self) -> None:
        """Drop jobs whose results nothing needs, the newest first: they may be the only users of older ones."""
        if all([job.num_held or job.computes_value for job in self._pending]):
            return
        kept, num_old = [], 0
        while self._pending:
            job = self._pending.pop()
            if job.wanted:
                kept.append(job)
                num_old += len(self._pending) < self._num_old
        self._pending, self._num_old = kept[::-1], num_old

    def _run_wave(self, kind: str) -> None:
        self._drop()
        wave, left, num_old = [], [], 0
        for place, job in enumerate(self._pending):
            if job.kind == kind and job.ready:
                wave.append(job)
            else:
                left.append(job)
                num_old += place < self._num_old
        start = time.perf_counter()
        with same_defaults("the algorithm, its model or a callback", self._defaults):
            specs = [job.spec.hold_outputs() for job in wave if job.spec is not None]  # all have one until they ran
            values = self._run(kind, specs)
        self._pending, self._num_old = left, num_old
        for job, value in zip(wave, values, strict=True):
            job.finish(value)
        self._report_values([job for job in wave if job.computes_value and not job.is_lazy])
        self._under_way = [job for job in (*self._under_way, *wave) if job.is_lazy]
        self.wall_s[kind] += time.perf_counter() - start
        self.waves[kind].append(len(wave))

    def _fetch(self, jobs: Sequence[Job]) -> None:
        found = [job for job in jobs if job.is_lazy]
        if not found:
            return
        start = time.perf_counter()
        for job in found:
            job.value, job.is_lazy = job.value.get(), False
        self.wall_s[WAITING] += time.perf_counter() - start
        self._report_values(found)

    def _report_values(self, jobs: Sequence[Job]) -> None:
        if self.on_values is not None and jobs:
            self.on_values([(job.number, job.value) for job in jobs])


class EagerWaves:
    """Launches full waves of training. The launched jobs and their times depend on simulated events alone.

    Args:
        jobs: the queue.
        num_training: current number of nodes that train.
    """

    def __init__(self, jobs: Jobs, num_training: Callable[[], int]):
        self._jobs = jobs
        self._num_training = num_training
        self._pending: dict[int, list[Job]] = {}  # per node its trainings, the oldest first

    def submitted(self, node: int, job: Job) -> None:
        """Note that a training of a node has been enqueued, possibly one that ran in an earlier process."""
        if job.done:
            return
        self._pending.setdefault(node, []).append(job)
        if self._jobs.past is not None or not self._full():
            return
        self._forget_over()
        if self._full():
            # a node's second training belongs to the next wave
            self._jobs.force([job for jobs in self._pending.values() for job in jobs if not _waits_for_training(job)])
            self._forget_over()

    def _full(self) -> bool:
        return len(self._pending) >= max(1, self._num_training())

    def _forget_over(self) -> None:
        """Forget trainings that have run, or whose results nothing needs because their node has left."""
        kept = {node: [job for job in own if job.wanted and not job.done] for node, own in self._pending.items()}
        self._pending = {node: own for node, own in kept.items() if own}


def _waits_for_training(job: Job) -> bool:
    """Whether a row that it reads, or that a job before it reads, has not been trained yet."""
    seen: set[Job] = set()
    stack = [job]
    while stack:
        for row in stack.pop().inputs:
            if row.slot is None and row.job not in seen:
                if row.job.kind == TrainSpec.kind:
                    return True
                seen.add(row.job)
                stack.append(row.job)
    return False


@dataclass(frozen=True)
class Cut:
    """State of the queue of jobs between two waves.

    Args:
        num_jobs: enqueued so far.
        num_rows: rows with a number.
        pending: numbers of the jobs that have not run.
        num_old: number of them that were pending at the last flush.
    """

    num_jobs: int
    num_rows: int
    pending: tuple[int, ...]
    num_old: int


class LoggedPast:
    """Results of the jobs of an earlier process, before a cut, which this process repeats.

    Args:
        cut: of the earlier process.
        values: (number, value) of every job that computed one, in the order in which they ran.
    """

    def __init__(self, cut: Cut, values: Iterable[tuple[int, Any]]):
        self._pending = frozenset(cut.pending)
        self._values: Iterator[tuple[int, Any]] = iter(values)
        self._read_ahead: dict[int, Any] = {}

    def has_run(self, number: int) -> bool:
        """Whether that job had run, or was dropped, at the cut."""
        return number not in self._pending

    def value(self, number: int) -> Any:
        """Return the value, once."""
        while number not in self._read_ahead:
            try:
                found, value = next(self._values)
            except StopIteration:
                raise ReplayFailed(f"the log holds no value of job {number}.") from None
            self._read_ahead[found] = value
        return self._read_ahead.pop(number)


def computed_rows(rows: Rows) -> list[Row]:
    """The rows that have been computed and that something holds."""
    return [row for row in rows.held() if row.slot is not None and row.job is None]


def end_replay(
    jobs: "Jobs", rows: Rows, cut: Cut, stored: Collection[int], load: "Callable[[Row], torch.Tensor]"
) -> None:
    """Load the values of the rows that are held, and let jobs run.

    Args:
        jobs: the queue.
        rows: of the run.
        cut: state of the queue in the earlier process.
        stored: numbers of the rows whose values are stored.
        load: returns the values of one of them, float32 [P].

    Raises:
        ReplayFailed: if the state of the queue differs from that in the earlier process.
    """
    gc.collect()  # rows in reference cycles, if there are any
    here = jobs.cut(rows)
    if (here.num_jobs, here.num_rows) != (cut.num_jobs, cut.num_rows):
        there = f"{here.num_jobs} jobs and {here.num_rows} rows at the checkpoint"
        raise ReplayFailed(f"it has {there}, which says {cut.num_jobs} and {cut.num_rows}.")
    if here.pending != cut.pending:
        differ = sorted(set(here.pending) ^ set(cut.pending))
        raise ReplayFailed(f"jobs {differ[:5]} are not pending in both.")
    held = rows.held()
    for row in held:
        if row.number not in stored and row.job is None:
            raise ReplayFailed(f"the checkpoint lacks row {row.number}.")

    rows.load((row, load(row)) for row in held if row.number in stored)
    jobs.begin(cut.num_old)
