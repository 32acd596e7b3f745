"""A run that loses a worker goes back to its last checkpoint by itself, and goes on with those that are left."""

import ctypes
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ddlsim.errors import DdlsimError, WorkerLost
from ddlsim.executors.cluster import disconnecting
from ddlsim.runs.checkpoint import checkpoints_of
from ddlsim.runs.lock import LOCK
from ddlsim.runs.options import Options

Outcome = TypeVar("Outcome")

MOST_LOSSES = 5
"""Losses in a row without a new checkpoint in between, after which the run is given up."""
PAUSE_S = 2.0
"""Before the run goes on: the cluster takes notice of a lost host."""


def until_done(
    begin: Callable[[Options], Outcome],
    go_on: Callable[[Path, Options], Outcome],
    options: Options,
    tell: Callable[[str], None],
) -> Outcome:
    """What a run comes to, however many workers it loses.

    Args:
        begin: runs it from the start.
        go_on: continues it in its directory.
        options: how it is carried out.
        tell: takes a sentence on each loss.
    Raises:
        DdlsimError: if no worker is left, or workers are lost again and again.
    """
    attempt: Callable[[Options], Outcome] = begin
    losses, newest, place = 0, None, None
    with disconnecting(options.executor):
        while True:
            try:
                return attempt(options)
            except WorkerLost as lost:
                place = lost.run_dir or place
                if place is None:
                    raise
                found = next(iter(checkpoints_of(place)), None)
                losses, newest = losses + 1 if found == newest else 1, found
                if losses >= MOST_LOSSES:
                    raise _given_up(lost, losses, place, found) from lost
                behind = f"The run goes back to {found.name}" if found else "The run begins again"
                tell(f"WARNING: {lost} {behind}, on the workers that there are.")
                if found is None:
                    _clear(place)
                attempt = partial(go_on, place) if found else begin
                options = replace(options, fewer_workers=True)
                time.sleep(PAUSE_S)
            finally:
                _return_memory()


def _return_memory() -> None:
    """Return freed memory to the system; glibc keeps it for the process otherwise, more with every run."""
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _given_up(lost: WorkerLost, losses: int, place: Path, newest: Path | None) -> DdlsimError:
    again = f"`ddlsim resume {place}` continues it" if newest else "Run it again"
    return DdlsimError(
        f"{lost} {losses} losses without a checkpoint in between: the run is given up. Workers that need more memory "
        f"than their host has are ended by Ray; {again}, with more or larger hosts."
    )


def _clear(directory: Path) -> None:
    """Removes what a run has written that begins again."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.name == LOCK:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
