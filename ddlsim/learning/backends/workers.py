"""Threads, each with a module of its own per architecture.

Small models leave a many-threaded operator mostly waiting, so a wave gives every core its own nodes. One operator
thread per node also fixes the order of every floating-point sum: the same numbers on one core and on many.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from ddlsim.learning.architecture import Architecture
from ddlsim.learning.backends.workspace import ModelWorkspace

Job = TypeVar("Job")
Found = TypeVar("Found")
WorkspaceOf = Callable[[str], ModelWorkspace]
"""Architecture -> a module to compute with."""


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
        self._build_lock = threading.Lock()
        self._pool = None
        if device.type == "cpu":
            self._pool = ThreadPoolExecutor(threads, "wave", initializer=torch.set_num_threads, initargs=(1,))

    def map(self, function: Callable[[WorkspaceOf, Job], Found], jobs: Iterable[Job]) -> list[Found]:
        """What a function makes of each job, in order; its first argument gives the thread's own modules."""
        each = self._pool.map if self._pool else map
        return list(each(lambda job: function(self.workspace, job), jobs))

    def workspace(self, architecture: str) -> ModelWorkspace:
        """This thread's module of an architecture."""
        workspaces = self._local.__dict__.setdefault("workspaces", {})
        if architecture not in workspaces:
            with self._build_lock:  # module constructors draw from torch's global generator
                workspaces[architecture] = ModelWorkspace(self.architectures[architecture], self.device)
        return workspaces[architecture]

    def close(self) -> None:
        """Ends the threads."""
        if self._pool:
            self._pool.shutdown(cancel_futures=True)
