"""Interface of backends, and the choice of the backend that computes a job.

Backends are asked in order. A job that one cannot take goes to the next, for a reason that `--profile` reports; the
last one takes everything.

The amount of work that a device gets at once is limited by memory: passes over images by the bytes of their
activations, waves of training by the memory that the first models took.

A size that was too large once is not tried again: the next pass, and the next wave, start with a size that fitted.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from ddlsim.learning.bank import Rows
from ddlsim.learning.device_time import DeviceTime
from ddlsim.learning.job_types import JobSpec, TestSpec

if TYPE_CHECKING:
    from ddlsim.scenario.model import Training


class Backend(Protocol):
    """Computes waves of jobs of one kind."""

    name: str
    """For `--profile`."""

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        """Per job why this backend cannot take it; empty if it can.

        Args:
            kind: of all jobs.
            jobs: a wave of specifications of this kind, bound to rows (see JobSpec.bound), whose inputs are known.
        """

    def run(self, kind: str, jobs: Sequence[Any]) -> Sequence[Any]:
        """Compute jobs that it takes: fill their rows, and return their values in order (None for a job without a
        value), as `LazyValue` if the host need not wait for them.
        """

    def use_training(self, training: "Training") -> None:
        """Trainings from now on have these settings (scenario section `training`)."""

    def close(self) -> None:
        """End its threads; called once."""


class Waves(Protocol):
    """Computes waves of jobs of any kind, in this process or in others.

    Attributes:
        about: what computes, for the manifest.
        asynchronous: whether `run` returns before the work is done, which a GPU or other processes do meanwhile.
    """

    about: Mapping[str, Any]
    asynchronous: bool

    @property
    def taken(self) -> Mapping[str, Mapping[str, int]]:
        """Backend -> kind -> how many jobs it has computed."""

    def about_end(self) -> Mapping[str, Any]:
        """Entries for the manifest, in addition to `about`, known once the run has ended."""

    @property
    def reasons(self) -> Mapping[str, dict[str, str]]:
        """Backend -> architecture -> the results of the backend's trials, which it keeps."""

    def know(self, reasons: Mapping[str, Mapping[str, str]]) -> None:
        """Take over the reasons that backends of an earlier process had found."""

    def run(self, kind: str, specs: Sequence[JobSpec]) -> list[Any]:
        """Compute a wave of one kind; return the jobs' values in order, as `LazyValue` if still being computed."""

    def detours(self) -> dict[str, dict[str, int]]:
        """Backend -> kind and reason -> how many jobs it passed on."""

    def device_s(self) -> dict[str, float]:
        """Kind of work -> seconds that a device has spent on it, by the device's own clock; empty without a GPU."""

    def use_training(self, training: "Training") -> None:
        """Trainings have these settings from now on."""

    def close(self) -> None:
        """End threads and processes."""


class Dispatcher:
    """Gives each job of a wave to the first backend that takes it.

    Args:
        rows: of the run.
        backends: in the order in which they are asked; the last one takes everything.
        reasons: per architecture the results of a backend's trials, which it keeps; a resumed run starts with them.
        asynchronous: see Waves.
        device_time: measures waves; None if waves are over when their call returns.
    """

    def __init__(
        self,
        rows: Rows,
        backends: Sequence[Backend],
        reasons: Mapping[str, dict[str, str]] = MappingProxyType({}),
        asynchronous: bool = False,
        device_time: DeviceTime | None = None,
    ):
        self.asynchronous = asynchronous
        self._device_time = device_time or DeviceTime(None)
        self.about: Mapping[str, Any] = MappingProxyType({"name": "local"})
        self.reasons: Mapping[str, dict[str, str]] = reasons
        self._rows = rows
        self.backends = tuple(backends)
        self.passed_on: dict[str, Counter[str]] = defaultdict(Counter)
        """Backend -> kind and reason -> how many jobs it did not take."""
        self.taken: dict[str, Counter[str]] = defaultdict(Counter)
        """Backend -> kind -> how many jobs it has computed."""
        self._once_each = OnceEach()

    def know(self, reasons: Mapping[str, Mapping[str, str]]) -> None:
        for name, found in self.reasons.items():
            found.update(reasons.get(name, {}))

    def run(self, kind: str, specs: Sequence[JobSpec]) -> list[Any]:
        """Compute a wave of one kind; return the jobs' values in order."""
        with self._device_time.of(kind):
            return self._once_each.run(specs, partial(self._run_distinct, kind))

    def device_s(self) -> dict[str, float]:
        return self._device_time.seconds()

    def _run_distinct(self, kind: str, specs: Sequence[JobSpec]) -> list[Any]:
        jobs = [spec.bound(self._rows) for spec in specs]
        values: list[Any] = [None] * len(jobs)
        left = list(range(len(jobs)))
        for backend in self.backends:
            reasons = backend.why_not(kind, [jobs[place] for place in left])
            taken = [place for place, reason in zip(left, reasons, strict=True) if not reason]
            if taken:
                found = backend.run(kind, [jobs[place] for place in taken])
                self.taken[backend.name][kind] += len(taken)
                for place, value in zip(taken, found, strict=True):
                    values[place] = value
            left = [place for place, reason in zip(left, reasons, strict=True) if reason]
            self.passed_on[backend.name].update(
                f"{kind}: {reason}" for reason in reasons if reason not in ("", OTHER_KIND)
            )
            if not left:
                break
        assert not left, f"no backend takes {kind}: {reasons}"
        return values

    def about_end(self) -> Mapping[str, Any]:
        return {}

    def detours(self) -> dict[str, dict[str, int]]:
        """Backend -> kind and reason -> how many jobs it passed on."""
        return {name: dict(found) for name, found in self.passed_on.items() if found}

    def use_training(self, training: "Training") -> None:
        """Trainings of all backends have these settings from now on."""
        for backend in self.backends:
            backend.use_training(training)

    def close(self) -> None:
        """End all backends."""
        for backend in self.backends:
            backend.close()


class OnceEach:
    """Computes equal jobs of a wave once.

    A model that has been evaluated in an earlier wave (because its node has stopped, is offline, or has its best model
    tested) is not evaluated again: rows never change, and no two have the same number.
    """

    def __init__(self) -> None:
        self._tested: dict[str, dict[Hashable, Any]] = {}  # per split the last wave's evaluations and their values

    def run(self, specs: Sequence[JobSpec], compute: Callable[[list[JobSpec]], list[Any]]) -> list[Any]:
        """Return the values of jobs in order; `compute` returns those of different jobs."""
        identities = [spec.identity() for spec in specs]
        known = self._known(specs)
        distinct: dict[Hashable, JobSpec] = {}
        for identity, spec in zip(identities, specs, strict=True):
            if identity not in known:
                distinct.setdefault(identity, spec)
        found = compute(list(distinct.values()))
        values = {**known, **dict(zip(distinct, found, strict=True))}
        self._remember(specs, identities, values)
        return [values[identity] for identity in identities]

    def _known(self, specs: Sequence[JobSpec]) -> dict[Hashable, Any]:
        """Values of the wave before, by identity."""
        splits = {spec.split for spec in specs if isinstance(spec, TestSpec)}
        return {identity: value for split in splits for identity, value in self._tested.get(split, {}).items()}

    def _remember(
        self, specs: Sequence[JobSpec], identities: Sequence[Hashable], values: Mapping[Hashable, Any]
    ) -> None:
        fresh: dict[str, dict[Hashable, Any]] = defaultdict(dict)
        for spec, identity in zip(specs, identities, strict=True):
            if isinstance(spec, TestSpec):
                fresh[spec.split][identity] = values[identity]
        self._tested.update(fresh)


OTHER_KIND = "not its kind of work"
"""Reason of a backend for jobs of kinds that it never takes."""


T = TypeVar("T")

PASS_BYTES = 2**32
"""Of the inputs and outputs of a pass's largest operator: enough to fill a device, and below 2^31 float32 values."""
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
            _give_back()  # only now, because the error held the computed values

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
            _give_back()
        return found


def _give_back() -> None:
    """Release memory that torch keeps for reuse."""
    torch.cuda.empty_cache()
