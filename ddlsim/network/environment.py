"""SimPy's environment with its queue and loop in C++ (csrc/flow/event_loop.h)."""

import gc
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import simpy
from simpy.events import NORMAL, Event, _describe_frame

from ddlsim.native import extension

LATE = NORMAL + 1
"""Priority of what happens after everything else that is due at its instant."""

YOUNG_OBJECTS, OBJECTS_PER_PROCESS = 20_000, 20
"""What Python's collector lets come before it looks at it: in general, and with many processes."""


class Environment(simpy.Environment):
    """A simpy.Environment; processes, events and resources are SimPy's, and happen in SimPy's order.

    Between events it runs the network that is attached to it, which has no events of its own in the queue. At one
    instant SimPy's events, late ones too, come before what the network does then.

    Args:
        initial_time: simulated seconds.
    """

    def __init__(self, initial_time: float = 0):
        super().__init__(initial_time)
        self._num_processes = 0  # those that were started together
        self.loop = loop = extension().EventLoop(initial_time, self, _crash, _refuse)
        # Found before SimPy's methods of these names, and called without a step through Python.
        self.schedule, self.peek, self.step, self.attach = loop.schedule, loop.peek, loop.step, loop.attach

    def run(self, until: Any = None) -> Any:
        """Runs until there is nothing left to do, a time, or an event; see simpy.Environment.run."""
        step = self.step
        self.step = self.loop.run  # what SimPy calls in a loop: this one comes back at the end of the run only
        try:
            with collecting_rarely(self._num_processes):
                return super().run(until)
        finally:
            self.step = step

    def processes(self, generators: Iterable[Generator]) -> list[simpy.Process]:
        """A process for each generator, one after the other; see simpy.Environment.process."""
        with collecting_rarely(self._num_processes):
            processes = [self.process(generator) for generator in generators]
        self._num_processes += len(processes)
        return processes

    def call_late(self, call: Callable[[Event], Any]) -> None:
        """Calls back when everything else of this instant is done."""
        event = Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(call)
        self.schedule(event, LATE)


@contextmanager
def collecting_rarely(num_processes: int) -> Iterator[None]:
    """Events, messages and processes come and go without circles: Python's collector need not look at every 700."""
    before = gc.get_threshold()
    young = max(before[0], YOUNG_OBJECTS, OBJECTS_PER_PROCESS * num_processes)
    gc.set_threshold(young if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _crash(event: Event) -> None:
    """Raises what went wrong, as simpy.Environment.step does: of the same type, from where it happened."""
    failure = event._value
    raise type(failure)(*failure.args) from failure


def _refuse(generator: Generator, event: Any) -> None:
    """Raises what simpy.Process does when its generator yields something that is no event."""
    raise RuntimeError(f'\n{_describe_frame(generator.gi_frame)}Invalid yield value "{event}"') from None
