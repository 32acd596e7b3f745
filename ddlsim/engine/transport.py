"""The Transport port: messages of all nodes over the simulated network, and answers to pulls and score requests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import simpy

from ddlsim.engine.run_info import PullStore
from ddlsim.engine.secure_rounds import SecureRounds
from ddlsim.network.messages.encoder import MessageEncoder, as_sent, content_bytes, payload_sizes
from ddlsim.network.messages.gaussian import PrivateSender
from ddlsim.network.messages.message import (
    EXCHANGE,
    MOST_NODES,
    PUSH,
    REQUEST,
    RESPONSE,
    SCORE,
    SCORE_REQUEST,
    SECURE,
    Contacts,
    Message,
    PayloadBreakdown,
    to_one,
)
from ddlsim.node.parameters import Deferred

if TYPE_CHECKING:
    from ddlsim.engine.membership import Member
    from ddlsim.engine.run_info import Run, SimulatedClock
    from ddlsim.learning.job_types import Model
    from ddlsim.network.messages.compression import Codec
    from ddlsim.network.network import Network
    from ddlsim.node.ports import Compute
    from ddlsim.scenario.model import Privacy, Protocol, SecureAggregation

ANSWER_TO = {REQUEST: RESPONSE, SCORE_REQUEST: SCORE, EXCHANGE: RESPONSE}


class NetworkTransport:
    """Messages of one run.

    Args:
        network: the links; this object handles arrivals.
        members: all nodes, by id.
        run: see run_info.py.
        clock: see clock.py.
        compute: scores models for other nodes, and encodes parameters.
        protocol: scenario section `protocol`.
        codec: compression of parameters in messages, see network/messages/compression.py; None: no compression.
        privacy: clipping and noise before compression, see network/messages/gaussian.py; None: neither.
        secure: protection of sums, see secure_rounds.py; None: no protection.
        tell: function that records (node, round, name, value) of it.
        released: (node, round), called at each release of parameters under `privacy`.

    Attributes:
        network: the links.
        contents: bytes by message content, see network/messages/message.py.
        contacts: messages of pairs by round, see network/messages/message.py; None if there are too many nodes.
        answer: offer of an exchange -> its answer, by the receiver's algorithm; set by the simulation.
    """

    answer: Callable[[Message], Mapping[str, Any]]

    def __init__(
        self,
        network: "Network",
        members: "Sequence[Member]",
        run: "Run",
        clock: "SimulatedClock",
        compute: "Compute",
        protocol: "Protocol",
        codec: "Codec | None" = None,
        privacy: "Privacy | None" = None,
        secure: "SecureAggregation | None" = None,
        tell: Callable[[int, int, str, int], None] = lambda *_: None,
        released: Callable[[int, int], None] = lambda *_: None,
    ):
        self.contents = PayloadBreakdown()
        self.contacts = Contacts() if len(members) <= MOST_NODES else None
        self.network = network
        self._members = members
        self._run, self._clock, self._compute = run, clock, compute
        self.use_protocol(protocol)
        self.use_codec(codec)
        self._released = released
        self._senders = [] if privacy is None else [self._sender(privacy, node) for node in range(run.num_nodes)]
        self._stores: dict[int, PullStore] = {}
        self._oldest_round, self._oldest_as_of = 0, 0
        self._mailboxes = network.use_mailboxes()
        self._secure: SecureRounds | None = None
        if secure is not None:
            self._secure = SecureRounds(secure, run.server, members, clock, network, self._mailboxes, self._send, tell)
        network.listen(self._delivered, self.fail)

    def use_protocol(self, protocol: "Protocol") -> None:
        """Set the deadline of waits that start from now on."""
        self._deadline_s, self._keep_late = protocol.deadline_s, protocol.late_messages == "keep"
        self._staleness_s = protocol.staleness_s

    def use_codec(self, codec: "Codec | None") -> None:
        """Compress messages from now on with this codec; copies that receivers had cannot be used with it."""
        self._encoders = None if codec is None else [self._encoder(codec, member.id) for member in self._members]

    # -- the port --------------------------------------------------------------------------------------------------

    def push(self, sender: int, receivers: Iterable[int], round_num: int, payload: Mapping[str, Any]) -> None:
        """Send the payload to every receiver."""
        receivers = tuple(receivers)
        self._push(sender, receivers, round_num, self._private(sender, payload, round_num) if receivers else payload)

    def publish(self, node: int, round_num: int, stage: int | None, payload: dict[str, Any]) -> None:
        """Answer pulls with this payload from now on, also waiting pulls."""
        self._store(node).publish(round_num, stage, payload, self._oldest())
        self._answer_waiting(node)

    def pull(
        self,
        node: int,
        peers: Sequence[int],
        round_num: int,
        keys: Sequence[str] | None,
        stages: Mapping[int, int] | None,
    ) -> None:
        """Ask peers for their publications."""
        if stages is None:
            self._send(self._messages(node, peers, round_num, REQUEST, {}, keys))
            return
        asked = [self._messages(node, (peer,), round_num, REQUEST, {"stage": stages[peer]}, keys) for peer in peers]
        self._send([message for messages in asked for message in messages])

    def ask_for_scores(self, node: int, peers: Sequence[int], round_num: int, model: "Model") -> None:
        """Ask peers for the loss of a model on their training samples."""
        payload = self._private(node, {"model": model}, round_num) if peers else {"model": model}
        self._send(self._messages(node, peers, round_num, SCORE_REQUEST, payload))

    def exchange(self, node: int, peers: Sequence[int], round_num: int, payload: Mapping[str, Any]) -> None:
        """Offer the payload to peers; each answers when it arrives."""
        offered = self._private(node, payload, round_num) if peers else payload
        self._send(self._messages(node, peers, round_num, EXCHANGE, offered))

    def starts_with(self, node: int, models: "Sequence[Model]") -> None:
        """Register models that a node has drawn, which contain no information on data."""
        if node < len(self._senders):
            self._senders[node].starts_with(models)

    def sent_in_clear(self, node: int) -> bool:
        """Whether a node has sent parameters without the privacy mechanism."""
        return False

    def wait(self, node: int, kind: str, round_num: int, senders: Iterable[int]) -> simpy.Event:
        """Return an event that happens when all messages that can still arrive have arrived, or at the deadline."""
        if self._secure is not None and kind == PUSH:
            senders = tuple(senders)
            self._secure.waits(node, round_num, senders)
        return self._mailboxes.wait(node, kind, round_num, senders, self._deadline_s)

    def take(self, node: int, kind: str, round_num: int) -> list[Message]:
        """Return the messages of a round after the wait for it."""
        if self._secure is not None and kind == PUSH:
            self._secure.taken(node, round_num)
        return self._mailboxes.take(node, kind, round_num, self._keep_late)

    def has_taken(self, node: int, round_num: int) -> bool:
        """Whether a node has taken pushed messages of this round."""
        return self._members[node].node.last_received_round == round_num

    def take_newest(self, node: int, kind: str, oldest_round: int, newest_round: int) -> list[Message]:
        """Return the newest message of every sender, if it is no older than protocol.staleness_s."""
        taken = self._mailboxes.take_all(node, kind, oldest_round, newest_round)
        if self._staleness_s is None:
            return taken
        oldest_s = self._clock.now_s - self._staleness_s
        for message in taken:
            if message.sent_s < oldest_s:
                self.network.unused(to_one(message, node))
        return [message for message in taken if message.sent_s >= oldest_s]

    # -- nodes that join, leave and finish (for the engine) -------------------------------------------------------

    def opens(self, node: int, round_num: int) -> None:
        """Allow a node to push messages of this round and later ones from now on."""
        self._mailboxes.opens_at(node, round_num)

    def round_closed(self, node: int, next_round: int | None) -> None:
        """Close a round of a node, which continues with `next_round`; None: it never pushes again."""
        self._mailboxes.closed(node, next_round)
        if self._secure is not None:
            self._secure.reconsider(node)

    def stopped(self, node: int) -> None:
        """Stop a node early: its publication answers all pulls of any round from now on."""
        self._store(node).close()
        self._answer_waiting(node)

    def finished(self, node: int) -> None:
        """Finish a node without rounds left: later messages to it are unused, and it publishes nothing more."""
        self._mailboxes.close(node)
        self._turn_away(node)
        if self._secure is not None:
            self._secure.aggregator_left(node)

    def leaves(self, node: int) -> int:
        """Take a node offline: its flows are aborted, its received messages and unanswered pulls are lost.

        Returns:
            Number of messages that were on their way from or to it.
        """
        if self._secure is not None:
            self._secure.aggregator_left(node)
        aborted = self.network.remove_node(node)
        if self._secure is not None:
            self._secure.user_left(node)
        self._turn_away(node)
        self._mailboxes.clear(node)
        return aborted

    def abandons_round(self, node: int) -> None:
        """Stop waiting for messages of a node that has left."""
        self._mailboxes.reconsider(node)
        if self._secure is not None:
            self._secure.reconsider(node)

    def returns(self, node: int) -> None:
        """Bring a node back to the network."""
        self.network.return_node(node)

    def forget(self, node: int) -> None:
        """Forget a node's publications, and its and others' copies of each other's parameters, because it has lost its
        state.
        """
        if node in self._stores:
            self._stores[node].clear()
        if node < len(self._senders):
            self._senders[node].forget()
        if self._encoders is not None:
            self._encoders[node].forget()
            for encoder in self._encoders:
                encoder.forget_receiver(node)

    def waiting_for(self, node: int) -> list[tuple[str, int, list[int]]]:
        """Return the kind of message that a node waits for, its round, and the nodes."""
        return [
            (what, round_num, senders)
            for kind, what in ((PUSH, "messages"), (RESPONSE, "answers to its pulls"), (SCORE, "scores"))
            for round_num, senders in sorted(self._mailboxes.waiting_for(node, kind).items())
        ]

    def fail(self, message: Message) -> None:
        """End the wait for a message that will never arrive, or for the answer to it."""
        if message.kind == SECURE:
            if self._secure is not None:
                self._secure.failed(message)
        elif message.kind in ANSWER_TO:
            self._mailboxes.fail(message.src, ANSWER_TO[message.kind], message.receiver, message.round_num)
        else:
            self._mailboxes.fail(message.receiver, message.kind, message.src, message.round_num)
            if self._secure is not None and message.kind == PUSH:  # withheld: no key was advertised
                self._secure.failed(message)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _push(self, sender: int, receivers: tuple[int, ...], round_num: int, payload: Mapping[str, Any]) -> None:
        """Send the permitted part of a payload to every receiver."""
        if self._secure is not None and self._secure.masks(sender):
            self._secure.contribute(sender, receivers, round_num, payload)
        elif self._encoders is not None:
            self._send(self._messages(sender, receivers, round_num, PUSH, payload))
        elif receivers:
            self._send([self._plain_message(sender, receivers, round_num, PUSH, payload)])

    def _send(self, messages: list[Message]) -> None:
        """Hand messages to the network; nothing can be sent to an offline node."""
        if self.network.num_away:
            messages = [reachable for message in messages if (reachable := self._to_those_online(message))]
        self.network.add_headers(messages)
        self.contents.count(messages)
        if self.contacts is not None:
            self.contacts.count(messages)
        self.network.send(messages)

    def _to_those_online(self, message: Message) -> Message | None:
        receivers, members = message.receivers, self._members
        online = tuple(receiver for receiver in receivers if members[receiver].online)
        if len(online) == len(receivers):
            return message
        for receiver in (receiver for receiver in receivers if not members[receiver].online):
            self.fail(to_one(message, receiver))
        return replace(message, dst=online) if online else None

    def _messages(
        self,
        sender: int,
        receivers: Iterable[int],
        round_num: int,
        kind: str,
        payload: Mapping[str, Any],
        keys: Sequence[str] | None = None,
    ) -> list[Message]:
        receivers = tuple(receivers)
        if not receivers:
            return []
        if self._encoders is None:
            return [self._plain_message(sender, receivers, round_num, kind, payload, keys)]
        packed = self._encoders[sender].pack(payload, self._stream_for(sender, receivers))
        header_bytes, streams, messages = self.network.header_bytes, packed.streams, []
        for receiver in receivers:
            sizes = packed.sizes_to(receiver)
            size = sum(num_bytes for _, num_bytes in sizes)
            messages.append(
                Message(
                    sender, receiver, round_num, kind, packed.payload, size, header_bytes, streams, keys, sizes=sizes
                )
            )
        return messages

    def _stream_for(self, sender: int, receivers: tuple[int, ...]) -> int | None:
        """Return the receiver with separate copies of a node's messages; None: all receivers share the same."""
        return None

    def _plain_message(
        self,
        sender: int,
        receivers: tuple[int, ...],
        round_num: int,
        kind: str,
        payload: Mapping[str, Any],
        keys: Sequence[str] | None = None,
    ) -> Message:
        """Return one message to all receivers, with unencoded parameters."""
        header_bytes = self.network.header_bytes
        if len(payload) == 1:  # nearly always
            (content,) = payload.values()
            size = content_bytes(content)
            return Message(sender, receivers, round_num, kind, payload, size, header_bytes, keys=keys)
        sizes = payload_sizes(payload)
        size = sum(num_bytes for _, num_bytes in sizes)
        return Message(sender, receivers, round_num, kind, payload, size, header_bytes, keys=keys, sizes=sizes)

    def _encoder(self, codec: "Codec", node: int) -> MessageEncoder:
        return MessageEncoder(
            codec, self._compute.compress, lambda: int(self._run.rng("compression", node).integers(2**63 - 1))
        )

    def _private(self, sender: int, payload: Mapping[str, Any], round_num: int) -> Mapping[str, Any]:
        """Return the permitted part of a payload; a server has no data."""
        return self._senders[sender].protect(payload) if sender < len(self._senders) else payload

    def _sender(self, privacy: "Privacy", node: int) -> PrivateSender:
        return PrivateSender(
            privacy.clip,
            privacy.noise_multiplier,
            privacy.clips == "update",
            self._compute.compress,
            lambda: int(self._run.rng("privacy noise", node).integers(2**63 - 1)),
            lambda: self._released(node, self._members[node].node.round_num),
        )

    # -- what arrives ----------------------------------------------------------------------------------------------

    def _delivered(self, message: Message) -> None:
        for copies, version in message.streams:
            copies.reached(message.receiver, version)
        if message.kind == SECURE and self._secure is not None:
            self._secure.arrived(message)
        elif message.kind == REQUEST:
            self._answer(message)
        elif message.kind == SCORE_REQUEST:
            self._score(message)
        elif message.kind == EXCHANGE:
            node, payload = message.receiver, self._answer_to_offer(message)
            self._send(self._messages(node, (message.src,), message.round_num, RESPONSE, payload))
        else:  # the mailbox knows which messages are too late
            self._mailboxes.deliver(message)

    def _oldest(self) -> int:
        """Return the earliest round of an online node: pulls ask for no earlier one. Computed once a round.

        `completed_by_all` can be later: a node that returns may be in an earlier round.
        """
        completed = self._run.completed_by_all
        if completed > self._oldest_as_of:
            rounds = (member.round_num for member in self._members if member.online and not member.finished)
            self._oldest_round, self._oldest_as_of = min(rounds, default=completed), completed
        return self._oldest_round

    def _store(self, node: int) -> PullStore:
        if node not in self._stores:
            self._stores[node] = PullStore(self._run.in_step)
        return self._stores[node]

    def _answer(self, request: Message) -> None:
        """Answer a peer's pull, or keep it until the node has published for that round."""
        node = request.receiver
        payload = self._store(node).answer_to(request)
        if payload is None:
            self._store(node).wait(request, self._members[request.src].stay)
            if self._members[node].finished:  # it arrived when no round was left for it
                self._turn_away(node)
            return
        if request.keys is not None:
            payload = {key: payload[key] for key in request.keys if key in payload}
        answer = self._private(node, payload, request.round_num)
        self._send(self._messages(node, (request.src,), request.round_num, RESPONSE, answer))

    def _answer_to_offer(self, offer: Message) -> Mapping[str, Any]:
        """Send the permitted part of the answer of the receiver's algorithm."""
        return self._private(offer.receiver, as_sent(self.answer(offer)), offer.round_num)

    def _answer_waiting(self, node: int) -> None:
        for request, stay in self._store(node).take_waiting():
            if self._still_asks(request, stay):
                self._answer(request)
            else:
                self.network.unused(request)

    def _turn_away(self, node: int) -> None:
        """Reject the pulls that a node has not answered."""
        for request, stay in self._stores[node].take_waiting() if node in self._stores else ():
            self.network.unused(request)
            if self._still_asks(request, stay):
                self.fail(request)

    def _still_asks(self, request: Message, stay: int) -> bool:
        """Whether the sender of a request has not left since: a node that returns asks again."""
        asker = self._members[request.src]
        return asker.online and asker.stay == stay

    def _score(self, request: Message) -> None:
        """Compute a peer's model on the training samples, and send the loss when the node's device has finished."""
        compute, member = self._compute, self._members[request.receiver]
        stay, asked_in = member.stay, self._members[request.src].stay
        batches = compute.batches_in("train", member.id)
        rng = self._run.rng("scoring batches", member.id) if compute.draws_numbers else None
        job = compute.losses(member.id, [request.payload["model"]], batches, rng, local_state=member.node.local_state)
        loss = Deferred(lambda: compute.value(job)[0])

        def scored(_: simpy.Event) -> None:
            if member.online and member.stay == stay and self._still_asks(request, asked_in):
                self._send(self._messages(member.id, (request.src,), request.round_num, SCORE, {"loss": loss}))
            else:
                self.network.unused(request)

        duration_s = self._clock.computing_s(member.id, 0.0, batches)
        self._clock.after(duration_s).callbacks.append(scored)
