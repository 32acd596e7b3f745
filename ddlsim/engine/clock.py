"""The Clock port: SimPy's time, and how long devices take."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.devices.base import FORWARD_SHARE, StepTimeTrace
from ddlsim.errors import DdlsimError
from ddlsim.network.late_calls import LATE, LateCall

if TYPE_CHECKING:
    import simpy

    from ddlsim.engine.energy_meter import EnergyMeter

MOST_WAITING = 1000
"""Nodes that wait for one event at most: one that leaves is searched for among them."""


class SimulatedClock:
    """Simulated time of one run.

    Args:
        env: SimPy's environment.
        step_time_s: seconds per local step, per node; an array [N] or what changes over time.
        meter: what counts it, see energy_meter.py; None: nothing does.
        forward_share: what a forward pass costs of a local step, per node [N]; None: FORWARD_SHARE.
        about: what the manifest says of step times.
    """

    __slots__ = ("_begun_s", "_env", "_event", "_forward_share", "_seconds", "_step_time_s", "_trace", "about", "meter")

    def __init__(
        self,
        env: "simpy.Environment",
        step_time_s: "np.ndarray | StepTimeTrace",
        meter: "EnergyMeter | None" = None,
        forward_share: "Sequence[float] | None" = None,
        about: "dict[str, Any] | None" = None,
    ):
        self._env = env
        self.meter = meter
        self._begun_s, self._seconds = -1.0, -1.0
        self._event = env.event()  # the last one made, begun then and so long
        self.use(step_time_s, forward_share, about)

    def use(
        self,
        step_time_s: "np.ndarray | StepTimeTrace",
        forward_share: "Sequence[float] | None" = None,
        about: "dict[str, Any] | None" = None,
    ) -> None:
        """Devices take as long as this says for what they begin from now on."""
        self._trace = step_time_s if isinstance(step_time_s, StepTimeTrace) else None
        # Python's floats: numpy's would spread through SimPy's queue, where comparing them takes several times as long.
        self._step_time_s = [] if self._trace else np.asarray(step_time_s, dtype=float).tolist()
        self._forward_share, self.about = forward_share, about

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._env.now

    def at_end_of_instant(self, call: Callable[[], None]) -> "simpy.Event":
        """Calls once all other events of this instant have happened, but for messages that arrive at it."""
        return LateCall(self._env, lambda _: call(), 0.0, LATE)

    def event(self) -> "simpy.Event":
        """An event that has not happened yet."""
        return self._env.event()

    def after(self, seconds: float) -> "simpy.Event":
        """An event that happens so many seconds from now.

        Nodes that ask one after the other for the same delay at the same instant get the same event, and go on in the
        order in which they asked: SimPy's queue has one entry for all of them.

        Raises:
            DdlsimError: it is no time.
        """
        event, now_s = self._event, self._env.now
        if seconds == self._seconds and now_s == self._begun_s:
            waiting = event.callbacks
            if waiting is not None and len(waiting) < MOST_WAITING:
                return event
        if not 0 <= seconds < math.inf:
            raise DdlsimError(f"expected simulated seconds of 0 or more, got {seconds}.")
        self._begun_s, self._seconds = now_s, seconds
        self._event = event = self._env.timeout(seconds)
        return event

    def computing_s(self, node: int, steps: float, forward_passes: float = 0) -> float:
        """How long a node takes for so many local steps and forward passes of a mini-batch, if it begins now."""
        if forward_passes:
            steps += forward_passes * (FORWARD_SHARE if self._forward_share is None else self._forward_share[node])
        if self._trace is not None:
            duration_s = self._trace.duration_s(node, steps, self._env.now)
        else:
            duration_s = steps * self._step_time_s[node]
        if self.meter is not None:
            self.meter.computes(node, steps, self._env.now, duration_s)
        return duration_s
