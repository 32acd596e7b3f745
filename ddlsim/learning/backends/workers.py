"""Threads, each with a module of its own per architecture.

Small models leave a many-threaded operator mostly waiting, so a wave gives every core its own nodes. One operator
thread per node also fixes the order of every floating-point sum: the same numbers on one core and on many.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TypeVar

import torch

from ddlsim.learning.architecture import Architecture
from ddlsim.learning.backends.workspace import ModelWorkspace
from ddlsim.learning.drawing import drawing
from ddlsim.torch_state import same_defaults

Job = TypeVar("Job")
Found = TypeVar("Found")
WorkspaceOf = Callable[[str], ModelWorkspace]
"""Architecture -> a module to compute with."""
HELD_S = 0.7e-3
"""For about so long a job has Python's interpreter, which threads take in turns, to itself or hands it over: of threads
beyond a job's time over this, some would wait."""


class Workers:
    """Computes jobs side by side; on a GPU one after the other, since there one job's operators use all of it.

    Args:
        architectures: by name.
        device: where the modules live.
        threads: number of threads.
    """

    def __init__(self, architectures: Mapping[str, Architecture], device: torch.device, threads: int):
        self.architectures = architectures
        self.device = device
        self._local = threading.local()
        self._threads = threads
        self._worth: dict[Hashable, int] = {}  # by kind of job how many threads it keeps busy
        self._pool = None
        if device.type == "cpu":
            self._pool = ThreadPoolExecutor(threads, "wave", initializer=torch.set_num_threads, initargs=(1,))

    def map(self, function: Callable[[WorkspaceOf, Job], Found], jobs: Iterable[Job], kind: Hashable) -> list[Found]:
        """What a function makes of each job, in order; its first argument gives the thread's own modules.

        Of jobs that fail the first one's error is raised.

        Args:
            kind: of the jobs: as many threads take part as jobs of it were worth the last time.
        """
        jobs = list(jobs)
        found: dict[int, Found] = {}
        failed: dict[int, Exception] = {}
        left = deque(range(len(jobs)))  # a future for each job would cost more than the training of a small model

        def compute() -> float:
            """One job after the other, until none is left; returns the thread's own time."""
            start = time.thread_time()
            with suppress(IndexError), same_defaults("the model"):
                while True:
                    place = left.popleft()
                    try:
                        found[place] = function(self.workspace, jobs[place])
                    except Exception as error:
                        failed[place] = error
                        left.clear()  # those before it have been taken
            return time.thread_time() - start

        if self._pool is None:
            compute()
        elif jobs:
            threads = [self._pool.submit(compute) for _ in range(min(self._worth.get(kind, self._threads), len(jobs)))]
            own_s = sum(thread.result() for thread in threads)
            self._worth[kind] = max(1, min(self._threads, round(own_s / len(jobs) / HELD_S)))
        if failed:
            raise failed[min(failed)]
        return [found[place] for place in range(len(jobs))]

    def workspace(self, architecture: str) -> ModelWorkspace:
        """This thread's module of an architecture."""
        workspaces = self._local.__dict__.setdefault("workspaces", {})
        if architecture not in workspaces:
            workspaces[architecture] = ModelWorkspace(self.architectures[architecture], self.device)
        return workspaces[architecture]

    @contextmanager
    def drawing(self, seed: int | None) -> Iterator[None]:
        """torch's generators draw from a seed, and no other thread draws meanwhile; None: nothing is drawn."""
        if seed is None:
            yield
            return
        with drawing(seed, self.device):
            yield

    def close(self) -> None:
        """Ends the threads."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
