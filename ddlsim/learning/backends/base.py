"""Interface of backends, and the choice of the backend that computes a job.

Backends are asked in order. A job that one cannot take goes to the next, for a reason that `--profile` reports; the
last one takes everything.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from ddlsim.learning.backends.device import DeviceTime
from ddlsim.learning.job_spec import JobSpec
from ddlsim.learning.job_types import TestSpec
from ddlsim.scenario.sections import Training


class Backend:
    """Base of backends, each of which computes waves of jobs of one kind."""

    name: str
    """For `--profile`."""

    def why_not(self, kind: str, jobs: Sequence[Any]) -> list[str]:
        """Return per job the reason why this backend cannot take it; empty if it can.

        Args:
            kind: of all jobs.
            jobs: a wave of specifications of this kind, which hold their rows (see job_spec.py); inputs are known.
        """
        raise NotImplementedError

    def run(self, kind: str, jobs: Sequence[Any]) -> Sequence[Any]:
        """Compute jobs that it takes: fill their rows, and return their values in order (None for a job without a
        value), as `LazyValue` if the host need not wait for them.
        """
        raise NotImplementedError

    def use_training(self, training: Training) -> None:
        """Use these settings (scenario section `training`) for trainings from now on."""

    def close(self) -> None:
        """End its threads."""


class Dispatcher:
    """Gives each job of a wave to the first backend that takes it.

    RemoteWaves (remote/waves.py) has the same methods, and computes in other processes.

    Args:
        backends: in the order in which they are asked; the last one takes everything.
        reasons: per architecture the results of a backend's trials, which it keeps; a resumed run starts with them.
        asynchronous: whether `run` returns before a GPU has done the work.
        device_time: measures waves; None if waves are over when their call returns.
    """

    def __init__(
        self,
        backends: Sequence[Backend],
        reasons: Mapping[str, dict[str, str]] = MappingProxyType({}),
        asynchronous: bool = False,
        device_time: DeviceTime | None = None,
    ):
        self.asynchronous = asynchronous
        self._device_time = device_time or DeviceTime(None)
        self.about: Mapping[str, Any] = MappingProxyType({"name": "local"})
        self.reasons: Mapping[str, dict[str, str]] = reasons
        self.backends = tuple(backends)
        self.passed_on: dict[str, Counter[str]] = defaultdict(Counter)
        """Backend -> kind and reason -> how many jobs it did not take."""
        self.taken: dict[str, Counter[str]] = defaultdict(Counter)
        """Backend -> kind -> how many jobs it has computed."""
        self._evaluations = EvaluationCache()

    def know(self, reasons: Mapping[str, Mapping[str, str]]) -> None:
        for name, found in self.reasons.items():
            found.update(reasons.get(name, {}))

    def run(self, kind: str, specs: Sequence[JobSpec]) -> list[Any]:
        """Compute a wave of one kind; return the jobs' values in order."""
        with self._device_time.of(kind):
            return self._evaluations.run(specs, partial(self.run_distinct, kind))

    def device_s(self) -> dict[str, float]:
        return self._device_time.seconds()

    def run_distinct(self, kind: str, jobs: Sequence[JobSpec]) -> list[Any]:
        """Compute jobs, of which no two are the same evaluation; return their values in order."""
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
            known = ("", OTHER_KIND)
            self.passed_on[backend.name].update(f"{kind}: {reason}" for reason in reasons if reason not in known)
            if not left:
                break
        assert not left, f"no backend takes {kind}: {reasons}"
        return values

    def about_end(self) -> Mapping[str, Any]:
        return {}

    def fallback_counts(self) -> dict[str, dict[str, int]]:
        """Backend -> kind and reason -> how many jobs it passed on."""
        return {name: dict(found) for name, found in self.passed_on.items() if found}

    def use_training(self, training: Training) -> None:
        """Trainings of all backends have these settings from now on."""
        for backend in self.backends:
            backend.use_training(training)

    def close(self) -> None:
        """End all backends."""
        for backend in self.backends:
            backend.close()


class EvaluationCache:
    """Computes equal evaluations of a wave once.

    A model that has been evaluated in an earlier wave (because its node has stopped, is offline, or has its best model
    tested) is not evaluated again: rows never change, and no two have the same number.
    """

    def __init__(self) -> None:
        self._tested: dict[str, dict[Hashable, Any]] = {}
        """Per split the last wave's evaluations and their values."""

    def run(self, specs: Sequence[JobSpec], compute: Callable[[list[JobSpec]], list[Any]]) -> list[Any]:
        """Return the values of jobs in order; `compute` returns the values of different jobs."""
        tests = [spec for spec in specs if isinstance(spec, TestSpec)]
        if len(tests) < len(specs):  # of another kind
            return compute(list(specs))
        identities = [spec.identity() for spec in tests]
        splits = [spec.split for spec in tests]
        values = {identity: value for split in {*splits} for identity, value in self._tested.get(split, {}).items()}
        distinct = {identity: spec for identity, spec in zip(identities, tests, strict=True) if identity not in values}
        values |= zip(distinct, compute(list(distinct.values())), strict=True)
        for split in {*splits}:
            of_split = (identity for identity, other in zip(identities, splits, strict=True) if other == split)
            self._tested[split] = {identity: values[identity] for identity in of_split}
        return [values[identity] for identity in identities]


OTHER_KIND = "not its kind of work"
"""Reason of a backend for jobs of kinds that it never takes."""
