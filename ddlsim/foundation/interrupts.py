"""Signals end a run with KeyboardInterrupt, until it starts to write its final records, which complete.

A run that makes checkpoints ends with one: the first signal waits for the end of the round or evaluation, but at most
GRACE_S. A later signal does not wait.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals of Ctrl-C, of a batch system's time limit and of a closed terminal."""

SAME_S = 0.5
"""Signals within this time count as one, because a terminal and a parent program may both send one."""

GRACE_S = 5.0
"""Longest time that a signal waits: batch systems and containers kill a process some ten seconds after SIGTERM."""

_AFTER_THE_ROUND = b"Ending after this round, at most in 5 s; another signal ends the run at once.\n"
_STILL_WRITING = b"Writing the records; another signal changes nothing (kill -9 ends it at once).\n"


class Interrupts:
    """The state that the handlers of one `interruptible` block share.

    Attributes:
        signaled: whether there was a signal.
    """

    def __init__(self) -> None:
        self.signaled = False
        self._held = False
        self._wait = False
        self._first_s = 0.0
        self._reminder: threading.Thread | None = None
        self._over = threading.Event()

    def wait_for_round(self) -> None:
        """Let the first signal wait for the next `check` from now on."""
        self._wait = True

    def hold(self) -> None:
        """Let signals only print a message from now on."""
        self._held = True
        self.end()

    def check(self) -> None:
        """Raise KeyboardInterrupt if one was lost, because Python ignores exceptions of destructors and callbacks."""
        if self.signaled and not self._held:
            raise KeyboardInterrupt

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        now_s = time.monotonic()
        if not self.signaled:
            self.signaled, self._first_s = True, now_s
        waits = self._wait and now_s - self._first_s < SAME_S
        if not self._held and not waits:
            raise KeyboardInterrupt
        if waits and self._reminder is None and not self._held:
            self._reminder = threading.Thread(target=self._remind, args=(number,), daemon=True)
            self._reminder.start()
        with suppress(OSError):  # the terminal may have gone
            os.write(2, _STILL_WRITING if self._held else _AFTER_THE_ROUND)

    def end(self) -> None:
        """Send no further signals."""
        self._over.set()
        if self._reminder is not None:
            self._reminder.join()

    def _remind(self, number: int) -> None:
        """Send the signal again after GRACE_S, and every second if Python has lost its exception."""
        delay_s, main = GRACE_S, threading.main_thread().ident
        while main is not None and not self._over.wait(delay_s):
            signal.pthread_kill(main, number)
            delay_s = 1.0


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Let each of these signals raise KeyboardInterrupt within the context, unless they are held.

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
        interrupts.end()
        for number in heard:
            signal.signal(number, before[number])


def ignore_signals() -> None:
    """Ignore the signals from now on, in a process that has finished its work."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
