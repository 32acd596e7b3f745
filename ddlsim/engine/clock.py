"""The port Clock, SimPy's time and the duration of computing on devices; and the parts that the ports share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import simpy

from ddlsim.devices.base import FORWARD_SHARE, StepTimeTrace
from ddlsim.engine.membership import Member
from ddlsim.engine.meters import EnergyMeter
from ddlsim.engine.time_use import TimeUse
from ddlsim.foundation.errors import DdlsimError
from ddlsim.network.network import Network
from ddlsim.network.scheduled_calls import LATE, ScheduledCall
from ddlsim.node.ports import Compute
from ddlsim.node.run import Run

MOST_WAITING = 1000
"""Maximum number of nodes that wait for one event: a node that leaves is searched for among them."""


class SimulatedClock:
    """Simulated time of one run.

    Args:
        env: SimPy's environment.
        step_time_s: seconds per local step, per node; an array [N] or values that change over time.
        meter: energy meter, see meters.py; None: no meter.
        forward_share: cost of a forward pass as a share of a local step, per node [N]; None: FORWARD_SHARE.
        about: the manifest's remark on step times.
        times: counts the use of simulated time, see time_use.py; None: nothing does.
    """

    def __init__(
        self,
        env: simpy.Environment,
        step_time_s: np.ndarray | StepTimeTrace,
        meter: EnergyMeter | None = None,
        forward_share: Sequence[float] | None = None,
        about: dict[str, Any] | None = None,
        times: TimeUse | None = None,
    ):
        self.env = env
        self.meter, self.times = meter, times
        self._begun_s, self._seconds = -1.0, -1.0
        self._event = env.event()  # last event, with its start and delay
        self.use(step_time_s, forward_share, about)

    def use(
        self,
        step_time_s: np.ndarray | StepTimeTrace,
        forward_share: Sequence[float] | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        """Set the devices' durations of work that starts from now on."""
        self._trace = step_time_s if isinstance(step_time_s, StepTimeTrace) else None
        # Python's floats: numpy's would spread through SimPy's queue, where comparing them takes several times as long.
        self._step_time_s = [] if self._trace else np.asarray(step_time_s, dtype=float).tolist()
        self._forward_share, self.about = forward_share, about

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self.env.now

    def at_end_of_instant(self, call: Callable[[], None]) -> simpy.Event:
        """Call once all other events of this instant have happened, except messages that arrive at it."""
        return ScheduledCall(self.env, lambda _: call(), 0.0, LATE)

    def event(self) -> simpy.Event:
        """Return an event that has not happened yet."""
        return self.env.event()

    def after(self, seconds: float) -> simpy.Event:
        """Return an event this number of seconds from now.

        Nodes that ask in a row for the same delay at the same instant get the same event, and continue in the order in
        which they asked: SimPy's queue has one entry for all of them.

        Raises:
            DdlsimError: the delay is not a valid time.
        """
        event, now_s = self._event, self.env._now  # env.now would cost as much as the rest
        if seconds == self._seconds and now_s == self._begun_s:
            waiting = event.callbacks
            if waiting is not None and len(waiting) < MOST_WAITING:
                return event
        if not 0 <= seconds < math.inf:
            raise DdlsimError(f"expected simulated seconds of 0 or more, got {seconds}.")
        self._begun_s, self._seconds = now_s, seconds
        self._event = event = self.env.timeout(seconds)
        return event

    def computing_s(self, node: int, steps: float, forward_passes: float = 0) -> float:
        """Return a node's seconds for these local steps and forward passes of a mini-batch, if it starts now."""
        if forward_passes:
            steps += forward_passes * (FORWARD_SHARE if self._forward_share is None else self._forward_share[node])
        duration_s = self.steps_s(node, steps)
        if self.meter is not None:
            self.meter.devices[node].computes(steps, self.env.now, duration_s)
        times = self.times
        if times is not None:
            now_s, busy_until_s = self.env._now, times.busy_until_s
            if times.recording is None and busy_until_s[node] <= now_s:
                times.computing_s[node] += duration_s
                busy_until_s[node] = now_s + duration_s
            else:
                times.computes(node, now_s, duration_s)
        return duration_s

    def steps_s(self, node: int, steps: float) -> float:
        """Return the seconds that local steps would take a node from now on."""
        if self._trace is not None:
            return self._trace.duration_s(node, steps, self.env.now)
        return steps * self._step_time_s[node]


@dataclass(frozen=True)
class RunParts:
    """Objects of one run that its messages need.

    Args:
        network: the links.
        members: all nodes, by id.
        run: facts of the run.
        clock: simulated time.
        compute: encodes and scores models.
    """

    network: Network
    members: Sequence[Member]
    run: Run
    clock: SimulatedClock
    compute: Compute
