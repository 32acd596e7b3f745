"""Messages between nodes in simulated time: the engine's only interface to the flow network (csrc/flow/flow_network.h).

Python uses SimPy's float of seconds; the flow network uses whole nanoseconds. A time enters rounded to the nearest
nanosecond and leaves as ns / 1e9, which returns to the same nanosecond up to 2^50 ns (13 simulated days); later the
resolution is that of a float of seconds, and a time is moved to the nearest one that keeps events in order.

SimPy drives everything. The network has at most one pending event in SimPy's queue: its next completion, or, if
completions before SimPy's next event end no wait, the first that does. Every change of rates (a message is sent, a node
leaves, a capacity changes) requests one at the end of the same instant, so all changes of an instant are solved
together. Messages that end go into mailboxes in C++, in batches; Python is called when a wait of a process is over, and
for messages that it handles itself.

Order at one instant:

1. all events of SimPy, including those triggered at this instant; 2. `on_abort` for messages that could not be sent; 3.
the network's completions, as one batch. Processes whose waits it ends resume in this order: first those whose last
message Python handled (it brings a copy up to date, see encoder.py), then those whose last message went into a mailbox
in C++, then those whose message was lost; each group in order of sending. Then again from 1.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import simpy

from ddlsim.foundation import rng
from ddlsim.foundation.native import extension
from ddlsim.network.flows import LATE, LATEST, Bursts, ScheduledCall, Traffic, exact_delay, with_flying
from ddlsim.network.latencies import OF_BOTH_ENDS, Latencies, Latency, latencies
from ddlsim.network.link_use import KINDS, NodeUse, bytes_within, node_use
from ddlsim.network.mailboxes import Mailboxes, succeed
from ddlsim.network.messages.message import BOXES, Message, to_one
from ddlsim.network.tcp import MIN_RTO_S, Tcp, TcpPaths

FOREVER_S = float("inf")
NEVER_NS = 2**63 - 1
NOWHERE = -1

Fidelity = Literal["flow", "tcp", "latency", "ideal"]


class Network:
    """The links of all nodes and every message on its way.

    A message waits for its latency, then shares uplink and downlink max-min fairly with the others (`flow`; `tcp` adds
    what tcp.py says), or arrives after the latency alone (`latency`), or at the same instant (`ideal`). A node's
    message to itself arrives at the same instant and is not counted.

    Args:
        env: the simulation's; an ordinary one.
        num_nodes: N.
        uplink_bytes_per_s, downlink_bytes_per_s: capacities, [N] or one for all; 0 stalls the messages on the link.
        latency_s: one-way, before the first byte, see latencies.py.
        fidelity: flow, tcp, latency or ideal.
        header_bytes: header added to messages that do not specify their own.
        on_delivery: called with each message that arrives and does not go into a mailbox, in order of (time, sending).
        on_abort: called with each message that will never arrive: one end left (at once), one end was offline when it
            was sent (same instant), it was dropped (when its last byte would have arrived) or given up. Of a message to
            several nodes, once for each that does not get it, with that one as its receiver.
        drop_prob: chance that a message is lost on its way; its bytes are sent, and wasted.
        bursts: loss model that gives this chance over time; None: constant chance.
        on_drop: reaction to a loss: the whole message is sent again at once, or nothing.
        timeout_s: a message that has not arrived so long after it was first sent is given up: its sent bytes are wasted
            and nothing follows. None: no limit.
        seed: seed of the losses.
        shared_bytes_per_s: capacities of links that several nodes share, [L].
        route: (src, dst) -> which of them (indices) a message crosses between its sender's uplink and its receiver's
            downlink.
        site_bytes_per_s: base of utilization for nodes without an own link, see LinkTable.
        tcp: additions of fidelity `tcp` to `flow`.

    Attributes:
        followed: future changes of capacity, see access_links.py.
        num_failed: number of messages that never arrived.
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
        on_delivery: Callable[[Message], None] = lambda _: None,
        on_abort: Callable[[Message], None] = lambda _: None,
        drop_prob: float = 0.0,
        bursts: Bursts | None = None,
        on_drop: Literal["retransmit", "drop"] = "retransmit",
        timeout_s: float | None = None,
        seed: int = 0,
        shared_bytes_per_s: Sequence[float] = (),
        route: Callable[[int, int], Sequence[int]] | None = None,
        site_bytes_per_s: np.ndarray | None = None,
        tcp: Tcp | None = None,
    ):
        self.header_bytes = header_bytes
        self.followed: Sequence[Any] = ()
        self.num_away = 0
        self.num_failed = 0
        self._env = env
        self._takes_time, self._is_ideal = fidelity in ("flow", "tcp"), fidelity == "ideal"
        self._on_delivery, self._on_abort = on_delivery, on_abort
        self._drop_prob, self._on_drop, self._seed = drop_prob, on_drop, seed
        self._bursts = bursts
        self._drop_streams: dict[int, np.random.Generator] = {}
        self._transport = extension().Transport(self._takes_time)
        self._set_timeout(timeout_s)
        self._core = self._transport.network
        self._kinds = {kind: (fate, NOWHERE) for kind, fate in KINDS.items()}
        self._refused: list[Message] = []
        self._latencies = latencies(0.0 if self._is_ideal else latency_s, num_nodes)
        tcp = (tcp or Tcp()) if fidelity == "tcp" else None
        self._filled = 1.0 if tcp is None else tcp.utilization
        links = [np.broadcast_to(links, num_nodes) for links in (uplink_bytes_per_s, downlink_bytes_per_s)]
        capacities = links if self._filled == 1 else [self._filled * each for each in links]
        self._transport.add_nodes(*capacities, self._latencies.access_ns, env.now)
        self._paths: TcpPaths | None = None
        if tcp is not None:
            self._paths = TcpPaths(tcp, self._one_way_ns, seed)
            self._core.use_windows(tcp.first_window_bytes, round(MIN_RTO_S * 1e9))
        self._shared_bytes_per_s = [self._filled * capacity for capacity in shared_bytes_per_s]
        self._shared = [self._core.add_link(capacity) for capacity in self._shared_bytes_per_s]
        self._route, self._sites = route, site_bytes_per_s
        self._within = np.zeros((2, 1))  # bytes as in link_use.py, more than from current routes
        for node in range(num_nodes if site_bytes_per_s is not None else 0):
            self._measure_by_site(node, links[0][node], links[1][node])
        self._all_alike = self._sees_all_alike()
        self._alarm: ScheduledCall | None = None
        self._alarm_s = FOREVER_S

    def listen(self, on_delivery: Callable[[Message], None], on_abort: Callable[[Message], None]) -> None:
        """Set the functions to call from now on, as described above."""
        self._on_delivery, self._on_abort = on_delivery, on_abort

    # -- messages --------------------------------------------------------------------------------------------------

    def use_mailboxes(self) -> Mailboxes:
        """From now on put messages whose kind has a mailbox there, unless their `streams` have a listener."""
        self._kinds |= {kind: (KINDS.get(kind, NOWHERE), box) for kind, box in BOXES.items()}
        return Mailboxes(self._transport, self._env)

    def add_headers(self, messages: Sequence[Message]) -> None:
        """Add the headers of TCP's segments, with fidelity `tcp`; once, before messages are counted and sent."""
        if self._paths is None:
            return
        for message in messages:
            own = self.header_bytes if message.header_bytes is None else message.header_bytes
            message.header_bytes = own + self._paths.tcp.headers(message.payload_bytes + own)

    def send(self, messages: Sequence[Message]) -> None:
        """Send messages at this instant, in this order; a payload for several nodes is best sent as one message."""
        now_s = self._env.now
        if now_s < self._alarm_s:
            self._look_at(now_s)
        if self._all_alike:
            refused = self._transport.send(now_s, messages, self.header_bytes, self._kinds, self._latencies.of_all_ns)
            for message, receiver in refused:
                self._refuse(message, receiver)
            return
        for message in messages:
            message.sent_s = now_s
            if message.header_bytes is None:
                message.header_bytes = self.header_bytes
            for receiver in message.receivers:
                self._launch(message, receiver)

    def _launch(self, message: Message, receiver: int, again: bool = False) -> None:
        src = message.src
        lost = (self._drop_prob > 0 or self._bursts is not None) and self._draw_loss(src, receiver)
        crossed = self._route(src, receiver) if self._route else ()
        of_tcp = {} if self._paths is None else self._over_tcp(message, receiver)
        latency_ns = self._latencies.of(src, receiver) if self._paths is None else self._paths.latency_ns(src, receiver)
        sent = self._transport.send_routed(
            self._env.now,
            message,
            receiver,
            self._kinds,
            latency_ns,
            again,
            lost,
            [self._shared[link] for link in crossed],
            min((self._shared_bytes_per_s[link] for link in crossed), default=FOREVER_S),
            **of_tcp,
        )
        if not sent:
            self._refuse(message, receiver)

    def _over_tcp(self, message: Message, receiver: int) -> dict[str, Any]:
        """Return a message's weight, its window, and its acknowledgements."""
        assert self._paths is not None
        src, paths = message.src, self._paths
        num_bytes = message.payload_bytes + (message.header_bytes or 0)
        back = self._route(receiver, src) if self._route else ()
        return {
            "weight": paths.weight(src, receiver),
            "ack_bytes": paths.tcp.acks(num_bytes),
            "ack_links": [self._shared[link] for link in back],
            "in_order": paths.tcp.connections == "persistent",
            "round_trip_ns": paths.window_ns(src, receiver),
        }

    def _one_way_ns(self, src: int, dst: int) -> int:
        found = self._latencies.of(src, dst)
        access_ns = self._latencies.access_ns
        return int(access_ns[src] + access_ns[dst]) if found == OF_BOTH_ENDS else found

    def _refuse(self, message: Message, receiver: int) -> None:
        if not self._refused:
            ScheduledCall(self._env, self._abort_refused, 0, LATE)
        self._refused.append(to_one(message, receiver))

    def _abort_refused(self, _: Any) -> None:
        refused, self._refused = self._refused, []
        for message in refused:
            self._abort(message)

    def _abort(self, message: Message) -> None:
        self.num_failed += 1
        self._on_abort(message)

    def _is_sent_again(self, lost: Message) -> bool:
        if self._on_drop != "retransmit" or self._timeout_ns is None:
            return self._on_drop == "retransmit"
        return round(self._env.now * 1e9) < round(lost.sent_s * 1e9) + self._timeout_ns

    def _draw_loss(self, src: int, receiver: int) -> bool:
        if src == receiver or not (self._transport.online(src) and self._transport.online(receiver)):
            return False
        if src not in self._drop_streams:
            self._drop_streams[src] = rng.stream(self._seed, "lost messages", src)
        chance = self._drop_prob if self._bursts is None else self._bursts.chance(src, self._env.now)
        return bool(self._drop_streams[src].random() < chance)

    # -- nodes and links -------------------------------------------------------------------------------------------

    def remove_node(self, node: int) -> int:
        """Remove a node: messages from and to it are aborted at once; their sent bytes are wasted.

        Returns:
            Number of aborted messages.
        """
        self._look_at(self._env.now)
        self.num_away += self._transport.online(node)
        aborted = self._transport.remove_node(self._env.now, node)
        for message, receiver in aborted:
            self._abort(to_one(message, receiver))
        return len(aborted)

    def return_node(self, node: int) -> None:
        """Return a node to the network, with its previous links."""
        self.num_away -= not self._transport.online(node)
        self._transport.return_node(node)

    def set_capacity(self, node: int, uplink_bytes_per_s: float, downlink_bytes_per_s: float) -> None:
        """Set capacities from this instant on."""
        self._look_at(self._env.now)
        uplink, downlink = self._filled * uplink_bytes_per_s, self._filled * downlink_bytes_per_s
        self._transport.set_capacity(self._env.now, node, uplink, downlink)
        self._measure_by_site(node, uplink_bytes_per_s, downlink_bytes_per_s)

    def use_links(
        self,
        uplink_bytes_per_s: np.ndarray,
        downlink_bytes_per_s: np.ndarray,
        latency_s: Latency,
        shared_bytes_per_s: Sequence[float] = (),
        route: Callable[[int, int], Sequence[int]] | None = None,
        site_bytes_per_s: np.ndarray | None = None,
    ) -> None:
        """Replace the links from this instant on, with arguments as for a new network.

        Messages that have been sent keep their latency and the shared links that they cross.
        """
        self._use_sites(site_bytes_per_s, route)
        for node, (uplink, downlink) in enumerate(zip(uplink_bytes_per_s, downlink_bytes_per_s, strict=True)):
            self.set_capacity(node, float(uplink), float(downlink))
        found = latencies(0.0 if self._is_ideal else latency_s, self.num_nodes)
        if found.of_all_ns == OF_BOTH_ENDS:  # the core keeps the access latencies that a node was added with
            access_ns = found.access_ns.tolist()
            found = Latencies(found.access_ns, of_pair_ns=lambda src, dst: access_ns[src] + access_ns[dst])
        self._latencies = found
        self._shared_bytes_per_s = [self._filled * capacity for capacity in shared_bytes_per_s]
        self._shared = [self._core.add_link(capacity) for capacity in self._shared_bytes_per_s]
        self._route = route
        self._all_alike = self._sees_all_alike()

    def _use_sites(
        self, site_bytes_per_s: np.ndarray | None, route: Callable[[int, int], Sequence[int]] | None
    ) -> None:
        """Base utilization on the links to these sites from now on; set capacities afterwards."""
        if self._sites is not None or site_bytes_per_s is not None:
            traffic = self.traffic
            until_now = bytes_within(traffic, self._route, self._sites)
            self._within = self._within + until_now - bytes_within(traffic, route, site_bytes_per_s)
        self._sites = site_bytes_per_s

    def _measure_by_site(self, node: int, uplink_bytes_per_s: float, downlink_bytes_per_s: float) -> None:
        """Base utilization from now on: the links to a node's site, or its own links if these limit it."""
        if self._sites is None:
            return
        sites = self._sites[:, node]
        up, down = np.where(np.isfinite(sites), sites, (uplink_bytes_per_s, downlink_bytes_per_s)) * self._filled
        self._transport.measure_by(self._env.now, node, float(up), float(down))

    def use_losses(
        self,
        drop_prob: float,
        on_drop: Literal["retransmit", "drop"],
        timeout_s: float | None,
        bursts: Bursts | None = None,
    ) -> None:
        """Replace the loss model for messages sent from now on."""
        self._drop_prob, self._on_drop, self._bursts = drop_prob, on_drop, bursts
        self._set_timeout(timeout_s)
        self._all_alike = self._sees_all_alike()

    def _set_timeout(self, timeout_s: float | None) -> None:
        self._timeout_ns = None if timeout_s is None else round(timeout_s * 1e9)
        self._transport.set_timeout(NEVER_NS if self._timeout_ns is None else self._timeout_ns)

    def _sees_all_alike(self) -> bool:
        """Whether all copies of a message travel in the same way, so that they can be sent in one call."""
        return (
            self._drop_prob == 0
            and self._bursts is None
            and self._route is None
            and self._latencies.of_pair_ns is None
            and self._paths is None
        )

    @property
    def num_nodes(self) -> int:
        return self._core.num_nodes

    @property
    def num_sending(self) -> int:
        """Number of messages that share bandwidth at this instant, after their latency."""
        return len(self._core.rates()[0])

    # -- counters --------------------------------------------------------------------------------------------------

    def abort_all(self) -> int:
        """Abort all messages on their way without calling anything; return their number. For the end of a run."""
        aborted = [pair for node in range(self.num_nodes) for pair in self._transport.remove_node(self._env.now, node)]
        return len(self._refused) + sum(message.src != receiver for message, receiver in aborted)

    @property
    def traffic(self) -> Traffic:
        """Return the bytes put on the wire until now, per ordered pair of nodes."""
        return with_flying(self._core.traffic(), self._transport.flying(self._env.now), self.num_nodes)

    def use(self, traffic: Traffic | None = None) -> NodeUse:
        """Return the use of these bytes, and the utilization of links until now, per node.

        Args:
            traffic: current traffic, if the caller already has it; sorting all pairs is slow.
        """
        traffic = self.traffic if traffic is None else traffic
        within = self._within + bytes_within(traffic, self._route, self._sites)
        return node_use(self._transport.account(), traffic, self._env.now, self._takes_time, self._filled, within)

    def unused(self, message: Message) -> None:
        """Count the bytes of an arrived message to one node as wasted, because it was not used."""
        kind = KINDS.get(message.kind, NOWHERE)
        self._transport.unused(message.src, message.dst, kind, message.payload_bytes, message.header_bytes)

    def bytes_sent(self, node: int) -> int:
        """Return the bytes that this node has put on the wire until now, including parts of messages."""
        return self._transport.bytes_sent(self._env.now, node)

    def all_bytes_sent(self) -> int:
        """Return the bytes that all nodes have put on the wire until now, including parts of messages."""
        return self._transport.all_bytes_sent(self._env.now)

    # -- completions ----------------------------------------------------------------------------------------------

    def _look_at(self, time_s: float) -> None:
        """Ensure that `_go_on` is called at the end of this instant or earlier."""
        if time_s >= self._alarm_s:
            return
        delay_s = exact_delay(self._env.now, time_s)
        # A later alarm remains in SimPy's queue, which cannot remove it, and is ignored.
        self._alarm, self._alarm_s = ScheduledCall(self._env, self._go_on, delay_s, LATEST), self._env.now + delay_s

    def _go_on(self, alarm: ScheduledCall) -> None:
        """Handle the completions of this instant, after all its other events."""
        if alarm is not self._alarm:
            return
        self._alarm, self._alarm_s = None, FOREVER_S
        env = self._env
        next_s = self._transport.run_ahead(env.now, env.peek())
        if next_s <= env.now:
            news, woken = self._transport.take_news()
            self._handle(news, woken)
            next_s = env.now  # after resumed processes have finished their work of this instant
        if next_s < FOREVER_S:
            self._look_at(next_s)

    def _handle(self, news: list[tuple[Message, int, bool, bool]], woken: list[simpy.Event]) -> None:
        """Handle ended messages that have no mailbox, were lost or given up: (message, receiver, lost, overdue).

        `woken`: the events of waits ended by messages in mailboxes. For the order see above.
        """
        dropped = []
        for i, (message, receiver, lost, overdue) in enumerate(news):
            if lost and not overdue and self._is_sent_again(message):
                self._launch(message, receiver, again=True)
            elif lost or overdue:
                dropped.append(to_one(message, receiver))
            elif self._transport.arrived(i, self._env.now):
                self._on_delivery(to_one(message, receiver))
            else:  # its receiver left at this instant, because of an earlier message
                self._abort(to_one(message, receiver))
        succeed(woken)
        for message in dropped:
            self._abort(message)
