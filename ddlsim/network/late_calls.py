"""Calls at a simulated time after all other events of that time; SimPy itself knows urgent and normal events only."""

from collections.abc import Callable
from typing import Any

import simpy
from simpy.events import NORMAL, EventPriority

LATE = EventPriority(NORMAL + 1)
"""After all normal events of an instant, those that others of them bring about included."""

LATEST = EventPriority(LATE + 1)
"""After the late ones, too."""

LAST = EventPriority(LATEST + 1)
"""After the latest ones, which bring messages: for what ends with an instant and has all that comes at it."""


class LateCall(simpy.Event):
    """An event that calls back at the end of an instant.

    Args:
        env: the environment whose clock counts.
        call: called with this event.
        delay_s: simulated seconds from now; see `exact_delay`.
        priority: LATE, LATEST or LAST.
    """

    def __init__(
        self, env: simpy.Environment, call: Callable[["LateCall"], Any], delay_s: float, priority: EventPriority
    ):
        super().__init__(env)
        self.callbacks.append(call)
        self._ok, self._value = True, None  # triggered from the start, as simpy.Timeout
        env.schedule(self, priority, delay_s)


def exact_delay(now_s: float, time_s: float) -> float:
    """The delay after which SimPy's clock shows `time_s`, to the last bit; or a shorter one.

    SimPy adds the delay to its clock, and now_s + (time_s - now_s) may differ from time_s by a rounding. Then this is
    the delay to a moment between, from which the difference is exact: a - b is, if b <= a <= 2 b (Sterbenz, "Floating
    point computation", 1974, theorem 4.3.1).

    Args:
        now_s: the time of the clock.
        time_s: a later one.
    """
    delay_s = time_s - now_s
    return delay_s if now_s + delay_s == time_s else 0.75 * time_s - now_s


def call_at(env: simpy.Environment, call: Callable[[], Any], time_s: float, priority: EventPriority) -> None:
    """Calls when SimPy's clock shows a time, to the last bit, or now if that is over."""

    def go_on(_: LateCall) -> None:
        if env.now < time_s:  # a moment between, see exact_delay
            call_at(env, call, time_s, priority)
        else:
            call()

    LateCall(env, go_on, exact_delay(env.now, time_s) if time_s > env.now else 0.0, priority)
