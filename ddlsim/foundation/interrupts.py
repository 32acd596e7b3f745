"""The signals that end a run as KeyboardInterrupt, until the run begins to write its end: that cannot be cut short.

A run that makes checkpoints ends with one: the first signal waits for the end of the round, a later one does not.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C; a batch system whose time is over; a terminal that was closed."""

SAME_S = 0.5
"""Signals within so many seconds are one: a terminal and a program that started the run may both send one."""

_AFTER_THE_ROUND = b"Ending after this round, with a checkpoint; another signal ends the run at once.\n"
_STILL_WRITING = b"Writing what has been computed; another signal changes nothing (kill -9 ends it at once).\n"


class Interrupts:
    """The state that the handlers of one `interruptible` block share.

    Attributes:
        came: whether there was a signal.
    """

    def __init__(self) -> None:
        self.came = False
        self._held = False
        self._wait = False
        self._first_s = 0.0

    def wait_for_round(self) -> None:
        """From here on the first signal waits for the next `check`."""
        self._wait = True

    def hold(self) -> None:
        """From here on a signal prints a message and does nothing else."""
        self._held = True

    def check(self) -> None:
        """Raises KeyboardInterrupt if one came and was lost: Python ignores exceptions of destructors and callbacks."""
        if self.came and not self._held:
            raise KeyboardInterrupt

    def handle(self, number: int, frame: FrameType | None) -> None:
        """The handler."""
        now_s = time.monotonic()
        if not self.came:
            self.came, self._first_s = True, now_s
        waits = self._wait and now_s - self._first_s < SAME_S
        if not self._held and not waits:
            raise KeyboardInterrupt
        with suppress(OSError):  # the terminal may have gone
            os.write(2, _STILL_WRITING if self._held else _AFTER_THE_ROUND)


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """While this is open each of these signals raises KeyboardInterrupt, unless they are held.

    Signals that are ignored already (nohup, a background job of a shell) stay ignored. Outside the main thread, where
    no handlers can be set, nothing is changed.
    """
    interrupts, before = Interrupts(), {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in ENDING}
    heard = [number for number, handler in before.items() if handler not in (signal.SIG_IGN, None)]
    for number in heard:
        signal.signal(number, interrupts.handle)
    try:
        yield interrupts
    finally:
        for number in heard:
            signal.signal(number, before[number])


def ignore_signals() -> None:
    """From here on the signals do nothing; for a process that has done its work."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
