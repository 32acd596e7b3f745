"""What a kind of devices offers: seconds per local step of every node, fixed or over time.

Step times are either seconds, or factors of a base that follows from the model: see `Devices.scales`.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddlsim.part import Part, Problem

FORWARD_SHARE = 1 / 3
"""Where a model's operations are not counted, a forward pass costs a third of a training step (forward, gradient by
inputs, gradient by weights).
"""
FLOPS_PER_VALUE = 6
"""Operations of a training step per trained value and sample where they cannot be counted: two forward, four back."""


@dataclass(frozen=True)
class StepWork:
    """Floating-point operations of one architecture on one mini-batch of training.

    Args:
        forward_flops: of a forward pass.
        training_flops: of a training step, the forward pass included.
        counted: false: FLOPS_PER_VALUE for every value and sample instead of a count.
    """

    forward_flops: float
    training_flops: float
    counted: bool = True

    @classmethod
    def of_size(cls, size: int, samples: int) -> "StepWork":
        """The estimate for a model of which only the number of parameters counts: 6 operations for each and sample."""
        training = float(FLOPS_PER_VALUE * max(1, size) * samples)
        return cls(training / 3, training, counted=False)

    @property
    def forward_share(self) -> float:
        """What a forward pass costs of a training step."""
        return self.forward_flops / self.training_flops


@dataclass(frozen=True)
class StepTimeTrace:
    """Seconds per step of every node over time.

    Args:
        times_s: per node the times from which its values hold, ascending, the first one 0.
        step_times_s: per node as many values.
    """

    times_s: tuple[tuple[float, ...], ...]
    step_times_s: tuple[tuple[float, ...], ...]

    def __len__(self) -> int:
        """The number of nodes."""
        return len(self.times_s)

    def duration_s(self, node: int, steps: float, start_s: float) -> float:
        """How long `steps` steps (whole or not) take a node that begins with them at `start_s`."""
        times_s, step_times_s = self.times_s[node], self.step_times_s[node]
        at = bisect_right(times_s, start_s) - 1
        now_s = start_s
        for i in range(at, len(times_s) - 1):
            needed_s = steps * step_times_s[i]
            if now_s + needed_s <= times_s[i + 1]:
                return now_s + needed_s - start_s
            steps -= (times_s[i + 1] - now_s) / step_times_s[i]
            now_s = times_s[i + 1]
        return now_s + steps * step_times_s[-1] - start_s


class Devices(Part, ABC):
    """What every entry of DEVICES is."""

    @property
    def measures(self) -> bool:
        """Whether a run measures step times on its own machine when it starts. Default: no."""
        return False

    @property
    def scales(self) -> bool:
        """Whether `draw` returns factors of `base_step_s` instead of seconds. Default: seconds."""
        return False

    def base_step_s(self, architecture: str, work: StepWork) -> float:
        """Seconds per local step of an architecture, which `draw`'s factors multiply; called where `scales` is true.

        Raises:
            ScenarioError: if they are not known.
        """
        raise NotImplementedError

    @property
    def source(self) -> tuple[str | None, str]:
        """The device's name (None: the part's own) and where step times come from: given, estimated or measured."""
        return None, "given"

    @abstractmethod
    def draw(self, num_nodes: int, seed: int) -> np.ndarray | StepTimeTrace:
        """Seconds per local step, float64 [num_nodes], or what changes over time (see StepTimeTrace).

        Raises:
            ScenarioError: if they do not fit this many nodes.
        """

    def problems(self, num_nodes: int, seed: int) -> Iterator[Problem]:
        """See Part; tries to draw. Override where that takes long and can refuse nothing."""
        self.draw(num_nodes, seed)
        return iter(())
