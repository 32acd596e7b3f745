"""Use of simulated time by every node (computing, waiting, transfer, offline), and a timeline of these periods.

A node that waits for messages waits until the last message has been sent, and then for its transfer; the sender of the
last message is the awaited node. If a deadline or a departure ends the wait, the awaited nodes are the senders whose
messages are missing, if they were online or left at that instant. Other time is the rest (after the last round,
sleeping, collectives). Simultaneous work (scores for other nodes during a training) counts once, and a wait during work
counts as work.

The timeline holds the first MOST_PERIODS periods, or the periods in a window of simulated time (records.timeline).
"""

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import simpy

from ddlsim.network.messages.message import Message

MOST_PERIODS, MOST_IN_WINDOW = 1_000, 500_000
"""Maximum number of periods of a timeline by default, and with a window."""

_sent_s = attrgetter("sent_s")

OFFLINE, COMPUTING, WAITING, MESSAGE = "offline", "computing", "waiting", "message"


class Timeline:
    """Periods of nodes and messages in a window of simulated time, in the order of their registration.

    Args:
        env: SimPy's environment.
        window_s: start and end; None: from the start of the run until there are MOST_PERIODS periods.

    Attributes:
        on_close: called when no further period can be in the window.
    """

    on_close: Callable[[], None]

    def __init__(self, env: simpy.Environment, window_s: tuple[float, float] | None):
        self._env = env
        self._from_s, self._until_s = window_s or (0.0, math.inf)
        self._most = MOST_PERIODS if window_s is None else MOST_IN_WINDOW
        self._rows: list[dict[str, Any]] = []

    def begin(self, what: str, node: int, start_s: float, end_s: float | None = None, **more: Any) -> dict[str, Any]:
        """Add a period and return its row; `end_s` None: it has not ended."""
        row = {"what": what, "node": node, "start_s": float(start_s), "end_s": end_s, **more}
        now_s = self._env.now
        if now_s > self._until_s or len(self._rows) >= self._most:
            self._until_s = min(now_s, self._until_s)
            self.on_close()
        elif end_s is None or end_s >= self._from_s:
            self._rows.append(row)
        return row

    def follow(self, messages: Sequence[Message]) -> None:
        """Add the messages sent at this instant; their arrivals end their periods."""
        now_s = self._env.now
        for message in messages:
            size_bytes = message.payload_bytes + (message.header_bytes or 0)
            rows = {
                peer: self.begin(MESSAGE, message.src, now_s, peer=peer, bytes=size_bytes, kind=message.kind)
                for peer in message.receivers
                if peer != message.src
            }
            message.streams = (*message.streams, (_Arrivals(rows, self._env), 0))

    def rows(self) -> list[dict[str, Any]]:
        """Return the periods in the window, cut at its end; first a row `window`."""
        end_s = min(self._env.now, self._until_s)
        cut = [{**row, "end_s": end_s if row["end_s"] is None else min(row["end_s"], end_s)} for row in self._rows]
        window = {"what": "window", "node": None, "start_s": self._from_s, "end_s": end_s}
        return [window, *(row for row in cut if self._from_s <= row["end_s"] and row["start_s"] <= end_s)]


class _Arrivals:
    """Ends the periods of a message to several nodes; a listener of message.streams."""

    def __init__(self, rows: dict[int, dict[str, Any]], env: simpy.Environment):
        self._rows, self._env = rows, env

    def reached(self, receiver: int, _: int) -> None:
        """End the period of this receiver, because the message has arrived or failed."""
        if receiver in self._rows:
            self._rows[receiver]["end_s"] = self._env.now


def end_period_of(message: Message) -> None:
    """End the period of a message to one node that will never arrive."""
    for listener, _ in message.streams:
        if isinstance(listener, _Arrivals):
            listener.reached(message.receiver, 0)


class TimeUse:
    """Seconds of every node by use. For speed, clock and transport write into the lists directly.

    Args:
        num_nodes: number of nodes, a server included.
        env: SimPy's environment.
        timeline: timeline of the periods, or None.

    Attributes:
        computing_s: seconds of work per node, including all of the work in progress.
        busy_until_s: end of each node's work in progress.
        waits: start of each node's wait, and the awaited nodes; None if it does not wait.
        recording: the timeline; None once it is complete.
    """

    def __init__(self, num_nodes: int, env: simpy.Environment, timeline: Timeline | None = None):
        self.env, self._timeline, self.recording = env, timeline, timeline
        self.computing_s, self.busy_until_s = [0.0] * num_nodes, [0.0] * num_nodes
        self.waits: list[tuple[float, Sequence[int]] | None] = [None] * num_nodes
        self._waiting_s, self._transfer_s, self._offline_s = ([0.0] * num_nodes for _ in range(3))
        self._held_up_s, self._waits_held_up = [0.0] * num_nodes, [0] * num_nodes
        self._left_s: list[float | None] = [None] * num_nodes
        self._last_work: dict[int, dict[str, Any]] = {}
        self._absence: dict[int, dict[str, Any]] = {}
        if timeline is not None:
            timeline.on_close = self._stop_recording

    def computes(self, node: int, now_s: float, duration_s: float) -> None:
        """Count work that a node starts now, perhaps in parallel to other work."""
        end_s, start_s = now_s + duration_s, max(now_s, self.busy_until_s[node])
        if end_s > start_s:
            self.computing_s[node] += end_s - start_s
            self.busy_until_s[node] = end_s
            if self.recording is not None:
                self._last_work[node] = self.recording.begin(COMPUTING, node, start_s, end_s)

    def received(self, node: int, messages: Sequence[Message], deadline_s: float | None, last_sent_s: float) -> None:
        """Count a node's wait that these messages have ended; no node has sent any message after `last_sent_s`."""
        begun, now_s, busy_until_s = self.waits[node], self.env._now, self.busy_until_s[node]
        self.waits[node] = None
        if begun is None or begun[0] == now_s:
            return
        since_s, senders = begun
        if busy_until_s > since_s:
            since_s = min(now_s, busy_until_s)
        sent_s, last = since_s, -1
        if last_sent_s > since_s and messages:
            newest = max(messages, key=_sent_s)
            if newest.sent_s > since_s:
                sent_s, last = newest.sent_s, newest.src
        if len(messages) < len(senders):
            is_late = deadline_s is not None and now_s >= since_s + deadline_s
            missing = self._missing(senders, messages, is_late)
            if missing:
                sent_s, last = now_s, missing[0]
                for held_up_by in missing[1:]:
                    self._waits_held_up[held_up_by] += 1
                    self._held_up_s[held_up_by] += now_s - since_s
        self._transfer_s[node] += now_s - sent_s
        if last >= 0:
            waited_s = sent_s - since_s
            self._waiting_s[node] += waited_s
            self._waits_held_up[last] += 1
            self._held_up_s[last] += waited_s
            if self.recording is not None:
                self.recording.begin(WAITING, node, since_s, sent_s, peer=last)

    def left(self, node: int) -> None:
        """End a node's work and wait, because it has left or is offline at the start."""
        now_s, begun = self.env.now, self.waits[node]
        self._left_s[node], self.waits[node] = now_s, None
        if begun is not None:
            self._waiting_s[node] += now_s - begun[0]
        self.computing_s[node] -= max(0.0, self.busy_until_s[node] - now_s)
        self.busy_until_s[node] = now_s
        if (work := self._last_work.pop(node, None)) is not None:
            work["end_s"] = min(work["end_s"], now_s)
        if self.recording is not None:
            self._absence[node] = self.recording.begin(OFFLINE, node, now_s)

    def came(self, node: int) -> None:
        """Register a node's return."""
        left_s, self._left_s[node] = self._left_s[node], None
        if left_s is not None:
            self._offline_s[node] += self.env.now - left_s
        if (absence := self._absence.pop(node, None)) is not None:
            absence["end_s"] = self.env.now

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per node, of plain numbers, until now."""
        now_s, found = self.env.now, []
        for node, left_s in enumerate(self._left_s):
            begun = self.waits[node]
            used_s = {
                "computing_s": self.computing_s[node] - max(0.0, self.busy_until_s[node] - now_s),
                "waiting_s": self._waiting_s[node] + (0.0 if begun is None else now_s - begun[0]),
                "transfer_s": self._transfer_s[node],
                "offline_s": self._offline_s[node] + (0.0 if left_s is None else now_s - left_s),
            }
            other_s = max(0.0, now_s - sum(used_s.values()))
            held_up = {"waits_held_up": self._waits_held_up[node], "held_up_s": self._held_up_s[node]}
            found.append({"node": node, **used_s, "other_s": other_s, **held_up})
        return found

    def periods(self) -> list[dict[str, Any]] | None:
        """Return the rows of the timeline, or None without a timeline."""
        return None if self._timeline is None else self._timeline.rows()

    def _stop_recording(self) -> None:
        self.recording = None

    def _missing(self, senders: Sequence[int], messages: Sequence[Message], is_late: bool) -> list[int]:
        """Return the senders of missing messages whose lateness or departure ends a wait now."""
        missing, now_s = {*senders}.difference(message.src for message in messages), self.env.now
        return sorted(one for one in missing if self._left_s[one] == now_s or (is_late and self._left_s[one] is None))
