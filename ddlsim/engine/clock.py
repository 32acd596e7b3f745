"""The Clock port: SimPy's time, and how long devices take."""

from typing import TYPE_CHECKING

import numpy as np

from ddlsim.devices.base import StepTimeTrace

if TYPE_CHECKING:
    import simpy

    from ddlsim.engine.energy_meter import EnergyMeter


class SimulatedClock:
    """Simulated time of one run.

    Args:
        env: SimPy's environment.
        step_time_s: seconds per local step, per node; an array [N] or what changes over time.
        meter: what counts it, see energy_meter.py; None: nothing does.

    Attributes:
        after: makes an event that happens so many seconds from now.
    """

    __slots__ = ("_env", "_meter", "_step_time_s", "_trace", "after")

    def __init__(
        self, env: "simpy.Environment", step_time_s: "np.ndarray | StepTimeTrace", meter: "EnergyMeter | None" = None
    ):
        self._env = env
        self._meter = meter
        self.after = env.timeout
        self.use(step_time_s)

    def use(self, step_time_s: "np.ndarray | StepTimeTrace") -> None:
        """Devices take as long as this says for what they begin from now on."""
        self._trace = step_time_s if isinstance(step_time_s, StepTimeTrace) else None
        # Python's floats: numpy's would spread through SimPy's queue, where comparing them takes several times as long.
        self._step_time_s = [] if self._trace else np.asarray(step_time_s, dtype=float).tolist()

    @property
    def now_s(self) -> float:
        """Simulated seconds since the start."""
        return self._env.now

    def computing_s(self, node: int, steps: float) -> float:
        """How long a node takes for so many local steps (a forward pass is a part of one), with which it begins now."""
        if self._trace is not None:
            duration_s = self._trace.duration_s(node, steps, self._env.now)
        else:
            duration_s = steps * self._step_time_s[node]
        if self._meter is not None:
            self._meter.computes(node, steps, self._env.now, duration_s)
        return duration_s
