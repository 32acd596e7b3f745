"""SimPy's environment with its queue and loop in C++ (csrc/flow/event_loop.h)."""

import gc
from collections.abc import Callable
from typing import Any

import simpy
from simpy.core import StopSimulation
from simpy.events import NORMAL, Event

from ddlsim.native import extension

LATE = NORMAL + 1
"""Priority of what happens after everything else that is due at its instant."""

YOUNG_OBJECTS = 20_000


class Environment(simpy.Environment):
    """A simpy.Environment; processes, events and resources are SimPy's, and happen in SimPy's order.

    Between events it runs the network that is attached to it, which has no events of its own in the queue. At one
    instant SimPy's events, late ones too, come before what the network does then.

    Args:
        initial_time: simulated seconds.
    """

    def __init__(self, initial_time: float = 0):
        super().__init__(initial_time)
        self._loop = loop = extension().EventLoop(initial_time, self.__dict__, _crash, StopSimulation)
        # Found before SimPy's methods of these names, and called without a step through Python.
        self.schedule, self.peek, self.step, self.attach = loop.schedule, loop.peek, loop.step, loop.attach

    def run(self, until: Any = None) -> Any:
        """Runs until there is nothing left to do, a time, or an event; see simpy.Environment.run."""
        step, collect_every = self.step, gc.get_threshold()
        self.step = self._loop.run  # what SimPy calls in a loop: this one comes back at the end of the run only
        # Events and messages come and go without circles: Python's collector need not look at them every 700.
        gc.set_threshold(max(collect_every[0], YOUNG_OBJECTS) if collect_every[0] else 0, *collect_every[1:])
        try:
            return super().run(until)
        finally:
            self.step = step
            gc.set_threshold(*collect_every)

    def call_late(self, call: Callable[[Event], Any]) -> None:
        """Calls back when everything else of this instant is done."""
        event = Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(call)
        self.schedule(event, LATE)


def _crash(event: Event) -> None:
    """Raises what went wrong, as simpy.Environment.step does: of the same type, from where it happened."""
    failure = event._value
    raise type(failure)(*failure.args) from failure
