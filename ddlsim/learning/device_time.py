"""Seconds that a device spends on each kind of work, separated from the host's.

Launching returns before the work is done, and the next wait would be charged for it. The device passes marks in its own
queue, before and after each wave; between them is the work of this wave only.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

MOST_OPEN = 1024
"""Waves whose marks are kept; the time of the oldest is then read, which the device has passed long ago."""


class Mark(Protocol):
    """A place in the device's queue; torch.cuda.Event is one."""

    def synchronize(self) -> None:
        """Wait until the device has passed the mark."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds between two marks that have been passed."""


class DeviceTime:
    """Device time by kind of work.

    Args:
        mark: puts a mark after all work that has been launched; None if the device has no queue of its own.
    """

    def __init__(self, mark: Callable[[], Mark] | None):
        self._mark = mark
        self._open: deque[tuple[str, Mark, Mark]] = deque()
        self._seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        """Count the work launched inside as this kind of work."""
        if self._mark is None:
            yield
            return
        begin = self._mark()
        yield
        self._open.append((kind, begin, self._mark()))
        if len(self._open) > MOST_OPEN:
            self._close_oldest()

    def seconds(self) -> dict[str, float]:
        """Return kind of work -> seconds so far; waits for work under way."""
        while self._open:
            self._close_oldest()
        return dict(self._seconds)

    def _close_oldest(self) -> None:
        kind, begin, end = self._open.popleft()
        end.synchronize()
        self._seconds[kind] += begin.elapsed_time(end) / 1000


def device_time(device: torch.device) -> DeviceTime:
    """Of a device's current stream; on the CPU nothing is measured, since work is done when its call returns."""
    if device.type != "cuda":
        return DeviceTime(None)

    def mark() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    return DeviceTime(mark)
