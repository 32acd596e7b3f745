"""Nodes that come and go at random: stays online and absences alternate, drawn from Weibull distributions.

The presets are fits of (time between failures, outage length) to logs of the Failure Trace Archive (Javadi, Kondo,
Iosup, Epema, "The Failure Trace Archive: Enabling the comparison of failure measurements and models of distributed
systems", JPDC 2013), as the OpenDC simulator collects them; a time between failures is taken for a stay online.

A run finds its nodes in the middle of a stay or an absence: the rest of the first one is drawn as a renewal process in
equilibrium has it (Cox, "Renewal Theory", 1962), so the share of nodes online is the same at the start as later. With
the presets' long tails this matters: if all stays began with the run, most nodes would leave in its first minutes.

Every node draws from its own stream, so adding a node changes no other node's sessions.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Interval

from ddlsim.churn.schedule import Absences, Churn
from ddlsim.rng import stream

HOUR_S = 3600.0
Fit = tuple[float, float]
"""Weibull shape, and scale in hours."""


@dataclass(frozen=True)
class Lengths:
    """Weibull distribution of how long something lasts.

    Args:
        shape: 1 is the exponential distribution; below 1 the longer it has lasted, the longer it will.
        scale_s: simulated seconds.
    """

    shape: float
    scale_s: float

    @property
    def mean_s(self) -> float:
        return self.scale_s * math.gamma(1 + 1 / self.shape)

    def draw(self, rng: np.random.Generator) -> float:
        """A whole length, seconds."""
        return self.scale_s * float(rng.weibull(self.shape))

    def draw_rest(self, rng: np.random.Generator) -> float:
        """What is left, seconds, of the length under way at a random moment.

        A moment finds long lengths more often: with density x f(x) / mean, under which (x / scale)^shape is gamma
        distributed with parameter 1 + 1 / shape; and it finds each anywhere in its course.
        """
        whole = self.scale_s * float(rng.gamma(1 + 1 / self.shape)) ** (1 / self.shape)
        return whole * float(rng.random())


@dataclass(frozen=True, kw_only=True)
class Sessions(Churn, ABC):
    """Stays and absences that alternate for ever.

    Args:
        initially_online: share of nodes online at the start; by default what it is in the long run, the mean stay as a
            share of mean stay and mean absence.
    """

    initially_online: Annotated[float, Interval(ge=0, le=1)] | None = None

    @abstractmethod
    def lengths(self) -> tuple[Lengths, Lengths]:
        """Of stays online and of absences."""

    def absences(self, num_nodes: int, seed: int) -> Absences:
        """Per node its absences, drawn one by one and without end."""
        online, offline = self.lengths()
        share = self.initially_online
        if share is None:
            share = online.mean_s / (online.mean_s + offline.mean_s)
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
        time_scale: how many times faster than in life: 3600 makes an hour a simulated second.
    """

    online_shape: Annotated[float, Ge(0.1)]
    online_scale_h: Annotated[float, Gt(0)]
    offline_shape: Annotated[float, Ge(0.1)]
    offline_scale_h: Annotated[float, Gt(0)]
    time_scale: Annotated[float, Gt(0)] = 1.0

    def lengths(self) -> tuple[Lengths, Lengths]:
        return _from_fits(
            (self.online_shape, self.online_scale_h), (self.offline_shape, self.offline_scale_h), self.time_scale
        )


@dataclass(frozen=True, kw_only=True)
class Preset(Sessions, ABC):
    """Sessions as they were measured.

    Args:
        time_scale: how many times faster than in life: 3600 makes an hour a simulated second.
    """

    time_scale: Annotated[float, Gt(0)] = 1.0
    online_fit: ClassVar[Fit]
    offline_fit: ClassVar[Fit]

    def lengths(self) -> tuple[Lengths, Lengths]:
        return _from_fits(self.online_fit, self.offline_fit, self.time_scale)


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


def _from_fits(online: Fit, offline: Fit, time_scale: float) -> tuple[Lengths, Lengths]:
    return tuple(Lengths(shape, scale_h * HOUR_S / time_scale) for shape, scale_h in (online, offline))  # type: ignore[return-value]


def _alternate(
    rng: np.random.Generator, online: Lengths, offline: Lengths, initially_online: float
) -> Iterator[tuple[float, float]]:
    """Absences of one node, without end."""
    if rng.random() < initially_online:
        leaves_s = online.draw_rest(rng)
    else:
        returns_s = offline.draw_rest(rng)
        yield 0.0, returns_s
        leaves_s = returns_s + online.draw(rng)
    while True:
        returns_s = leaves_s + offline.draw(rng)
        yield leaves_s, returns_s
        leaves_s = returns_s + online.draw(rng)
