"""The queue between simulated time and real computing.

A verb of a node enqueues a job and goes on; nothing is computed until a value is needed: a loss that steers the
control flow, an accuracy, a similarity. Then everything whose inputs are known runs as one wave, kind by kind, and
wave follows wave until the needed job has run. Results cannot depend on how jobs were grouped, because a job is a
pure function of its inputs and of random numbers drawn when it was enqueued. A job whose outputs nobody holds any
more (a training that a leaving node aborted) is dropped unrun.
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
        runners: kind -> function that runs a list of ready jobs of that kind and calls `finish` on each.
            Kinds run in the order of this mapping.
    """

    def __init__(self, runners: dict[str, Callable[[list], None]]):
        self._runners = runners
        self._pending: list[Job] = []
        self.wall_s: dict[str, float] = defaultdict(float)
        self.waves: dict[str, list[int]] = defaultdict(list)

    def submit(self, job: Job) -> Job:
        self._pending.append(job)
        return job

    def force(self, jobs: Iterable[Job]) -> None:
        """Runs waves until all of `jobs` have run."""
        needed = [job for job in jobs if not job.done]
        while not all(job.done for job in needed):
            self._run_wave()

    def force_params(self, params: Iterable[Params]) -> None:
        """Runs waves until these parameters are known."""
        self.force([handle.job for handle in params if handle.job is not None])

    def flush(self) -> None:
        """Runs everything that is pending, so that work does not pile up where nothing forces it for many rounds."""
        while any(job.wanted for job in self._pending):
            self._run_wave()

    def _run_wave(self) -> None:
        wanted = [job for job in self._pending if job.wanted]
        ready: dict[str, list[Job]] = defaultdict(list)
        for job in wanted:
            if job.ready:
                ready[job.kind].append(job)
        assert ready, "a job waits for parameters that no job computes"
        for kind, runner in self._runners.items():
            if ready[kind]:
                start = time.perf_counter()
                runner(ready[kind])
                self.wall_s[kind] += time.perf_counter() - start
                self.waves[kind].append(len(ready[kind]))
        self._pending = [job for job in wanted if not job.done]
