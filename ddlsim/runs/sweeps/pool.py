"""Many runs, each in its own process on this machine or as a task of a Ray cluster; a failed run stops no other run.

A Ray task has its own cores and GPUs. It runs in a folder of its host and returns the run directory, so hosts need no
common file system; if its host is lost, it starts again on another one.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeVar

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import DataMissing, DdlsimError, ScenarioError, cause_of
from ddlsim.foundation.native import PACKAGE_DIR
from ddlsim.report.summary import honest_part
from ddlsim.report.text import seconds_text
from ddlsim.runs.cluster.cluster import Executor, connect, disconnecting, hosts, import_ray, threads_environment
from ddlsim.runs.directory import move_aside
from ddlsim.runs.sweeps.points import Point
from ddlsim.scenario import Scenario
from ddlsim.tasks.base import Metric

PointType = TypeVar("PointType", bound="Point")
POLL_S = 0.05


@dataclass(frozen=True)
class Job:
    """One process.

    Args:
        name: name for messages.
        words: the arguments of `ddlsim`, e.g. ("run", "x.yaml", "--seed", "3", "--out", "runs/x-3", "-q").
        module: runs with them.
        sockets: open files that the process gets, and this process closes.
    """

    name: str
    words: tuple[str, ...]
    module: str = "ddlsim"
    sockets: tuple[int, ...] = ()


@dataclass(frozen=True)
class Ended:
    """End of a process.

    Args:
        name: name of its job.
        code: the exit code of the command line (0: done); negative: the number of the signal that killed it.
        cause: its last line on standard error that is not a note (the first one if the scenario is invalid), or the
            signal that killed it; empty if it succeeded.
    """

    name: str
    code: int
    cause: str


def run_jobs(jobs: Sequence[Job], at_once: int = 1) -> Iterator[Ended]:
    """Run `python -m ddlsim <words>` for every job, and yield each end.

    Every process gets an equal share of the cores of this one. Standard output of the processes is discarded.

    Args:
        jobs: in the order of their start.
        at_once: number of simultaneous processes.
    Raises:
        KeyboardInterrupt: after the processes have been interrupted and have ended.
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
        end_all(running.values())


@dataclass(frozen=True)
class Started:
    """A running process.

    Args:
        job: its job.
        process: the process.
        stderr: its standard error.
    """

    job: Job
    process: subprocess.Popen
    stderr: IO[str]

    def ended(self) -> Ended:
        """Return its end; called once, after it."""
        code = self.process.returncode
        with self.stderr:
            self.stderr.seek(0)
            lines = [line.strip() for line in self.stderr if line.strip() and not line.startswith("NOTE: ")]
        return Ended(self.job.name, code, _cause(code, lines))


def start(job: Job, cores: set[int]) -> Started:
    """Start a process on these cores; on all if the set is empty."""
    stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115  # closed after reading
    command = [sys.executable, "-m", job.module, *job.words]
    paths = [str(PACKAGE_DIR.parent), *filter(None, [os.environ.get("PYTHONPATH")])]  # this ddlsim, in any directory
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        pass_fds=job.sockets,
    )
    for number in job.sockets:
        os.close(number)
    if cores and process.poll() is None:
        with suppress(ProcessLookupError):  # already ended
            os.sched_setaffinity(process.pid, cores)  # before the process starts threads, which inherit it
    return Started(job, process, stderr)


def end_all(running: Collection[Started]) -> None:
    """End processes, and wait for their ends."""
    for started in running:
        started.process.terminate()  # background jobs of a shell ignore SIGINT
    for started in running:
        started.process.wait()
        started.stderr.close()


def cores(slot: int, at_once: int) -> set[int]:
    """Return the cores of one of several processes; empty if the system cannot bind processes to cores."""
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
        hint = ", perhaps out of memory" if -code == signal.SIGKILL else ""
        return f"killed by {killer}{hint}"
    if not lines:
        return f"exit code {code}, without a message"
    return lines[0] if code in (ScenarioError.exit_code, DataMissing.exit_code) else lines[-1]


def progress(
    points: "Sequence[PointType]", ends: Iterable[Ended], notify: Callable[[str], None]
) -> "Iterator[tuple[PointType, dict[str, Any] | None, Ended]]":
    """Yield each run as it ends, with its summary (None if it failed), after one line of progress.

    Args:
        points: the runs.
        ends: their ends, see `run_jobs` and `run_points`.
        notify: receives the lines.
    """
    by_name, started = {point.name: point for point in points}, time.perf_counter()
    for done, ended in enumerate(ends, 1):
        point = by_name[ended.name]
        summary = None if ended.code else point.summary()
        if summary is None:
            ended = replace(ended, cause=ended.cause or "it has ended without a summary")
            text = f"FAILED: {ended.cause}"
        else:
            value = Metric(**summary["judged_by"]).text(honest_part(summary)[summary["metric"]]["all"])
            text = f"{summary['metric']} {value}  ({seconds_text(summary['wall_s'])})"
        left_s = (time.perf_counter() - started) / done * (len(points) - done)
        notify(f"[{done}/{len(points)}] {point.name}: {text}  ETA {seconds_text(left_s)}")
        yield point, summary, ended


RETRIES = 5
"""Maximum restarts of a run after the loss of its process or host."""
CRASHED = 1
"""Exit code of a run that failed with another exception than a DdlsimError."""


@dataclass(frozen=True)
class Resources:
    """Resources of one run.

    Args:
        cpus: number of cores and threads.
        gpus: number of GPUs; 0 to compute on the cores.
    """

    cpus: int = 1
    gpus: int = 0


Outcome = tuple[int, str, dict[str, bytes]]
"""Result of a task: code and cause, see `Ended`; path in the run directory -> content."""


def run_points(
    points: Sequence[Point], executor: Executor, each: Resources, options: Mapping[str, Any]
) -> Iterator[Ended]:
    """Run points of a sweep on a cluster; yield each end after its directory is written.

    Args:
        points: the runs; each has a scenario.
        executor: the cluster.
        each: resources of a run.
        options: options of every run, see runs/run.py: run_in_directory.
    Raises:
        DdlsimError: no cluster can be reached, or none of its hosts has room for a run.
    """
    from ddlsim.scenario.parts import places

    ray = import_ray()
    with disconnecting(executor):
        connect(executor, max(each.cpus, os.cpu_count() or 1))
        _check_room(each)
        task = ray.remote(max_calls=1)(_run).options(
            num_cpus=each.cpus, num_gpus=each.gpus, max_retries=RETRIES, runtime_env={"env_vars": threads_environment()}
        )
        code, further = own_code.texts(), {**options, "threads": each.cpus}
        under_way = {
            task.remote(code, ray.cloudpickle.dumps((point.scenario, places(point.scenario), further))): point
            for point in points
        }
        try:
            while under_way:
                (ended,), _ = ray.wait(list(under_way), num_returns=1)
                yield _end_of(ray, ended, under_way.pop(ended))
        finally:
            for ref in under_way:
                ray.cancel(ref, force=True)


def _check_room(each: Resources) -> None:
    found = [host["Resources"] for host in hosts()]
    if not any(has.get("CPU", 0) >= each.cpus and has.get("GPU", 0) >= each.gpus for has in found):
        raise ScenarioError(f"--cpus-per-run {each.cpus} --gpus-per-run {each.gpus}: no host has as many.")


def _run(code: Mapping[str, bytes], packed: bytes) -> Outcome:
    """Run one task, in its own process."""
    import pickle

    from ddlsim import runs

    with tempfile.TemporaryDirectory(prefix="ddlsim-") as folder:
        out = Path(folder) / "run"
        try:
            for path, source in code.items():
                own_code.provide(Path(path), source)
            scenario: Scenario
            scenario, places, options = pickle.loads(packed)
            for cls, place in places:  # records name parts by the places that they have on the driver's host
                own_code.know(cls, place)
            runs.run(scenario, out=out, **options)
            return 0, "", _files(out)
        except DdlsimError as error:
            return error.exit_code, str(error).splitlines()[0], _files(out)
        except Exception as error:
            return CRASHED, f"{type(error).__name__}: {error}".splitlines()[0], _files(out)


def _files(directory: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(directory.rglob("*")) if path.is_file()] if directory.is_dir() else []
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def _end_of(ray: Any, ref: Any, point: Point) -> Ended:
    """Return the end of a run, and write its directory."""
    try:
        code, cause, files = ray.get(ref)
    except ray.exceptions.RayError as error:
        return Ended(point.name, CRASHED, f"lost {RETRIES + 1} times: {cause_of(error)}")
    _write(point.directory, files)
    return Ended(point.name, code, cause)


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write a directory whole or not at all; an existing one, of an incomplete run, is moved aside."""
    if not files:
        return
    draft = directory.with_name(f"{directory.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    for name, held in files.items():
        path = draft / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(held)
    if directory.exists():
        move_aside(directory)
    draft.rename(directory)
