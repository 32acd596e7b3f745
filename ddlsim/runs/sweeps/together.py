"""Sets of runs for which one process computes, see runs/cluster/together.py.

The runs of a set start together, and the next set starts when all of them have ended, so that the same command joins
the same waves.
"""

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.sweeps import pool
from ddlsim.runs.sweeps.pool import Ended, Job

COMPUTING = "ddlsim.runs.cluster.together"


def run_processes(jobs: Sequence[Job], at_once: int, together: int | None) -> Iterator[Ended]:
    """Run jobs and yield each end, see `run_jobs`.

    Args:
        jobs: runs, in the order of their start.
        at_once: number of simultaneous processes.
        together: number of runs in a set with one computing process; None: each run computes itself.
    Raises:
        ScenarioError: if both are set.
    """
    if together is None:
        yield from pool.run_jobs(jobs, at_once)
        return
    if at_once > 1:
        raise ScenarioError("--together: sets the number of simultaneous runs. Leave --jobs out.")
    for first in range(0, len(jobs), together):
        yield from _run_set(jobs[first : first + together])


def _run_set(jobs: Sequence[Job]) -> Iterator[Ended]:
    pairs = [tuple(one.detach() for one in socket.socketpair()) for _ in jobs]
    numbers = tuple(mine for mine, _ in pairs)
    computing = pool.start(Job("computing", tuple(map(str, numbers)), COMPUTING, numbers), set())
    connected = []
    for job, (_, own) in zip(jobs, pairs, strict=True):
        connected.append(Job(job.name, (*job.words, "--executor", f"together:{own}"), sockets=(own,)))
    broken: Ended | None = None
    try:
        for ended in pool.run_jobs(connected, len(jobs)):
            if ended.code and computing.process.poll():
                broken = broken or computing.ended()
                ended = replace(ended, cause=f"{ended.cause} ({broken.cause})")
            yield ended
    finally:
        computing.process.kill()  # all runs have ended
        computing.process.wait()
        computing.stderr.close()
