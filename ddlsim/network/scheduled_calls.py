"""Calls after all other events of their simulated time; SimPy itself has only urgent and normal events."""

from collections.abc import Callable
from typing import Any

import simpy
from simpy.events import NORMAL, EventPriority

LATE = EventPriority(NORMAL + 1)
"""After all normal events of an instant, including those that they trigger."""

LATEST = EventPriority(LATE + 1)
"""After the late events."""

LAST = EventPriority(LATEST + 1)
"""After the latest events, which deliver messages: for processes that end with an instant and need all its messages."""


class ScheduledCall(simpy.Event):
    """Event that calls a function at the end of an instant.

    Args:
        env: the environment whose clock counts.
        call: called with this event.
        delay_s: simulated seconds from now; see `exact_delay`.
        priority: LATE, LATEST or LAST.
    """

    def __init__(
        self, env: simpy.Environment, call: Callable[["ScheduledCall"], Any], delay_s: float, priority: EventPriority
    ):
        super().__init__(env)
        self.callbacks.append(call)
        self._ok, self._value = True, None  # triggered from the start, as simpy.Timeout
        env.schedule(self, priority, delay_s)


def exact_delay(now_s: float, time_s: float) -> float:
    """Return the delay after which SimPy's clock shows `time_s`, to the last bit; or a shorter one.

    SimPy adds the delay to its clock, and now_s + (time_s - now_s) may differ from time_s by a rounding. Then the
    result is the delay to an intermediate time, from which the difference is exact: a - b is, if b <= a <= 2 b
    (Sterbenz, "Floating point computation", 1974, theorem 4.3.1).

    Args:
        now_s: the time of the clock.
        time_s: a later one.
    """
    delay_s = time_s - now_s
    return delay_s if now_s + delay_s == time_s else 0.75 * time_s - now_s


def call_at(env: simpy.Environment, call: Callable[[], Any], time_s: float, priority: EventPriority) -> None:
    """Call when SimPy's clock shows a time, to the last bit, or now if that time has passed."""

    def continue_waiting(_: ScheduledCall) -> None:
        if env.now < time_s:  # an intermediate time, see exact_delay
            call_at(env, call, time_s, priority)
        else:
            call()

    ScheduledCall(env, continue_waiting, exact_delay(env.now, time_s) if time_s > env.now else 0.0, priority)
