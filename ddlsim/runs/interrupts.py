"""The signals that end a run: the first is a KeyboardInterrupt, later ones cannot cut short the writing of records."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C; a batch system whose time is over; a terminal that was closed."""

_STILL_WRITING = b"Writing what has been computed; another signal changes nothing (kill -9 ends it at once).\n"


@contextmanager
def interrupted_once() -> Iterator[None]:
    """While this is open the first of these signals raises KeyboardInterrupt, and the next ones only say a word.

    Signals that are ignored already (nohup, a background job of a shell) stay ignored. Outside the main thread, where
    no handlers can be set, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in ENDING}
    heard = {number for number, handler in before.items() if handler not in (signal.SIG_IGN, None, _later, _first)}
    for number in heard:
        signal.signal(number, _first)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, before[number])


def _first(number: int, frame) -> None:
    for other in ENDING:
        if signal.getsignal(other) is _first:
            signal.signal(other, _later)
    raise KeyboardInterrupt


def _later(number: int, frame) -> None:
    with suppress(OSError):  # the terminal may have gone
        os.write(2, _STILL_WRITING)
