"""Burst losses, events at the end of an instant, and traffic counters.

Losses in bursts follow the two states of
Gilbert and Elliott, per sender, over simulated time.

Gilbert, "Capacity of a burst-noise channel" (Bell System Technical Journal, 1960); Elliott, "Estimates of error rates
for codes on burst-noise channels" (same journal, 1963). There a step is a bit; here messages are far apart and of all
sizes, so the states last exponentially distributed times, and a message meets the state of its sender's link at the
time of sending.

Late calls run after all other events of their simulated time; SimPy itself has only urgent and normal events.

Communication counters per ordered pair of nodes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import simpy
from simpy.events import NORMAL, EventPriority

from ddlsim.foundation import rng


class Bursts:
    """The state of every sender's link.

    Args:
        mean_good_s, mean_bad_s: mean length of a stay in each state, simulated seconds.
        good, bad: probability that a message is lost in each state.
        seed: seed of the states.
    """

    def __init__(self, mean_good_s: float, mean_bad_s: float, good: float, bad: float, seed: int):
        self._means_s = mean_good_s, mean_bad_s
        self._chances = good, bad
        self._seed = seed
        self._stays: dict[int, Iterator[tuple[float, int]]] = {}
        self._now: dict[int, tuple[float, int]] = {}  # sender -> (end of its state, state: 1 is bad)

    def chance(self, sender: int, now_s: float) -> float:
        """Return the loss probability of a message sent now; times never decrease."""
        if sender not in self._stays:
            self._stays[sender] = self._drawn(sender)
            self._now[sender] = next(self._stays[sender])
        while self._now[sender][0] <= now_s:
            self._now[sender] = next(self._stays[sender])
        return self._chances[self._now[sender][1]]

    def _drawn(self, sender: int) -> Iterator[tuple[float, int]]:
        """Draw ends of stays and their states; the first state follows the stationary distribution."""
        generator = rng.stream(self._seed, "loss bursts", sender)
        good_s, bad_s = self._means_s
        state, end_s = int(generator.random() < bad_s / (good_s + bad_s)), 0.0
        while True:
            end_s += generator.exponential(self._means_s[state])
            yield end_s, state
            state = 1 - state


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

    def go_on(_: ScheduledCall) -> None:
        if env.now < time_s:  # an intermediate time, see exact_delay
            call_at(env, call, time_s, priority)
        else:
            call()

    ScheduledCall(env, go_on, exact_delay(env.now, time_s) if time_s > env.now else 0.0, priority)


@dataclass(frozen=True)
class Traffic:
    """One entry per ordered pair that had traffic, sorted by (src, dst); int64 arrays [pairs].

    `messages`, `payload_bytes` and `header_bytes` count messages that arrived and were used, `wasted_bytes` all other
    ended messages (link_use.py distinguishes them), `in_flight_bytes` those still on their way. All bytes put on the
    wire are the sum of the four.
    """

    src: np.ndarray
    dst: np.ndarray
    messages: np.ndarray
    payload_bytes: np.ndarray
    header_bytes: np.ndarray
    wasted_bytes: np.ndarray
    in_flight_bytes: np.ndarray

    @property
    def on_the_wire(self) -> np.ndarray:
        """All bytes put on the wire, [pairs]."""
        return self.payload_bytes + self.header_bytes + self.wasted_bytes + self.in_flight_bytes

    def __len__(self) -> int:
        return len(self.src)

    def rows(self) -> Iterator[dict[str, int]]:
        """Return the pairs as dictionaries of plain integers, keys in the order of the fields."""
        names = [field.name for field in fields(self)]
        for values in zip(*(getattr(self, name).tolist() for name in names), strict=True):
            yield dict(zip(names, values, strict=True))

    def total(self) -> dict[str, int | None]:
        """Return the sums over all pairs as one row without a pair, and the number of pairs."""
        sums = {field.name: int(getattr(self, field.name).sum()) for field in fields(self)}
        return {**sums, "src": None, "dst": None, "pairs": len(self)}


def with_flying(
    ended: dict[str, np.ndarray], flying: tuple[np.ndarray, np.ndarray, np.ndarray], num_nodes: int
) -> Traffic:
    """Return traffic of ended messages, as columns sorted by pair, and of messages on their way.

    Args:
        ended: the fields of Traffic except `in_flight_bytes`.
        flying: (src, dst, bytes on the wire so far) of messages, int64; several may have one pair.
        num_nodes: N.
    """
    src, dst, num_bytes = flying
    if not len(src):
        return Traffic(**ended, in_flight_bytes=np.zeros(len(ended["src"]), dtype=np.int64))
    of_ended, of_flying = ended["src"] * num_nodes + ended["dst"], src * num_nodes + dst
    pairs = np.union1d(of_ended, of_flying)
    columns = {"src": pairs // num_nodes, "dst": pairs % num_nodes}
    for name in ("messages", "payload_bytes", "header_bytes", "wasted_bytes"):
        columns[name] = np.zeros(len(pairs), dtype=np.int64)
        columns[name][np.searchsorted(pairs, of_ended)] = ended[name]
    in_flight = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(in_flight, np.searchsorted(pairs, of_flying), num_bytes)
    return Traffic(**columns, in_flight_bytes=in_flight)
