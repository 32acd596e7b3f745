"""The queue between simulated time and real computing.

A verb of a node enqueues a job and goes on; nothing is computed until a value is needed: a loss that steers the
control flow, an accuracy, a similarity. Then the kinds of jobs that it waits for run, wave after wave, each with all
jobs of its kind that are ready. Results cannot depend on how jobs were grouped, because a job is a pure function of its
inputs and of random numbers drawn when it was enqueued.

The rule of liveness: a job is dropped unrun if no output of it is held any more when its wave comes (a training that a
leaving node aborted), unless it computes a value. Pending jobs hold their inputs, so what only dropped jobs would have
used is dropped as well. What algorithms hold depends on simulated events alone, never on when waves run: a run that
hands out logged values instead of computing them holds the same outputs at the same events.
"""

import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ddlsim.learning.bank import Bank, Params
from ddlsim.learning.layout import Part


class Job:
    """One deferred computation. Subclasses hold its data and name the function that runs a wave of them.

    Args:
        inputs: parameters that must be known before it can run.
        outputs: parameters it will fill; their banks in `banks`.
    """

    kind: str = "job"

    def __init__(self, inputs: Sequence[Params]):
        self.inputs = tuple(inputs)
        self.done = False
        self.value: Any = None
        self._outputs: list[Callable[[], Params | None]] = []
        self._computes_value = True

    def output(self, bank: Bank, part: Part | None = None) -> Params:
        """Declares one parameter row that this job will fill; `part` if it is another architecture's of equal shape."""
        params = Params(part or bank.part, bank, job=self)
        self._outputs.append(weakref.ref(params))
        self._computes_value = False
        return params

    def unchanged(self, params: Params) -> Params:
        """Declares, in the place of an output, that this input comes out as it went in."""
        self._outputs.append(lambda: None)
        self._computes_value = False
        return params

    def outputs(self) -> list[Params | None]:
        """The declared outputs in order; None where nobody holds one any more or nothing is to be filled."""
        return [output() for output in self._outputs]

    @property
    def ready(self) -> bool:
        return all(params.row is not None for params in self.inputs)

    @property
    def wanted(self) -> bool:
        """False once nobody can ever see what it computes."""
        return self._computes_value or any(params is not None for params in self.outputs())

    def finish(self, value: Any = None) -> None:
        """Marks the job as run and lets go of its inputs, so that their rows can be freed."""
        self.done, self.value = True, value
        self.inputs = ()
        for params in self.outputs():
            if params is not None:
                params.job = None


class Jobs:
    """Pending jobs, run in waves on demand.

    Args:
        runners: kind -> function that runs a list of ready jobs of that kind and calls `finish` on each. Where several
            kinds could run, the first of this mapping does: list cheap kinds, which make others ready, first.
    """

    def __init__(self, runners: dict[str, Callable[[list], None]]):
        self._runners = runners
        self._pending: list[Job] = []
        self._old: list[Job] = []  # what was pending at the last flush
        self.wall_s: dict[str, float] = defaultdict(float)
        self.waves: dict[str, list[int]] = defaultdict(list)

    def submit(self, job: Job) -> Job:
        self._pending.append(job)
        return job

    def force(self, jobs: Iterable[Job]) -> None:
        """Runs waves until all of `jobs` have run, or are dropped.

        Only kinds of jobs run that these jobs wait for, but of such a kind all jobs that are ready: what the other
        nodes will soon need joins the wave, and what nothing needs yet waits for its own.
        """
        needed = [job for job in jobs if not job.done]
        while needed:
            self._run_wave(self._next_kind(needed))
            needed = [job for job in needed if not job.done and job.wanted]

    def force_params(self, params: Iterable[Params]) -> None:
        """Runs waves until these parameters are known."""
        self.force([handle.job for handle in params if handle.job is not None])

    def flush(self) -> None:
        """Runs what was already pending at the last flush, so that work does not pile up where no value is needed for
        many rounds. What has been submitted since then is left: a wave of it may not be full yet.
        """
        self.force(job for job in self._old if job.wanted)
        self._pending = [job for job in self._pending if job.wanted and not job.done]
        self._old = list(self._pending)

    def run_all(self) -> None:
        """Runs everything that is pending."""
        self.force(job for job in self._pending if job.wanted)

    def _next_kind(self, needed: Iterable[Job]) -> str:
        """The kind of the next wave on the way to these jobs."""
        ready, seen, stack = set(), set(), list(needed)
        while stack:
            job = stack.pop()
            if job in seen:
                continue
            seen.add(job)
            before = [params.job for params in job.inputs if params.row is None]
            assert None not in before, "a job waits for parameters that no job computes"
            if before:
                stack.extend(before)
            else:
                ready.add(job.kind)
        return next(kind for kind in self._runners if kind in ready)

    def _run_wave(self, kind: str) -> None:
        self._pending = [job for job in self._pending if job.wanted and not job.done]
        wave = [job for job in self._pending if job.kind == kind and job.ready]
        start = time.perf_counter()
        self._runners[kind](wave)
        self.wall_s[kind] += time.perf_counter() - start
        self.waves[kind].append(len(wave))
