"""Memory and time of a device.

The amount of work that a device gets at once is limited by memory: passes over images by the bytes of their
activations, waves of training by the memory that the first models took. A size that was too large once is not tried
again: the next pass, and the next wave, start with a size that fitted.

Time is counted per kind of work, separated from the host's. Launching returns before the work is done, and the next
wait would be charged for it. The device passes marks in its own queue, before and after each wave; between them is
the work of this wave only.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch

MOST_OPEN = 1024
"""Waves whose marks are kept; the time of the oldest is then read, which the device has passed long ago."""


class DeviceTime:
    """Device time by kind of work.

    Args:
        mark: puts a mark (torch.cuda.Event) after all work that has been launched; None if the device has no
            queue.
    """

    def __init__(self, mark: Callable[[], Any] | None):
        self._mark = mark
        self._open: deque[tuple[str, Any, Any]] = deque()
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
    """Return the meter of a device's current stream; on the CPU, where calls return after the work, it is idle."""
    if device.type != "cuda":
        return DeviceTime(None)

    def mark() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(device))
        return event

    return DeviceTime(mark)


T = TypeVar("T")

PASS_BYTES = 2**32
"""Bytes of the input and output of a pass's largest layer: enough to fill a device, and below 2^31 float32 values."""
MEASURED_JOBS = 64
"""Number of trainings of a larger wave, enough to fill a device, by which the memory of one training is measured."""
SHARE = 0.5
"""Share of the memory free after that measurement that a wave may take."""


class CudaGauge:
    """Measures the used memory of a device by the counts of torch's allocator, which need no wait.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device):
        self._device = device

    def free(self) -> int:
        """Free memory, bytes."""
        held = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return torch.cuda.mem_get_info(self._device)[0] + held

    def peak(self, call: Callable[[], T]) -> tuple[T, int]:
        """Return the result of a call, and by how many bytes at most the memory in use rose during the call."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        found = call()
        return found, torch.cuda.max_memory_allocated(self._device) - before


class Memory:
    """Sizes of passes and waves that have fitted the memory of a device so far.

    Args:
        gauge: of the device; None if waves need no limit.

    Attributes:
        pass_bytes: most bytes of a pass.
    """

    def __init__(self, gauge: CudaGauge | None = None) -> None:
        self.pass_bytes = PASS_BYTES
        self._gauge = gauge
        self._most_jobs: dict[Hashable, int] = {}

    def passes(self, count: int, image_bytes: int, compute: Callable[[slice], T]) -> Iterator[T]:
        """Yield the results of `compute` for images 0 .. count-1, one range after the other.

        Args:
            count: images.
            image_bytes: of one image in the pass, over all its models.
            compute: takes a range.

        Raises:
            torch.OutOfMemoryError: if one image is too much.
        """
        first, before = 0, self.pass_bytes
        while first < count:
            stop = min(count, first + max(1, self.pass_bytes // max(1, image_bytes)))
            try:
                found = compute(slice(first, stop))
            except torch.OutOfMemoryError:
                if stop - first == 1:
                    self.pass_bytes = before  # it is not the images that are too many
                    raise
                self.pass_bytes = (stop - first) * image_bytes // 2
            else:
                yield found
                first = stop
                continue
            torch.cuda.empty_cache()  # only now, because the error held the computed values

    def in_pieces(
        self, key: Hashable, jobs: Sequence[Any], run: Callable[[Sequence[Any]], list | None], measured: bool = False
    ) -> list:
        """Return the values of jobs, run together, or in pieces that fit the memory.

        Args:
            key: equal for jobs that need about the same memory each.
            jobs: in order.
            run: computes some of them; called again with fewer if the memory does not suffice.
            measured: whether the first jobs of a large wave measure how many fit together.

        Raises:
            torch.OutOfMemoryError: if one job is too much.
        """
        found: list = []
        first = 0
        while first < len(jobs):
            some = jobs[first : first + self._most_jobs.get(key, len(jobs))]
            gauge = self._gauge if measured and key not in self._most_jobs and len(some) > MEASURED_JOBS else None
            try:
                if gauge is None:
                    found += run(some) or []
                else:
                    some = some[:MEASURED_JOBS]
                    values, taken = gauge.peak(partial(run, some))
                    found += values or []
                    self._most_jobs[key] = max(len(some), int(SHARE * gauge.free() * len(some) / max(1, taken)))
            except torch.OutOfMemoryError:
                if len(some) == 1:
                    raise
                self._most_jobs[key] = (len(some) + 1) // 2
            else:
                first += len(some)
                continue
            torch.cuda.empty_cache()
        return found
