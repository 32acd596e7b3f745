"""How much a device is given at once: passes over images by the bytes of their activations, waves of training by what
their first models took.

What has been too much once is not tried again: the next pass, and the next wave, begin with what fitted.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

T = TypeVar("T")

PASS_BYTES = 2**32
"""Of the inputs and outputs of a pass's largest operator: enough to fill a device, and below 2^31 float32 values."""
MEASURED_JOBS = 64
"""Of a larger wave the first so many trainings, enough to fill a device, tell what one of them takes."""
SHARE = 0.5
"""Of the memory that is free when that has been measured, what a wave may take."""


class Gauge(Protocol):
    """Tells what memory of a device is used."""

    def free(self) -> int:
        """Bytes that can still be had."""

    def peak(self, call: Callable[[], T]) -> tuple[T, int]:
        """What a call returns, and by how many bytes the memory in use rose meanwhile at most."""


class CudaGauge:
    """See Gauge; by the counts of torch's allocator, for which nothing waits.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device):
        self._device = device

    def free(self) -> int:
        """See Gauge."""
        held = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return torch.cuda.mem_get_info(self._device)[0] + held

    def peak(self, call: Callable[[], T]) -> tuple[T, int]:
        """See Gauge."""
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        found = call()
        return found, torch.cuda.max_memory_allocated(self._device) - before


class Memory:
    """What has fitted the memory of a device so far.

    Args:
        gauge: of the device; None: waves are as large as they come.

    Attributes:
        pass_bytes: most bytes of a pass.
    """

    def __init__(self, gauge: Gauge | None = None) -> None:
        self.pass_bytes = PASS_BYTES
        self._gauge = gauge
        self._most_jobs: dict[Hashable, int] = {}

    def passes(self, count: int, image_bytes: int, compute: Callable[[slice], T]) -> Iterator[T]:
        """What `compute` makes of images 0 .. count-1, a range after the other.

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
            _give_back()  # only now: the error has held what was computed

    def in_pieces(
        self, key: Hashable, jobs: Sequence[Any], run: Callable[[Sequence[Any]], list | None], measured: bool = False
    ) -> list:
        """The values of jobs, run together, or in pieces that fit.

        Args:
            key: equal for jobs that need about the same memory each.
            jobs: in order.
            run: computes some of them; called again with fewer where the memory does not suffice.
            measured: the first jobs of a large wave tell how many fit together.

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
            _give_back()
        return found


def _give_back() -> None:
    """Lets go of memory that torch keeps for reuse."""
    torch.cuda.empty_cache()


class OperatorBytes(TorchDispatchMode):
    """Notes how many bytes each operator reads and writes while this is on.

    Attributes:
        found: of each so far, views left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See TorchDispatchMode."""
        found = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.found.append(sum(each.nbytes for each in _tensors((args, kwargs or {}, found))))
        return found


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def bytes_an_image(call: Callable[[torch.Tensor], torch.Tensor], images: torch.Tensor) -> tuple[int, torch.Tensor]:
    """The most bytes that an image adds to an operator of a call, and what the call makes of one image.

    Args:
        call: takes images in dimension 1.
        images: [U, 1, ...].
    """
    two_images = torch.cat([images, images], dim=1)
    with OperatorBytes() as of_one:
        made = call(images)
    with OperatorBytes() as of_two:
        call(two_images)
    alike = len(of_one.found) == len(of_two.found)
    added = [two - one for one, two in zip(of_one.found, of_two.found, strict=True)] if alike else of_two.found
    return max([1, *added]), made
