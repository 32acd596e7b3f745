"""Absences of nodes, listed in a scenario or drawn at random; traces.py reads recorded absences.

Every entry of CHURNS defines `absences(num_nodes, seed)`: per node its absences (start_s, end_s) in simulated seconds,
in order; a node without any is always online. They may be drawn lazily and never end: the simulation takes the next one
when the node has returned. An absence that ends at infinity is permanent.

Random sessions alternate stays online and absences, drawn from Weibull distributions.

The presets are fits of (time between failures, outage length) to logs of the Failure Trace Archive (Javadi, Kondo,
Iosup, Epema, "The Failure Trace Archive: Enabling the comparison of failure measurements and models of distributed
systems", JPDC 2013), as the OpenDC simulator collects them; a time between failures is used as a stay online.

A run finds its nodes in the middle of a stay or an absence: the rest of the first one is drawn as in a renewal process
in equilibrium (Cox, "Renewal Theory", 1962), so the share of nodes online is the same at the start as later. With the
presets' long tails this matters: if all stays started with the run, most nodes would leave in its first minutes.

Every node draws from its own stream, so adding a node changes no other node's sessions.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Interval

from ddlsim.foundation.registry import Part, Problem
from ddlsim.foundation.rng import stream
from ddlsim.foundation.units import CountOrZero

OfflineInterval = tuple[float, float]

Absences = Mapping[int, Iterable[OfflineInterval]]
"""Node -> its absences (start_s, end_s), in order."""


@dataclass(frozen=True, kw_only=True)
class Churn(Part):
    """Base of every kind of churn.

    Args:
        state: memory of a node that returns: `kept`, its state when it left, or `lost`, nothing; then it restarts, from
            newly drawn models or from the start that all nodes share, by its algorithm.
    """

    state: Literal["kept", "lost"] = "kept"

    def check(self, num_nodes: int) -> None:
        """Raise ScenarioError if this number of nodes is invalid. Default: all are valid."""

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return the problems found by `check`."""
        self.check(num_nodes)
        return iter(())

    def absences(self, num_nodes: int, seed: int) -> "Absences":
        """Return each node's absences, in order; a node that is never offline may be left out."""
        raise NotImplementedError(f"{type(self).__name__} must define absences(num_nodes, seed)")


@dataclass(frozen=True, kw_only=True)
class Absence:
    """One node's absence.

    Args:
        node: node id.
        start_s: time at which it leaves, simulated seconds; 0: it is offline at the start.
        end_s: time at which it returns, or joins the run; .inf: never.
    """

    __pydantic_config__: ClassVar = {"strict": True, "extra": "forbid", "allow_inf_nan": True}

    node: CountOrZero
    start_s: Annotated[float, Ge(0)]
    end_s: Annotated[float, Gt(0)]


@dataclass(frozen=True, kw_only=True)
class Schedule(Churn):
    """Nodes leave and return at given times.

    Args:
        offline: list of {node, start_s, end_s}; absences of a node that overlap or touch are one.
    """

    offline: tuple[Absence, ...]

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """Return absences of nodes that do not exist, and absences that end before they start."""
        for i, absence in enumerate(self.offline):
            if absence.node >= num_nodes:
                text = f"node ids are 0 to {num_nodes - 1} in this scenario, got {absence.node}"
                yield ("offline", i, "node"), text
            if absence.end_s <= absence.start_s:
                text = f"must lie after start_s ({absence.start_s:g}), got {absence.end_s:g}"
                yield ("offline", i, "end_s"), text

    def absences(self, num_nodes: int, seed: int) -> Absences:
        """Return each node's absences (start, end) in simulated seconds, in order."""
        found: dict[int, list[OfflineInterval]] = {}
        for absence in self.offline:
            found.setdefault(absence.node, []).append((absence.start_s, absence.end_s))
        return {node: merged(found[node]) for node in sorted(found)}


def merged(intervals: Iterable[OfflineInterval]) -> list[OfflineInterval]:
    """Return intervals in order; merge intervals that touch or overlap, and drop empty ones."""
    found: list[OfflineInterval] = []
    for start_s, end_s in sorted(each for each in intervals if each[1] > each[0]):
        if found and start_s <= found[-1][1]:
            start_s, end_s = found[-1][0], max(found.pop()[1], end_s)
        found.append((start_s, end_s))
    return found


HOUR_S = 3600.0
Fit = tuple[float, float]
"""Weibull shape, and scale in hours."""


@dataclass(frozen=True)
class Lengths:
    """Weibull distribution of durations.

    Args:
        shape: 1 is the exponential distribution; below 1 the longer it has lasted, the longer it will.
        scale_s: simulated seconds.
    """

    shape: float
    scale_s: float

    @classmethod
    def of_fit(cls, fit: Fit, time_scale: float) -> "Lengths":
        """Return the distribution of a fit, sped up by a factor."""
        return cls(fit[0], fit[1] * HOUR_S / time_scale)

    @property
    def mean_s(self) -> float:
        return self.scale_s * math.gamma(1 + 1 / self.shape)

    def draw(self, rng: np.random.Generator) -> float:
        """Draw a whole length, seconds."""
        return self.scale_s * float(rng.weibull(self.shape))

    def draw_rest(self, rng: np.random.Generator) -> float:
        """Draw the remaining seconds of the length that is active at a random time.

        A random time falls into long lengths more often: with density x f(x) / mean, under which (x / scale)^shape is
        gamma distributed with parameter 1 + 1 / shape; and uniformly within each length.
        """
        whole = self.scale_s * float(rng.gamma(1 + 1 / self.shape)) ** (1 / self.shape)
        return whole * float(rng.random())


@dataclass(frozen=True, kw_only=True)
class Sessions(Churn, ABC):
    """Stays and absences that alternate without end.

    Args:
        initially_online: share of nodes online at the start; by default the long-run share, the mean stay as a share of
            mean stay and mean absence.
    """

    initially_online: Annotated[float, Interval(ge=0, le=1)] | None = None

    @abstractmethod
    def lengths(self) -> tuple[Lengths, Lengths]:
        """Return the distributions of stays online and of absences."""

    def absences(self, num_nodes: int, seed: int) -> Absences:
        """Return each node's absences, drawn one by one and without end."""
        online, offline = self.lengths()
        usual = online.mean_s / (online.mean_s + offline.mean_s)
        share = usual if self.initially_online is None else self.initially_online
        return {node: _alternate(stream(seed, "churn", node), online, offline, share) for node in range(num_nodes)}


@dataclass(frozen=True, kw_only=True)
class Exponential(Sessions):
    """Stays and absences of exponentially distributed length.

    Args:
        mean_online_s: mean stay online, simulated seconds.
        mean_offline_s: mean absence, simulated seconds.
    """

    mean_online_s: Annotated[float, Gt(0)]
    mean_offline_s: Annotated[float, Gt(0)]

    def lengths(self) -> tuple[Lengths, Lengths]:
        return Lengths(1, self.mean_online_s), Lengths(1, self.mean_offline_s)


@dataclass(frozen=True, kw_only=True)
class Weibull(Sessions):
    """Stays and absences of Weibull-distributed length.

    Args:
        online_shape: shape of stays online, 1 or less for most systems.
        online_scale_h: scale of stays online, hours.
        offline_shape: shape of absences.
        offline_scale_h: scale of absences, hours.
        time_scale: speed-up over real time: 3600 makes an hour a simulated second.
    """

    online_shape: Annotated[float, Ge(0.1)]
    online_scale_h: Annotated[float, Gt(0)]
    offline_shape: Annotated[float, Ge(0.1)]
    offline_scale_h: Annotated[float, Gt(0)]
    time_scale: Annotated[float, Gt(0)] = 1.0

    def lengths(self) -> tuple[Lengths, Lengths]:
        fits = (self.online_shape, self.online_scale_h), (self.offline_shape, self.offline_scale_h)
        return Lengths.of_fit(fits[0], self.time_scale), Lengths.of_fit(fits[1], self.time_scale)


@dataclass(frozen=True, kw_only=True)
class Preset(Sessions, ABC):
    """Sessions with measured distributions.

    Args:
        time_scale: speed-up over real time: 3600 makes an hour a simulated second.
    """

    time_scale: Annotated[float, Gt(0)] = 1.0
    online_fit: ClassVar[Fit]
    offline_fit: ClassVar[Fit]

    def lengths(self) -> tuple[Lengths, Lengths]:
        return Lengths.of_fit(self.online_fit, self.time_scale), Lengths.of_fit(self.offline_fit, self.time_scale)


@dataclass(frozen=True, kw_only=True)
class Skype(Preset):
    """Skype's superpeers of 2006: half of them online, stays of some 15 hours (Failure Trace Archive, Weibull fit)."""

    online_fit = (0.64, 10.86)
    offline_fit = (0.63, 9.48)


@dataclass(frozen=True, kw_only=True)
class Overnet(Preset):
    """File sharers of Overnet, 2003: a quarter online, stays of some 2 hours (Failure Trace Archive, Weibull fit)."""

    online_fit = (0.85, 2.04)
    offline_fit = (0.44, 2.98)


@dataclass(frozen=True, kw_only=True)
class Microsoft(Preset):
    """Desktops at Microsoft, 1999: four fifths online, stays of some 60 hours (Failure Trace Archive, Weibull fit)."""

    online_fit = (0.55, 35.30)
    offline_fit = (0.60, 9.34)


@dataclass(frozen=True, kw_only=True)
class PlanetLab(Preset):
    """Servers of PlanetLab, 2005: four fifths online, stays of some 120 hours (Failure Trace Archive, Weibull fit)."""

    online_fit = (0.33, 19.35)
    offline_fit = (0.36, 5.59)


def _alternate(
    rng: np.random.Generator, online: Lengths, offline: Lengths, initially_online: float
) -> Iterator[tuple[float, float]]:
    """Yield absences of one node, without end."""
    if rng.random() < initially_online:
        leaves_s = online.draw_rest(rng)
        returns_s = leaves_s + offline.draw(rng)
    else:
        leaves_s, returns_s = 0.0, offline.draw_rest(rng)
    while True:
        yield leaves_s, returns_s
        leaves_s = returns_s + online.draw(rng)
        returns_s = leaves_s + offline.draw(rng)
