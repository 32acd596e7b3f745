"""Messages between nodes in simulated time: the engine's only door to the flow network (csrc/flow/flow_network.h).

Outside, time is SimPy's float of seconds; inside it is a whole number of nanoseconds. A time enters rounded to the
nearest nanosecond and leaves as ns / 1e9, which returns to the same nanosecond up to 2^50 ns (13 simulated days);
later the resolution is that of a float of seconds, and a time is moved to the nearest one that keeps events in order.

SimPy sees one pending event, the next thing that happens on the network. A send only hands flows over; one late event
of the same instant then asks for the next time, however many messages were sent in that instant.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import simpy
from simpy.events import NORMAL

from ddlsim import rng
from ddlsim.engine.link_use import LinkUse, NodeUse
from ddlsim.engine.traffic import Traffic, with_flying
from ddlsim.native import extension

NS_PER_S = 1_000_000_000
NEVER_NS = 2**63 - 1
FOREVER_S = float("inf")
LATE = NORMAL + 1
ENDED = -1

Fidelity = Literal["flow", "latency", "ideal"]
Latency = float | Sequence | np.ndarray | Callable[[int, int], float]


@dataclass(slots=True)
class Message:
    """What one node sends to another.

    Args:
        src, dst: sender and receiver.
        round_num: round it belongs to.
        kind: what the receiver does with it.
        payload: content; the network does not look at it.
        payload_bytes, header_bytes: bytes on the wire; header_bytes None: the network's.
        keys: of a request, which keys of the payload are asked for; None: all. They travel in the header.
        streams: what its arrival tells the sender (see outbox.py); the network does not look at it.
        sent_s: simulated time of sending, set by the network.
        lost: on its way to be lost (see Network's drop_prob), set by the network.
        slot: the flow that carries it, set by the network; ENDED before and after.
    """

    src: int
    dst: int
    round_num: int
    kind: str
    payload: Any
    payload_bytes: int
    header_bytes: int | None = None
    streams: tuple = ()
    keys: Sequence[str] | None = None
    sent_s: float = 0.0
    lost: bool = False
    slot: int = ENDED


class _Alarm(simpy.Event):
    """Calls back after a delay; a LATE one after everything else that is already due at its instant."""

    __slots__ = ()

    def __init__(self, env: simpy.Environment, delay_s: float, call: Callable[[Any], None], priority: int = NORMAL):
        # As SimPy's own Timeout: born triggered, without the steps of Event.__init__.
        self.env = env
        self.callbacks = [call]
        self._ok = True
        self._value = None
        env.schedule(self, priority, delay_s)


class Network:
    """The links of all nodes and every message on its way.

    A message waits for its latency, then shares uplink and downlink max-min fairly with the others (`flow`), or
    arrives after the latency alone (`latency`), or at the same instant (`ideal`). A message to oneself arrives at
    the same instant and is not counted.

    Args:
        env: SimPy's environment.
        num_nodes: N.
        uplink_bytes_per_s, downlink_bytes_per_s: capacities, [N] or one for all; 0 stalls what is on the link.
        latency_s: one-way, before the first byte: one number for every message; [N] access latencies, of which a
            message takes its sender's and its receiver's; a matrix [N, N]; or a function (src, dst) -> seconds.
        fidelity: flow, latency or ideal.
        header_bytes: added to messages that do not say their own.
        on_delivery: called with each message that arrives, in order of (time, sending).
        on_abort: called with each message that will never arrive: one end left (at once), one end was away when it
            was sent (same instant), or it was dropped (`message.lost`, when its last byte would have arrived).
        drop_prob: chance that a message is lost on its way; its bytes are sent, and wasted.
        on_drop: what follows a loss: the whole message again at once, or nothing.
        seed: of the losses.
        shared_bytes_per_s: capacities of links that several nodes share, [L].
        route: (src, dst) -> which of them (indices) a message crosses between its sender's uplink and its receiver's
            downlink.
    """

    def __init__(
        self,
        env: simpy.Environment,
        num_nodes: int,
        uplink_bytes_per_s: float | np.ndarray,
        downlink_bytes_per_s: float | np.ndarray,
        latency_s: Latency = 0.0,
        *,
        fidelity: Fidelity = "flow",
        header_bytes: int = 0,
        on_delivery: Callable[[Message], None],
        on_abort: Callable[[Message], None] = lambda _: None,
        drop_prob: float = 0.0,
        on_drop: Literal["retransmit", "drop"] = "retransmit",
        seed: int = 0,
        shared_bytes_per_s: Sequence[float] = (),
        route: Callable[[int, int], Sequence[int]] | None = None,
    ):
        self.header_bytes = header_bytes
        self._env = env
        self._fidelity = fidelity
        self._on_delivery, self._on_abort = on_delivery, on_abort
        self._drop_prob, self._on_drop, self._seed = drop_prob, on_drop, seed
        self._drop_streams: dict[int, np.random.Generator] = {}
        self._core = extension().FlowNetwork(bandwidth=fidelity == "flow")
        self._online: list[bool] = []
        self._flying: list[Message | None] = []  # by slot
        self._refused: list[Message] = []
        self._wake: _Alarm | None = None
        self._wake_ns = -1
        self._rearming = False
        self._latency_ns: int | Callable[[int, int], int] = 0
        self._access_ns: list[int] = []
        shared = list(map(float, shared_bytes_per_s))
        self._use = LinkUse(
            fidelity == "flow", self._latency_of,
            None if route is None else lambda src, dst: [shared[link] for link in route(src, dst)],
        )
        self._add(num_nodes, uplink_bytes_per_s, downlink_bytes_per_s, self._use_latency(latency_s, num_nodes))
        self._shared = [self._core.add_link(capacity) for capacity in shared_bytes_per_s]
        self._route = route
        self._can_multicast = drop_prob == 0 and route is None and not callable(self._latency_ns)

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, messages: Sequence[Message]) -> None:
        """Puts messages on their way at this instant, in this order; one call per sender and moment is the fast way."""
        if not messages:
            return
        now_s, online, header_bytes = self._env.now, self._online, self.header_bytes
        src, payload_bytes = messages[0].src, messages[0].payload_bytes
        alike = self._can_multicast and online[src]
        receivers = []
        for message in messages:
            message.sent_s = now_s
            if message.header_bytes is None:
                message.header_bytes = header_bytes
            dst = message.dst
            receivers.append(dst)
            if message.src != src or message.payload_bytes != payload_bytes or not online[dst] \
                    or message.header_bytes != messages[0].header_bytes:
                alike = False
        if alike:
            slots = self._core.multicast(
                self._now_ns(), src, receivers, payload_bytes, messages[0].header_bytes, self._latency_ns
            )
            flying = self._make_room()
            for message, slot in zip(messages, slots, strict=True):
                message.slot = slot
                flying[slot] = message
        else:
            for message in messages:
                self._launch(message)
        if not self._rearming:
            self._rearm()

    def cancel(self, message: Message) -> bool:
        """Takes a message back; what was sent of it is wasted. False: it was not on its way."""
        if message.slot == ENDED:
            return False
        self._use.wasted("aborted", message.src, self._core.cancel(self._now_ns(), message.slot))
        self._flying[message.slot] = None
        message.slot = ENDED
        self._rearm()
        return True

    def _launch(self, message: Message) -> None:
        if not (self._online[message.src] and self._online[message.dst]):
            self._refused.append(message)
            return
        latency_ns = self._latency_ns
        if callable(latency_ns):
            latency_ns = latency_ns(message.src, message.dst)
        message.lost = self._draw_loss(message)
        size = message.payload_bytes, message.header_bytes
        links = [self._shared[link] for link in self._route(message.src, message.dst)] if self._route else []
        slot = self._core.send(self._now_ns(), message.src, message.dst, *size, latency_ns, message.lost, links)
        message.slot = slot
        self._make_room()[slot] = message

    def _make_room(self) -> list[Message | None]:
        missing = self._core.num_slots - len(self._flying)
        if missing:
            self._flying.extend([None] * missing)
        return self._flying

    def _draw_loss(self, message: Message) -> bool:
        if self._drop_prob == 0 or message.src == message.dst:
            return False
        if message.src not in self._drop_streams:
            self._drop_streams[message.src] = rng.stream(self._seed, "lost messages", message.src)
        return bool(self._drop_streams[message.src].random() < self._drop_prob)

    # -- nodes and links -------------------------------------------------------------------------------------------

    def remove_node(self, node: int) -> None:
        """A node leaves: messages from and to it are aborted at once; what was sent of them is wasted."""
        self._online[node] = False
        aborted = []
        for slot, sent_bytes in self._core.remove_node(self._now_ns(), node):
            aborted.append(self._take(slot))
            self._use.wasted("aborted", aborted[-1].src, sent_bytes)
        self._rearm()
        for message in aborted:
            self._on_abort(message)

    def return_node(self, node: int) -> None:
        """A node that left is there again, with its links as they were."""
        self._online[node] = True

    def add_nodes(self, uplink_bytes_per_s: np.ndarray, downlink_bytes_per_s: np.ndarray, latency_s: np.ndarray):
        """New nodes with the next numbers; latency_s: access latencies, used if the network was made with such."""
        access = np.zeros(len(latency_s), dtype=np.int64) if self._latency_ns != -1 else _to_ns(latency_s)
        self._add(len(uplink_bytes_per_s), uplink_bytes_per_s, downlink_bytes_per_s, access)

    def set_capacity(self, node: int, uplink_bytes_per_s: float, downlink_bytes_per_s: float) -> None:
        """New capacities from this instant on."""
        self._core.set_capacity(self._now_ns(), node, uplink_bytes_per_s, downlink_bytes_per_s)
        self._use.set_capacity(node, uplink_bytes_per_s, downlink_bytes_per_s, self._env.now)
        self._rearm()

    @property
    def num_nodes(self) -> int:
        return self._core.num_nodes

    def _add(self, count: int, uplink: float | np.ndarray, downlink: float | np.ndarray, access_ns: np.ndarray) -> None:
        uplink, downlink = np.broadcast_to(uplink, count), np.broadcast_to(downlink, count)
        self._core.add_nodes(uplink, downlink, access_ns)
        self._use.add_nodes(uplink, downlink, self._env.now)
        self._access_ns += access_ns.tolist()
        self._online += [True] * count

    def _latency_of(self, src: int, dst: int) -> float:
        """Seconds before the first byte of a message."""
        if callable(self._latency_ns):
            return self._latency_ns(src, dst) / NS_PER_S
        latency_ns = self._latency_ns if self._latency_ns >= 0 else self._access_ns[src] + self._access_ns[dst]
        return latency_ns / NS_PER_S

    def _use_latency(self, latency_s: Latency, num_nodes: int) -> np.ndarray:
        """Sets how a message's latency is found; returns the access latencies [N] in ns."""
        access_ns = np.zeros(num_nodes, dtype=np.int64)
        if self._fidelity == "ideal":
            return access_ns
        if callable(latency_s):
            self._latency_ns = lambda src, dst: round(latency_s(src, dst) * NS_PER_S)
            return access_ns
        table_ns = _to_ns(latency_s)
        if table_ns.ndim == 0:
            self._latency_ns = int(table_ns)
        elif table_ns.shape == (num_nodes,):
            self._latency_ns = -1  # the core adds the two access latencies
            return table_ns
        elif table_ns.shape == (num_nodes, num_nodes):
            self._latency_ns = lambda src, dst: int(table_ns[src, dst])
        else:
            raise ValueError(f"latency_s must be one number, [{num_nodes}] or [{num_nodes}, {num_nodes}], "
                             f"got {list(table_ns.shape)}")
        return access_ns

    # -- counters --------------------------------------------------------------------------------------------------

    @property
    def traffic(self) -> Traffic:
        """What was put on the wire until now, per ordered pair of nodes."""
        return with_flying(self._core.traffic(), self._flying_bytes())

    def use(self) -> NodeUse:
        """What became of it, and how full links were until now, per node."""
        return self._use.until(self._env.now, self.traffic)

    def unused(self, message: Message) -> None:
        """A message that has arrived was of no use: its bytes count as wasted."""
        if message.src != message.dst:
            self._core.recount_as_wasted(message.src, message.dst, message.payload_bytes, message.header_bytes)
            self._use.unused(message)

    def bytes_sent(self, node: int) -> int:
        """Bytes this node has put on the wire until now, parts of messages included."""
        return self._core.bytes_sent(self._now_ns(), node)

    def _flying_bytes(self) -> Iterator[tuple[int, int, int]]:
        """(src, dst, bytes on the wire) of messages on their way."""
        if self._fidelity == "flow":
            self._core.bytes_sent(self._now_ns(), 0)  # brings its time up to now
            slots, _, sent_bytes = self._core.rates()
            for slot, num_bytes in zip(slots.tolist(), sent_bytes.tolist(), strict=True):
                yield self._flying[slot].src, self._flying[slot].dst, num_bytes
            return
        for message in self._flying:
            if message is not None and message.src != message.dst:
                yield message.src, message.dst, message.payload_bytes + message.header_bytes

    def utilisation(self) -> tuple[np.ndarray, np.ndarray]:
        """Share of uplinks and of downlinks in use at this instant, two float arrays [N]; 0 where capacity is 0."""
        used, capacity = self._core.load(), self._core.capacities()
        share = np.divide(used, capacity, out=np.zeros(len(used)), where=capacity > 0)
        uplinks = np.array([self._core.uplink(node) for node in range(self.num_nodes)], dtype=int)
        return share[uplinks], share[uplinks + 1]

    # -- simulated time --------------------------------------------------------------------------------------------

    def _now_ns(self) -> int:
        """This instant for the core: never before its own time, never past what it still has to deliver."""
        core = self._core
        now_ns = max(round(self._env.now * NS_PER_S), core.now)
        return now_ns if now_ns == core.now else min(now_ns, core.next_time())

    def _rearm(self) -> None:
        if not self._rearming:
            self._rearming = True
            _Alarm(self._env, 0, self._rearm_now, LATE)

    def _rearm_now(self, _: Any = None) -> None:
        self._rearming = False
        if self._refused:
            refused, self._refused = self._refused, []
            for message in refused:
                self._on_abort(message)
        # SimPy has nothing to do before its next event, so latencies that end earlier need none of their own.
        env = self._env
        quiet_until_s = env.peek()
        quiet_until_ns = int(quiet_until_s * NS_PER_S) - 1 if quiet_until_s < FOREVER_S else 0
        next_ns = self._core.next_time_after_latencies(quiet_until_ns)
        if next_ns == self._wake_ns:
            return
        self._wake_ns = next_ns  # the alarm that was set before finds that it is not the one, and does nothing
        self._wake = None
        if next_ns != NEVER_NS:
            delay_s = next_ns / NS_PER_S - env.now
            self._wake = _Alarm(env, delay_s if delay_s > 0 else 0, self._advance)

    def _advance(self, alarm: _Alarm) -> None:
        if alarm is not self._wake:
            return
        slots = self._core.step(self._wake_ns)
        self._wake, self._wake_ns = None, -1
        # Slots are used again by what the receivers send: all messages are taken out before the first is handed over.
        flying, online, deliver = self._flying, self._online, self._on_delivery
        arrived, now_s = self._use.arrived, self._env.now
        messages = [flying[slot] for slot in slots]
        for slot, message in zip(slots, messages, strict=True):
            flying[slot] = None
            message.slot = ENDED
        for message in messages:
            if online[message.dst] and not message.lost:
                arrived(message, now_s)
                deliver(message)
            else:
                self._miss(message)
        if not self._rearming:
            self._rearm_now()

    def _take(self, slot: int) -> Message:
        message = self._flying[slot]
        self._flying[slot] = None
        message.slot = ENDED
        return message

    def _miss(self, message: Message) -> None:
        """A message whose last byte is through, but which does not arrive."""
        if not message.lost:  # its receiver left at this very instant, on account of a message before it
            if message.src != message.dst:
                self._core.recount_as_wasted(message.src, message.dst, message.payload_bytes, message.header_bytes)
                self._use.wasted("aborted", message.src, message.payload_bytes + message.header_bytes)
            self._on_abort(message)
            return
        self._use.wasted("lost", message.src, message.payload_bytes + message.header_bytes)
        if self._on_drop == "retransmit":
            self._launch(message)
            self._rearm()
        else:
            self._on_abort(message)


def _to_ns(seconds: Any) -> np.ndarray:
    return np.rint(np.asarray(seconds, dtype=float) * NS_PER_S).astype(np.int64)
