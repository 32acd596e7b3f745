"""Many runs, each in a process of its own: one that fails or is killed never stops the others."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ddlsim.errors import DataMissing, ScenarioError

POLL_S = 0.05
PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Job:
    """One process.

    Args:
        name: for messages.
        words: the arguments of `ddlsim`, e.g. ("run", "x.yaml", "--seed", "3", "--out", "runs/x-3", "-q").
    """

    name: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Args:
        job: what it was to do.
        code: the exit code of the command line (0: done); negative: the number of the signal that killed it.
        cause: what it said last on standard error (of a refused scenario: the first problem), or which signal killed
            it; empty if it is done.
    """

    job: Job
    code: int
    cause: str


def run_jobs(jobs: Sequence[Job], at_once: int = 1) -> Iterator[Ended]:
    """Runs `python -m ddlsim <words>` for every job and yields each as it ends.

    Every process gets an equal share of the cores that this one may use. Standard output of the processes is dropped.

    Args:
        jobs: in the order in which they are started.
        at_once: how many run side by side.
    Raises:
        KeyboardInterrupt: as it comes; the processes are interrupted too, and have ended when it leaves this function.
    """
    waiting = list(reversed(jobs))
    running: dict[int, Started] = {}
    try:
        while waiting or running:
            for slot in range(at_once):
                if slot not in running and waiting:
                    running[slot] = start(waiting.pop(), cores(slot, at_once))
            ended = [slot for slot, started in running.items() if started.process.poll() is not None]
            for slot in ended:
                yield running.pop(slot).ended()
            if not ended:
                time.sleep(POLL_S)
    finally:
        for started in running.values():
            started.process.terminate()  # SIGINT may be ignored: a shell starts background jobs so
        for started in running.values():
            started.process.wait()
            started.said.close()


@dataclass(frozen=True)
class Started:
    """A process under way.

    Args:
        job: what it is to do.
        process: the process.
        said: what it says on standard error.
    """

    job: Job
    process: subprocess.Popen
    said: IO[str]

    def ended(self) -> Ended:
        """How it has ended; called once, when it has."""
        code = self.process.returncode
        with self.said:
            self.said.seek(0)
            lines = [line.strip() for line in self.said if line.strip()]
        return Ended(self.job, code, _cause(code, lines))


def start(job: Job, cores: set[int]) -> Started:
    """Starts a process on these cores; none: on all."""
    said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  # closed when it is read
    command = [sys.executable, "-m", "ddlsim", *job.words]
    paths = [str(PACKAGE.parent), *filter(None, [os.environ.get("PYTHONPATH")])]  # this very ddlsim, wherever we are
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=said,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    if cores and process.poll() is None:
        with suppress(ProcessLookupError):  # it may have ended already
            os.sched_setaffinity(process.pid, cores)  # before the process starts threads, which inherit this
    return Started(job, process, said)


def cores(slot: int, at_once: int) -> set[int]:
    """The share of one of several processes; empty where a process cannot be bound to cores."""
    if not hasattr(os, "sched_setaffinity"):
        return set()
    all_cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(all_cores) // at_once)
    return {all_cores[(slot * share + i) % len(all_cores)] for i in range(share)}


def _cause(code: int, lines: list[str]) -> str:
    if code == 0:
        return ""
    if code < 0:
        killer = signal.Signals(-code).name
        hint = ", perhaps for want of memory" if -code == signal.SIGKILL else ""
        return f"killed by {killer}{hint}"
    if not lines:
        return f"exit code {code}, without a message"
    return lines[0] if code in (ScenarioError.exit_code, DataMissing.exit_code) else lines[-1]
