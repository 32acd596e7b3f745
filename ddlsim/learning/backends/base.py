"""What a backend is, and which one takes a job.

Backends are asked in order. What one cannot take goes to the next, for a reason that `--profile` tells; the last one
takes everything.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

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
        """Computes jobs that it takes: fills their rows, and returns their values in order (None: there is none), as
        later.py: Later where the host need not wait for them.
        """

    def use_training(self, training: "Training") -> None:
        """Trainings from now on have these settings (scenario section `training`)."""

    def close(self) -> None:
        """Ends what it has begun (threads); called once."""


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
        """What the manifest says of what computes once the run has ended, beside `about`."""

    @property
    def reasons(self) -> Mapping[str, dict[str, str]]:
        """Backend -> architecture -> what the backend has found out by trying, and keeps."""

    def know(self, reasons: Mapping[str, Mapping[str, str]]) -> None:
        """Takes over what backends of an earlier process had found out."""

    def run(self, kind: str, specs: Sequence[JobSpec]) -> list[Any]:
        """Computes a wave of one kind; returns the jobs' values in order, perhaps as later.py: Later."""

    def detours(self) -> dict[str, dict[str, int]]:
        """Backend -> kind and reason -> how many jobs it passed on."""

    def device_s(self) -> dict[str, float]:
        """Kind of work -> seconds that a device has spent on it, by the device's own clock; empty without a GPU."""

    def use_training(self, training: "Training") -> None:
        """Trainings have these settings from now on."""

    def close(self) -> None:
        """Ends threads and processes."""


class Dispatcher:
    """Gives each job of a wave to the first backend that takes it.

    Args:
        rows: of the run.
        backends: in the order in which they are asked; the last takes everything.
        reasons: per architecture what a backend has found out by trying, and keeps; a resumed run begins with it.
        asynchronous: see Waves.
        device_time: measures waves; None: they are over when their call returns.
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
        """See Waves."""
        for name, found in self.reasons.items():
            found.update(reasons.get(name, {}))

    def run(self, kind: str, specs: Sequence[JobSpec]) -> list[Any]:
        """Computes a wave of one kind; returns the jobs' values in order."""
        with self._device_time.of(kind):
            return self._once_each.run(specs, partial(self._run_distinct, kind))

    def device_s(self) -> dict[str, float]:
        """See Waves."""
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
        """See Waves."""
        return {}

    def detours(self) -> dict[str, dict[str, int]]:
        """Backend -> kind and reason -> how many jobs it passed on."""
        return {name: dict(found) for name, found in self.passed_on.items() if found}

    def use_training(self, training: "Training") -> None:
        """Trainings of all backends have these settings from now on."""
        for backend in self.backends:
            backend.use_training(training)

    def close(self) -> None:
        """Ends all backends."""
        for backend in self.backends:
            backend.close()


class OnceEach:
    """Has equal jobs of a wave computed once.

    A model that has been evaluated in the wave before (of a node that has stopped, is away, or whose best model is
    tested) is not evaluated again: rows never change, and no two have the same number.
    """

    def __init__(self) -> None:
        self._tested: dict[str, dict[Hashable, Any]] = {}  # per split the last wave's evaluations and their values

    def run(self, specs: Sequence[JobSpec], compute: Callable[[list[JobSpec]], list[Any]]) -> list[Any]:
        """The values of jobs in order; `compute` gives those of different jobs."""
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
