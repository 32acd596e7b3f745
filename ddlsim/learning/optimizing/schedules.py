"""Learning-rate schedules: functions of a node's progress, in rounds or in steps.

The rate of an update is `training.learning_rate` times a factor. A schedule with a name from torch.optim.lr_scheduler
uses the closed form of that schedule, and the tests compare them. Momentum is never scheduled.

Progress: `per: round` counts the rounds of the run, so nodes that were offline return to the rate of the others, or, if
they continue with their own rounds (mode async), to the rate of these; `per: step` counts the mini-batches that the
node has trained on so far, and assumes that their total is rounds times local steps (training.local_steps or epochs;
for an algorithm that trains several times in a round, or once more before the first, the steps of all its trainings). A
node that has lost its state starts its steps from 0.
"""

import math
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen

from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.registry import Part
from ddlsim.foundation.units import Count, CountOrZero

Factor = Annotated[float, Gt(0), Le(1)]
FactorOrZero = Annotated[float, Ge(0), Le(1)]
ROUNDING = 1e-9
"""Largest amount by which a factor of 0 may be negative from rounding."""


@dataclass(frozen=True, kw_only=True)
class Schedule(Part):
    """Options common to all schedules.

    Args:
        per: round: the rate changes between rounds; step: with every mini-batch of a node.
        warmup: rounds (or steps) in which the rate grows evenly up to its full size, before the schedule starts
            (Goyal et al. 2017): in the first of w it is 1 / w of it.
    """

    per: Literal["round", "step"] = "round"
    warmup: CountOrZero = 0

    @abstractmethod
    def factor(self, position: int, length: int) -> float:
        """Return the factor of the learning rate.

        Args:
            position: rounds (or steps) since warm-up ended, from 0.
            length: rounds (or steps) of the whole run, at least 1; positions may be larger.
        """

    def at(self, position: int, total: int) -> float:
        """Factor with warm-up counted in, at a position from 0 in a run of `total` rounds (or steps).

        Raises:
            ScenarioError: if `factor` returns an invalid value.
        """
        done, length = position - self.warmup, max(1, total - self.warmup)
        found = self.factor(max(0, done), length)
        wrong = no_factor(found, max(0, done), length)
        if wrong:
            raise ScenarioError(f"training.schedule: factor of {type(self).__qualname__} returns {wrong}.")
        factor = max(0.0, float(found))
        return (position + 1) / self.warmup * factor if done < 0 else factor


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """The same rate throughout, after warm-up."""

    def factor(self, position: int, length: int) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Step(Schedule):
    """Multiplication by gamma every `every` rounds or steps (StepLR).

    Args:
        every: rounds or steps between two changes.
        gamma: factor of each change.
    """

    every: Count
    gamma: Factor = 0.1

    def factor(self, position: int, length: int) -> float:
        return self.gamma ** (position // self.every)


@dataclass(frozen=True, kw_only=True)
class MultiStep(Schedule):
    """Times gamma at each milestone (MultiStepLR).

    Args:
        milestones: rounds or steps, ascending, counted from the end of warm-up.
        gamma: factor of each change.
    """

    milestones: Annotated[tuple[Count, ...], MinLen(1)]
    gamma: Factor = 0.1

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(self.milestones):
            raise ValueError(f"milestones must ascend, got {list(self.milestones)}")

    def factor(self, position: int, length: int) -> float:
        return self.gamma ** bisect_right(self.milestones, position)


@dataclass(frozen=True, kw_only=True)
class Exponential(Schedule):
    """Times gamma after every round or step (ExponentialLR).

    Args:
        gamma: factor of each change.
    """

    gamma: Factor

    def factor(self, position: int, length: int) -> float:
        return self.gamma**position


@dataclass(frozen=True, kw_only=True)
class Linear(Schedule):
    """From one factor evenly to another (LinearLR).

    Args:
        start: factor at first.
        end: factor in the end.
        length: rounds or steps until then; null: the rest of the run.
    """

    start: Factor = 1.0
    end: FactorOrZero = 0.0
    length: Count | None = None

    def factor(self, position: int, length: int) -> float:
        return self.start + (self.end - self.start) * min(1.0, position / (self.length or length))


@dataclass(frozen=True, kw_only=True)
class Polynomial(Schedule):
    """A power of the share of the run that is left (PolynomialLR).

    Args:
        power: the exponent.
        length: rounds or steps until the rate is 0; null: the rest of the run.
    """

    power: Annotated[float, Gt(0), Le(100)] = 1.0
    length: Count | None = None

    def factor(self, position: int, length: int) -> float:
        return (1 - min(1.0, position / (self.length or length))) ** self.power


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Half a cosine from the full rate to its end (CosineAnnealingLR; Loshchilov, Hutter, SGDR, ICLR 2017).

    Args:
        end: factor in the end.
        length: rounds or steps until then; null: the rest of the run.
    """

    end: FactorOrZero = 0.0
    length: Count | None = None

    def factor(self, position: int, length: int) -> float:
        done = min(1.0, position / (self.length or length))
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * done)) / 2


@dataclass(frozen=True, kw_only=True)
class CosineRestarts(Schedule):
    """Half cosines that restart at the full rate (CosineAnnealingWarmRestarts; SGDR).

    Args:
        length: rounds or steps of the first.
        growth: ratio of the lengths of each and the one before.
        end: factor at the end of each.
    """

    length: Count
    growth: Annotated[int, Ge(1), Le(1000)] = 1
    end: FactorOrZero = 0.0

    def factor(self, position: int, length: int) -> float:
        here = self.length
        while position >= here:
            position, here = position - here, here * self.growth
            if self.growth == 1:
                position %= here
        return self.end + (1 - self.end) * (1 + math.cos(math.pi * position / here)) / 2


@dataclass(frozen=True, kw_only=True)
class OneCycle(Schedule):
    """Up to the full rate and down again far below its start (OneCycleLR; Smith, Topin 2018).

    Args:
        rise: share of the run in which the rate grows.
        start: factor at first (torch: 1 / div_factor).
        end: factor in the end, of the one at first (torch: 1 / final_div_factor).
        shape: of both ways: cosine or linear.
    """

    rise: Annotated[float, Gt(0), Lt(1)] = 0.3
    start: Factor = 0.04
    end: Factor = 1e-4
    shape: Literal["cosine", "linear"] = "cosine"

    def factor(self, position: int, length: int) -> float:
        top, last = self.rise * length - 1, max(1.0, length - 1.0)
        if position <= top:
            return self._between(self.start, 1.0, position / top if top > 0 else 1.0)
        return self._between(1.0, self.start * self.end, min(1.0, (position - top) / max(1e-9, last - top)))

    def _between(self, first: float, then: float, share: float) -> float:
        if self.shape == "linear":
            return first + (then - first) * share
        return then + (first - then) * (1 + math.cos(math.pi * share)) / 2


def rates(schedule: Schedule, learning_rate: float, updates: Sequence[tuple[int, int]], total: int) -> list[float]:
    """Return the learning rates of updates; the head of the file defines the counts.

    Args:
        schedule: of the scenario.
        learning_rate: the full rate.
        updates: per update the round and the mini-batches trained on before it.
        total: rounds, or steps, of the whole run.
    """
    which = 0 if schedule.per == "round" else 1
    return [learning_rate * schedule.at(each[which], total) for each in updates]


def no_factor(found: Any, position: int, length: int) -> str:
    """Return the fault in a result of `factor`, e.g. "-1 at 3 of 20, expected ..."; empty if it is valid."""
    with suppress(TypeError, ValueError):
        if not isinstance(found, str) and -ROUNDING <= float(found) < math.inf:
            return ""
    shown = found if isinstance(found, int | float | np.number) else kind_of(found)
    return f"{shown} at {position} of {length}, expected a number of 0 or more"
