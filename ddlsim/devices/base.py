"""What a kind of devices offers: seconds per local step of every node, fixed or over time."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ddlsim.part import Part, Problem

FORWARD_SHARE = 1 / 3
"""A forward pass costs a third of a training step (forward, gradient by inputs, gradient by weights)."""


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
