"""A process per run: one that dies, of whatever cause, ends neither the others nor the table.

A worker is a fresh interpreter with its share of the cores. It tells its parent over a pipe that the run is through, or
what went wrong; one that is killed tells nothing, and its exit code is all there is. SIGINT, which a terminal sends to
parent and workers alike, is the parent's; the parent ends its workers by SIGTERM, on which a run keeps its records.
"""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from typing import Any

from ddlsim.errors import DdlsimError

WAIT_FOR_END_S = 30.0


@dataclass(frozen=True)
class Task:
    """One run for a worker.

    Args:
        scenario: its YAML keys.
        directory: of the run.
        options: keyword arguments of build.run.
    """

    scenario: dict[str, Any]
    directory: Path
    options: dict[str, Any]


@dataclass
class _Worker:
    index: int
    slot: int
    process: Any
    pipe: Any
    told: str | None = field(default=None)


def run_all(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[int, str | None]]:
    """Runs tasks in so many processes at a time.

    Yields:
        As each ends, its position and what went wrong (None: nothing).
    Raises:
        KeyboardInterrupt: if the user interrupts; the workers have been ended, with their records kept.
    """
    context = get_context("spawn")
    waiting, free = list(enumerate(tasks))[::-1], list(range(jobs))[::-1]
    running: dict[Any, _Worker] = {}
    try:
        while waiting or running:
            while waiting and free:
                index, task = waiting.pop()
                worker = _start(context, index, task, free.pop(), jobs)
                running[worker.process.sentinel] = worker
            for sentinel in connection.wait(list(running)):
                worker = running.pop(sentinel)
                free.append(worker.slot)
                yield worker.index, _outcome(worker)
    finally:
        for worker in running.values():
            worker.process.terminate()
        for worker in running.values():
            worker.process.join(WAIT_FOR_END_S)
            if worker.process.is_alive():
                worker.process.kill()


def _start(context, index: int, task: Task, slot: int, jobs: int) -> _Worker:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(task, theirs, slot, jobs), daemon=True)
    process.start()
    theirs.close()  # so that the end of the worker is the end of the pipe
    return _Worker(index, slot, process, ours)


def _outcome(worker: _Worker) -> str | None:
    worker.process.join()
    try:
        return worker.pipe.recv() if worker.pipe.poll() else _killed(worker.process.exitcode)
    except EOFError:
        return _killed(worker.process.exitcode)
    finally:
        worker.pipe.close()


def _killed(exit_code: int) -> str:
    if exit_code < 0:
        name = signal.Signals(-exit_code).name
        return f"its process was killed by {name}" + (", as by a lack of memory" if name == "SIGKILL" else "")
    return f"its process ended with exit code {exit_code}"


def _work(task: Task, pipe, slot: int, jobs: int) -> None:
    """What a worker does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _end_with_the_parent()
    _take_cores(slot, jobs)
    pipe.send(_told(lambda: _run(task)))


def _run(task: Task) -> str | None:
    from ddlsim import build
    from ddlsim.scenario import from_mapping

    summary = build.run(
        from_mapping(task.scenario), out=task.directory, fallback=False, progress="none", **task.options
    )
    return None if summary["status"] == "done" else f"the run was {summary['status']}"


def _told(attempt: Callable[[], str | None]) -> str | None:
    """What went wrong, as text; None: nothing."""
    try:
        return attempt()
    except DdlsimError as error:
        return str(error)
    except Exception as error:  # whatever it is, the other runs go on
        return f"{type(error).__name__}: {error}"


def _end_with_the_parent() -> None:
    """A worker whose parent was killed would go on for hours, with no table to write to."""
    parent = parent_process()

    def watch() -> None:
        connection.wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def _take_cores(slot: int, jobs: int) -> None:
    """Limits the process to its share of the cores, so that its waves have as many threads."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        share = max(1, len(cores) // jobs)
        os.sched_setaffinity(0, {cores[(slot * share + i) % len(cores)] for i in range(share)})
