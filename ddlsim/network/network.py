"""Messages between nodes in simulated time: the engine's only interface to the flow network (csrc/flow/flow_network.h).

Python uses SimPy's float of seconds; the flow network uses whole nanoseconds. A time enters rounded to the nearest
nanosecond and leaves as ns / 1e9, which returns to the same nanosecond up to 2^50 ns (13 simulated days); later the
resolution is limited by a float of seconds, and a time is moved to the nearest one that keeps events in order.

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

from collections.abc import Callable, Generator, Sequence
from functools import cache, partial
from typing import Any, Literal

import simpy

from ddlsim.foundation import rng
from ddlsim.foundation.native import extension
from ddlsim.network.link_settings import FOREVER_S, NO_LOSSES, LinkSettings, Losses
from ddlsim.network.link_table import CapacityChange, LinkTable
from ddlsim.network.link_use import KINDS, NodeUse, Traffic, node_use, with_flying
from ddlsim.network.mailboxes import Mailboxes, succeed
from ddlsim.network.messages.message import BOXES, Message, to_one
from ddlsim.network.scheduled_calls import LATE, LATEST, ScheduledCall, exact_delay
from ddlsim.network.tcp import MIN_RTO_S, TcpPaths
from ddlsim.scenario.network_sections import Tcp

NOWHERE = -1

Fidelity = Literal["flow", "tcp", "latency", "ideal"]


class Network:
    """The links of all nodes and every message on its way.

    A message waits for its latency, then shares uplink and downlink max-min fairly with the others (`flow`; `tcp` adds
    the effects in tcp.py), or arrives after the latency alone (`latency`), or at the same instant (`ideal`). A node's
    message to itself arrives at the same instant and is not counted.

    Args:
        env: SimPy's environment of the simulation.
        links: links of all nodes; their changes of capacity are applied at their time.
        fidelity: flow, tcp, latency or ideal.
        header_bytes: header added to messages that do not specify their own.
        on_delivery: called with each message that arrives and does not go into a mailbox, in order of (time, sending).
        on_abort: called with each message that will never arrive: one end left (at once), one end was offline when it
            was sent (same instant), it was dropped (when its last byte would have arrived) or given up. Of a message to
            several nodes, once for each that does not get it, with that one as its receiver.
        losses: messages that are lost on their way or given up.
        seed: seed of the losses.
        tcp: additions of fidelity `tcp` to `flow`.

    Attributes:
        num_offline: number of offline nodes.
        last_sent_s: when messages were last sent.
        num_failed: number of messages that never arrived.
    """

    def __init__(
        self,
        env: simpy.Environment,
        links: LinkTable,
        *,
        fidelity: Fidelity = "flow",
        header_bytes: int = 0,
        on_delivery: Callable[[Message], None] = lambda _: None,
        on_abort: Callable[[Message], None] = lambda _: None,
        losses: Losses = NO_LOSSES,
        seed: int = 0,
        tcp: Tcp | None = None,
    ):
        self.header_bytes = header_bytes
        self.num_nodes = links.num_nodes
        self.num_offline, self.last_sent_s = 0, 0.0
        self.num_failed = 0
        self._env = env
        self._takes_time = fidelity in ("flow", "tcp")
        self.listen(on_delivery, on_abort)
        self._drop_stream = cache(partial(rng.stream, seed, "lost messages"))
        self._kinds = {kind: (fate, NOWHERE) for kind, fate in KINDS.items()}
        self._refused: list[Message] = []
        self._transport = extension().Transport(self._takes_time)
        self._core = self._transport.network
        tcp = (tcp or Tcp()) if fidelity == "tcp" else None
        share = 1.0 if tcp is None else tcp.utilization
        self._links = LinkSettings(env, self._transport, links, share, fidelity == "ideal")
        self._paths: TcpPaths | None = None
        if tcp is not None:
            self._paths = TcpPaths(tcp, lambda src, dst: self._links.latencies.one_way_ns(src, dst), seed)
            self._core.use_windows(tcp.first_window_bytes, round(MIN_RTO_S * 1e9))
        self.use_losses(losses)
        self._alarm: ScheduledCall | None = None
        self._alarm_s = FOREVER_S
        if links.changes:
            self.follow(links.changes)

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
        now_s = self.last_sent_s = self._env.now
        if now_s < self._alarm_s:
            self._look_at(now_s)
        if self._all_alike:
            refused = self._transport.send(now_s, messages, self.header_bytes, self._kinds, self._latency_ns)
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
        src, paths, links = message.src, self._paths, self._links
        lost = self._losses.possible and self._draw_loss(src, receiver)
        of_tcp: dict[str, Any] = {}
        if paths is not None:
            num_bytes = message.payload_bytes + (message.header_bytes or 0)
            of_tcp = paths.options(src, receiver, num_bytes, links.shared_links(receiver, src)[0])
        latency_ns = links.latencies.of(src, receiver) if paths is None else paths.latency_ns(src, receiver)
        shared = links.shared_links(src, receiver)
        if not self._transport.send_routed(
            self._env.now, message, receiver, self._kinds, latency_ns, again, lost, *shared, **of_tcp
        ):
            self._refuse(message, receiver)

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

    def _draw_loss(self, src: int, receiver: int) -> bool:
        if src == receiver or not (self._transport.online(src) and self._transport.online(receiver)):
            return False
        return bool(self._drop_stream(src).random() < self._losses.chance(src, self._env.now))

    # -- nodes and links -------------------------------------------------------------------------------------------

    def remove_node(self, node: int) -> int:
        """Remove a node: messages from and to it are aborted at once; their sent bytes are wasted.

        Returns:
            Number of aborted messages.
        """
        self._look_at(self._env.now)
        self.num_offline += self._transport.online(node)
        aborted = self._transport.remove_node(self._env.now, node)
        for message, receiver in aborted:
            self._abort(to_one(message, receiver))
        return len(aborted)

    def return_node(self, node: int) -> None:
        """Return a node to the network, with its previous links."""
        self.num_offline -= not self._transport.online(node)
        self._transport.return_node(node)

    def set_capacity(self, node: int, uplink_bytes_per_s: float, downlink_bytes_per_s: float) -> None:
        """Set capacities from this instant on."""
        self._look_at(self._env.now)
        self._links.set_capacity(node, uplink_bytes_per_s, downlink_bytes_per_s)

    def follow(self, changes: Sequence[CapacityChange]) -> None:
        """Apply changes of capacity at their time, and past changes at once, instead of the previous ones."""
        self._followed = changes
        self._env.process(self._apply(changes))

    def _apply(self, changes: Sequence[CapacityChange]) -> Generator[simpy.Event, Any, None]:
        for change in changes:
            if change.time_s > self._env.now:
                yield self._env.timeout(change.time_s - self._env.now)
            if self._followed is not changes:
                return
            self.set_capacity(change.node, change.uplink_bytes_per_s, change.downlink_bytes_per_s)

    def use_links(self, links: LinkTable) -> None:
        """Replace the links of all nodes, and their changes, from this instant on."""
        self._look_at(self._env.now)
        self._links.use(links, self.traffic)
        self.follow(links.changes)
        self._compare_routes()

    def use_losses(self, losses: Losses) -> None:
        """Replace the loss model for messages sent from now on."""
        self._losses = losses
        self._transport.set_timeout(losses.timeout_ns)
        self._compare_routes()

    def _compare_routes(self) -> None:
        """Determine whether all copies of a message travel in the same way, so that they can be sent in one call."""
        latencies, has_routes = self._links.latencies, self._links.table.route is not None
        separate = self._losses.possible or has_routes or latencies.of_pair_ns is not None or self._paths is not None
        self._all_alike, self._latency_ns = not separate, latencies.of_all_ns

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
        account, links = self._transport.account(), self._links
        return node_use(account, traffic, self._env.now, self._takes_time, links.share, links.within(traffic))

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
        """Ensure that `_handle_completions` is called at the end of this instant or earlier."""
        if time_s >= self._alarm_s:
            return
        delay_s = exact_delay(self._env.now, time_s)
        # A later alarm remains in SimPy's queue, which cannot remove it, and is ignored.
        self._alarm = ScheduledCall(self._env, self._handle_completions, delay_s, LATEST)
        self._alarm_s = self._env.now + delay_s

    def _handle_completions(self, alarm: ScheduledCall) -> None:
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
            if lost and not overdue and self._losses.is_sent_again(message.sent_s, self._env.now):
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
