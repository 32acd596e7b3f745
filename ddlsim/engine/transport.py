"""The Transport port: messages of all nodes over the simulated network."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import simpy

from ddlsim.engine.answers import ANSWER_TO, AnswerService
from ddlsim.engine.clock import RunParts, SimulatedClock
from ddlsim.engine.collectives import Collectives
from ddlsim.engine.packing import MessagePacker
from ddlsim.engine.secure_rounds import SecureRounds
from ddlsim.engine.time_use import TimeUse, end_period_of
from ddlsim.foundation.errors import DdlsimError
from ddlsim.network.messages import message as kinds
from ddlsim.network.messages.encoder import Payload
from ddlsim.network.messages.message import MOST_NODES, Contacts, Keys, Message, Nodes, PayloadBreakdown, to_one
from ddlsim.node.ports import CollectiveCall, Model, Ports
from ddlsim.scenario.network_sections import SecureAggregation
from ddlsim.scenario.sections import Protocol

WAITED_FOR = {kinds.PUSH: "messages", kinds.RESPONSE: "answers to its pulls", kinds.SCORE: "scores"}


class NetworkTransport:
    """Messages of one run.

    Args:
        parts: objects of the run; this object handles the network's arrivals.
        packer: makes messages from payloads.
        protocol: scenario section `protocol`.
        secure: protection of sums, see secure_rounds.py; None: no protection.
        record: function that records (node, round, name, value) of the protection.

    Attributes:
        network: the links.
        contents: bytes by message content, see network/messages/message.py.
        contacts: messages of pairs by round, see network/messages/message.py; None if there are too many nodes.
        packer: makes messages from payloads.
        answers: answers to requests.
        times: use of simulated time.
        starts_with: registers models that a node has drawn, see MessagePacker.
    """

    def __init__(
        self,
        parts: RunParts,
        packer: MessagePacker,
        protocol: Protocol,
        secure: SecureAggregation | None = None,
        record: Callable[[int, int, str, int], None] = lambda *_: None,
    ):
        self.contents = PayloadBreakdown()
        self.contacts = Contacts() if len(parts.members) <= MOST_NODES else None
        self.network = parts.network
        self.packer = packer
        self.starts_with = packer.starts_with
        self._members, self._run, self._clock = parts.members, parts.run, parts.clock
        self._env = parts.clock.env
        self.times = parts.clock.times = parts.clock.times or TimeUse(len(parts.members), parts.clock.env)
        self._waits, self._received = self.times.waits, self.times.received
        self.use_protocol(protocol)
        self.answers = AnswerService(parts, packer, self._send, self.fail)
        self._collectives = Collectives(parts, self._send)
        self._mailboxes = self.network.use_mailboxes()
        self._secure: SecureRounds | None = None
        if secure is not None:
            self._secure = SecureRounds(secure, parts, self._mailboxes, self._send, record)
        self.network.listen(self._delivered, self.fail)

    def use_protocol(self, protocol: Protocol) -> None:
        """Set the deadline of waits that start from now on."""
        self._deadline_s, self._keep_late = protocol.deadline_s, protocol.late_messages == "keep"
        self._staleness_s = protocol.staleness_s

    # -- the port --------------------------------------------------------------------------------------------------

    def push(self, sender: int, receivers: Iterable[int], round_num: int, payload: Payload) -> None:
        """Send the payload to every receiver."""
        receivers = tuple(receivers)
        self._push(sender, receivers, round_num, self._released(sender, receivers, round_num, payload))

    def publish(self, node: int, round_num: int, stage: int | None, payload: dict[str, Any]) -> None:
        """Answer pulls with this payload from now on, including waiting pulls."""
        self.answers.publish(node, round_num, stage, payload)

    def pull(
        self, node: int, peers: Sequence[int], round_num: int, keys: Keys, stages: Mapping[int, int] | None
    ) -> None:
        """Ask peers for their publications."""

        def requests(receivers: Nodes, payload: Payload) -> list[Message]:
            return self.packer.messages(node, receivers, round_num, kinds.REQUEST, payload, keys)

        if stages is None:
            self._send(requests(tuple(peers), {}))
        else:
            self._send([each for peer in peers for each in requests((peer,), {"stage": stages[peer]})])

    def ask_for_scores(self, node: int, peers: Sequence[int], round_num: int, model: Model) -> None:
        """Ask peers for the loss of a model on their training samples."""
        self._ask(kinds.SCORE_REQUEST, node, tuple(peers), round_num, {"model": model})

    def exchange(self, node: int, peers: Sequence[int], round_num: int, payload: Payload) -> None:
        """Offer the payload to peers; each answers when it arrives."""
        self._ask(kinds.EXCHANGE, node, tuple(peers), round_num, payload)

    def collective(
        self, node: int, call: CollectiveCall, content: Any, wire_bytes: int | None
    ) -> tuple[simpy.Event, Callable[[], dict[int, Any]]]:
        """Start a member's part of a collective; return the event of its end, and the contents by node."""
        if self._secure is not None:
            text = "expected an algorithm without collectives, since secure aggregation protects sums of messages"
            raise DdlsimError(f"node.{call.verb}: {text}. Remove secure_aggregation.")
        others = tuple(member for member in call.group if member != node)
        num_bytes = None
        if content is not None:
            released = self._released(node, others, call.round_num, {call.verb: content})
            packed, num_bytes = self.packer.contribution(node, released)
            content, num_bytes = packed[call.verb], num_bytes if wire_bytes is None else wire_bytes
        event, running = self._collectives.start(node, call, content, num_bytes)
        return event, running.result

    def wait(self, node: int, kind: str, round_num: int, senders: Sequence[int]) -> simpy.Event:
        """Return an event that happens when all messages that can still arrive have arrived, or at the deadline."""
        if self._run.participation < 1 and self._run.in_step:
            senders = tuple(sender for sender in senders if self._run.takes_part(sender, round_num))
        if self._secure is not None and kind == kinds.PUSH:
            senders = tuple(senders)
            self._secure.waits(node, round_num, senders)
        self._waits[node] = self._env._now, senders
        return self._mailboxes.wait(node, kind, round_num, senders, self._deadline_s)

    def take(self, node: int, kind: str, round_num: int) -> list[Message]:
        """Return the messages of a round after the wait for it."""
        if self._secure is not None and kind == kinds.PUSH:
            self._secure.taken(node, round_num)
        messages = self._mailboxes.take(node, kind, round_num, self._keep_late)
        self._received(node, messages, self._deadline_s, self.network.last_sent_s)
        return messages

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
        if self._collectives.in_progress:
            self._collectives.round_closed(node, next_round)
        if self._secure is not None:
            self._secure.reconsider(node)

    def stopped(self, node: int) -> None:
        """Stop a node early: its publication answers all pulls of any round from now on."""
        self.answers.stopped(node)

    def finished(self, node: int) -> None:
        """Finish a node without rounds left: later messages to it are unused, and it publishes nothing more."""
        self._mailboxes.close(node)
        self._collectives.round_closed(node, None)
        self.answers.turn_away(node)
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
        self._collectives.left(node)
        if self._secure is not None:
            self._secure.user_left(node)
        self.answers.turn_away(node)
        self._mailboxes.clear(node)
        return aborted

    def abandons_round(self, node: int) -> None:
        """Stop waiting for messages of a node that has left."""
        self._mailboxes.reconsider(node)
        if self._secure is not None:
            self._secure.reconsider(node)

    def forget(self, node: int) -> None:
        """Forget a node's publications and releases, and copies of parameters, because it has lost its state."""
        self.answers.forget(node)
        self.packer.forget(node)

    def waiting_for(self, node: int) -> list[tuple[str, int, list[int]]]:
        """Return the kind of message that a node waits for, its round, and the nodes."""
        return [
            (what, round_num, senders)
            for kind, what in WAITED_FOR.items()
            for round_num, senders in sorted(self._mailboxes.waiting_for(node, kind).items())
        ] + self._collectives.waiting_for(node)

    def fail(self, message: Message) -> None:
        """End the wait for a message that will never arrive, or for the answer to it."""
        end_period_of(message)
        if message.kind == kinds.SECURE:
            if self._secure is not None:
                self._secure.failed(message)
        elif message.kind == kinds.COLLECTIVE:
            self._collectives.failed(message)
        elif message.kind in ANSWER_TO:
            self._mailboxes.fail(message.src, ANSWER_TO[message.kind], message.receiver, message.round_num)
        else:
            self._mailboxes.fail(message.receiver, message.kind, message.src, message.round_num)
            if self._secure is not None and message.kind == kinds.PUSH:  # withheld: no key was advertised
                self._secure.failed(message)

    # -- sending ---------------------------------------------------------------------------------------------------

    def _ask(self, kind: str, node: int, peers: Nodes, round_num: int, payload: Payload) -> None:
        released = self._released(node, peers, round_num, payload)
        self._send(self.packer.messages(node, peers, round_num, kind, released))

    def _released(self, sender: int, receivers: Nodes, round_num: int, payload: Payload) -> Payload:
        """Return the permitted part of a payload; without receivers nothing is released."""
        return self.packer.release(sender, payload, round_num) if receivers else payload

    def _push(self, sender: int, receivers: Nodes, round_num: int, payload: Payload) -> None:
        """Send the permitted part of a payload to every receiver."""
        if self._secure is not None and self._secure.masks(sender):
            self._secure.contribute(sender, receivers, round_num, payload)
        elif receivers:
            self._send(self.packer.messages(sender, receivers, round_num, kinds.PUSH, payload))

    def _send(self, messages: list[Message]) -> None:
        """Hand messages to the network; nothing can be sent to a node that is offline or does not join the round."""
        if self.network.num_offline or self._run.participation < 1:
            messages = [reachable for message in messages if (reachable := self._to_reachable(message))]
        self.network.add_headers(messages)
        self.contents.count(messages)
        if self.contacts is not None:
            self.contacts.count(messages)
        if self.times.recording is not None:
            self.times.recording.follow(messages)
        self.network.send(messages)

    def _to_reachable(self, message: Message) -> Message | None:
        receivers = message.receivers
        reachable = tuple(receiver for receiver in receivers if self._is_reachable(receiver, message))
        if len(reachable) == len(receivers):
            return message
        for receiver in (receiver for receiver in receivers if receiver not in reachable):
            self.fail(to_one(message, receiver))
        return replace(message, dst=reachable) if reachable else None

    def _is_reachable(self, receiver: int, message: Message) -> bool:
        """Whether a node is online and takes part in the message's round; if rounds do not wait for each other, whether
        it may answer now.
        """
        member = self._members[receiver]
        if self._run.in_step:
            return member.online and self._run.takes_part(receiver, message.round_num)
        return member.online and not (member.sits_out and message.kind in ANSWER_TO)

    def _delivered(self, message: Message) -> None:
        for copies, version in message.streams:
            copies.reached(message.receiver, version)
        if message.kind == kinds.SECURE and self._secure is not None:
            self._secure.arrived(message)
        elif message.kind == kinds.COLLECTIVE:
            self._collectives.arrived(message)
        elif message.kind in ANSWER_TO:
            self.answers.handle(message)
        else:  # the mailbox knows which messages are too late
            self._mailboxes.deliver(message)


@dataclass(frozen=True, slots=True)
class EnginePorts(Ports):
    """Ports with the additional methods that the engine uses, for nodes that join, leave and finish."""

    clock: SimulatedClock
    transport: NetworkTransport
