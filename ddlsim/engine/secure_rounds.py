"""Sums by secure aggregation in simulated time: its stages as messages on the network, and its drop-outs.

For the protocol see network/messages/secure_aggregation.py. A server is the aggregator of all nodes; without one every
node is the aggregator of its senders, which route their messages to each other through it. A payload pushed for a round
waits at the node; its receivers' mailboxes get it when its sum has been unmasked. Answers are sent as soon as the
preceding message has arrived, whatever the node does meanwhile, and computing them takes no simulated time.

A user drops out when it leaves, when a message from or to it is lost for good, and when a stage closes without its
answer (stage_timeout_s). If the aggregator stops waiting, or leaves, there is no sum.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ddlsim.engine.clock import RunParts
from ddlsim.network.mailboxes import Mailboxes
from ddlsim.network.messages import secure_aggregation as protocol
from ddlsim.network.messages.encoder import Payload
from ddlsim.network.messages.message import PUSH, SECURE, Message, Nodes
from ddlsim.scenario.network_sections import SecureAggregation

Key = tuple[int, int]
"""Aggregator and round."""


class SecureRounds:
    """All sums of one run.

    Args:
        settings: scenario section `secure_aggregation`.
        parts: objects of the run; its server is the only aggregator, without one every node is an aggregator.
        mailboxes: receivers of the sums' contents.
        send: function that hands messages to the network, and counts them.
        record: function that records (aggregator, round, name, value).
    """

    def __init__(
        self,
        settings: SecureAggregation,
        parts: RunParts,
        mailboxes: Mailboxes,
        send: Callable[[list[Message]], None],
        record: Callable[[int, int, str, int], None],
    ):
        self._settings, self._server, self._mailboxes = settings, parts.run.server, mailboxes
        self._members, self._clock, self._network = parts.members, parts.clock, parts.network
        self._send, self._record = send, record
        self._sessions: dict[Key, protocol.Session] = {}
        self._awaited: dict[int, set[Key]] = {}  # user -> sums that wait for it to start
        self._waits_for: dict[int, int] = {}  # aggregator -> last round that it has waited for

    def masks(self, sender: int) -> bool:
        """Whether a node's pushes go into a sum; the server's average does not."""
        return sender != self._server

    def contribute(self, sender: int, receivers: Iterable[int], round_num: int, payload: Payload) -> None:
        """Register a node's contribution to a round's sum at every receiver."""
        begun = []
        for receiver in receivers:
            self._awaited.get(sender, set()).discard((receiver, round_num))
            if not self._members[receiver].online:
                self._mailboxes.fail(receiver, PUSH, sender, round_num)
                continue
            begun.append(receiver)
            session = self._session_of(receiver, round_num)
            if session is None or session.stage != protocol.ADVERTISE or sender in session.gone:  # too late
                self._mailboxes.fail(receiver, PUSH, sender, round_num)
                continue
            session.inputs[sender] = payload
            self._mailboxes.announce(receiver, sender, round_num)
        if begun:
            size = protocol.answer_bytes(self._settings, protocol.ADVERTISE, 0, 0, 0)
            self._send([self._message(sender, tuple(begun), round_num, protocol.ANSWERS[protocol.ADVERTISE], size)])

    def waits(self, node: int, round_num: int, senders: Iterable[int]) -> None:
        """Handle the start of a node's wait for a round's messages: an aggregator's users are then known."""
        if self._server not in (None, node):
            return
        key = node, round_num
        self._waits_for[node] = round_num
        for old in [known for known in self._sessions if known[0] == node and known[1] < round_num]:
            self._abort(old, self._sessions.pop(old))
        session = self._sessions.setdefault(key, protocol.Session())
        if session.stage is None:  # a server repeats a round that all users had left
            session = self._sessions[key] = protocol.Session()
        session.group = frozenset(senders) - {node}
        for user in sorted(session.pending - session.inputs.keys()):
            if self._may_begin(user, round_num):
                self._awaited.setdefault(user, set()).add(key)
            else:
                session.gone.add(user)
        self._begin_timeout(key, session)
        self._continue(key, session)

    def taken(self, node: int, round_num: int) -> None:
        """Handle the end of a node's wait for a round's messages; its deadline may have passed before the sum."""
        session = self._sessions.get((node, round_num))
        if session is not None and session.group is not None:
            self._abort((node, round_num), session)

    def arrived(self, message: Message) -> None:
        """Handle the arrival of a protocol message."""
        (content,) = message.payload
        if content in protocol.NEWS:
            self._answer(message, protocol.NEWS.index(content))
            return
        key = message.receiver, message.round_num
        session = self._sessions.get(key)
        if session is None or session.stage != protocol.ANSWERS.index(content) or message.src in session.gone:
            self._network.unused(message)
            return
        session.heard.add(message.src)
        self._continue(key, session)

    def failed(self, message: Message) -> None:
        """Handle a protocol message that will not arrive, or a push that will not be sent."""
        news = message.kind == SECURE and next(iter(message.payload)) in protocol.NEWS
        user, aggregator = (message.receiver, message.src) if news else (message.src, message.receiver)
        self._drop((aggregator, message.round_num), user)

    def aggregator_left(self, node: int) -> None:
        """End the sums of an aggregator that goes offline or has no round left."""
        for key in [known for known in self._sessions if known[0] == node]:
            del self._sessions[key]

    def user_left(self, node: int) -> None:
        """Drop a node that has gone offline out of all sums."""
        for key in list(self._sessions):
            self._drop(key, node)

    def reconsider(self, node: int) -> None:
        """Continue without the node the sums that it will not start, because it has closed a round or left."""
        for key in sorted(self._awaited.get(node, ())):
            if not self._may_begin(node, key[1]):
                self._drop(key, node)

    # --------------------------------------------------------------------------------------------------------------

    def _session_of(self, aggregator: int, round_num: int) -> protocol.Session | None:
        """Return the sum of a round; None if the aggregator waits for later ones, or was offline."""
        if round_num < max(self._waits_for.get(aggregator, 0), self._members[aggregator].first_round):
            return None
        return self._sessions.setdefault((aggregator, round_num), protocol.Session())

    def _may_begin(self, user: int, round_num: int) -> bool:
        """Whether a node may still push a message of a round."""
        member = self._members[user]
        return member.online and not member.stopped and max(member.first_round, member.completed_rounds) <= round_num

    def _drop(self, key: Key, user: int) -> None:
        """Stop waiting for a user; its sent contributions count."""
        session = self._sessions.get(key)
        self._awaited.get(user, set()).discard(key)
        if session is not None and session.stage is not None and user not in session.gone:
            session.gone.add(user)
            self._continue(key, session)

    def _continue(self, key: Key, session: protocol.Session) -> None:
        """Start the next stage, or end, once all answers of this stage that can still arrive have arrived."""
        if session.group is None or session.stage is None:
            return
        users = sum(user in session.inputs or not self._members[user].stopped for user in session.group)
        least = protocol.threshold(self._settings, users)
        enough = len(session.heard) >= least
        if session.stage == protocol.UNMASK and enough:
            self._deliver(key, session)
        elif not session.pending and not enough:
            self._abort(key, session)
        elif not session.pending:
            session.next_stage()
            self._begin_timeout(key, session)
            self._send_news(key, session)

    def _send_news(self, key: Key, session: protocol.Session) -> None:
        """Send the messages that start a stage, to all remaining users."""
        assert session.stage is not None
        (aggregator, round_num), content, users = key, protocol.NEWS[session.stage], session.passed[-1]
        there = tuple(user for user in users if user not in session.gone)
        if there and content is not None:
            size = protocol.news_bytes(self._settings, session.stage, len(users))
            self._send([self._message(aggregator, there, round_num, content, size)])
        else:  # all have left meanwhile
            self._continue(key, session)

    def _answer(self, news: Message, stage: int) -> None:
        """Send a user's answer of a stage back to the aggregator."""
        user, session = news.receiver, self._sessions.get((news.src, news.round_num))
        if session is None or session.stage != stage or user in session.gone or session.group is None:
            self._network.unused(news)
            return
        passed = protocol.SHARE if stage == protocol.UNMASK else protocol.ADVERTISE
        users = session.passed[passed]  # users whose shares, or keys, it has
        values = protocol.num_values(session.inputs[user]) if stage == protocol.COLLECT else 0
        size = protocol.answer_bytes(self._settings, stage, len(users), len(session.group), values)
        self._send([self._message(user, (news.src,), news.round_num, protocol.ANSWERS[stage], size)])

    def _deliver(self, key: Key, session: protocol.Session) -> None:
        """Deliver the sum's contents to the algorithm."""
        (aggregator, round_num), inputs, in_sum = key, session.inputs, session.passed[protocol.COLLECT]
        self._close(key, session, in_sum)
        for user in in_sum:
            self._mailboxes.deliver(Message(user, aggregator, round_num, PUSH, inputs[user], 0, 0))

    def _abort(self, key: Key, session: protocol.Session) -> None:
        """Abort the sum."""
        if session.stage is not None:
            self._close(key, session, ())

    def _close(self, key: Key, session: protocol.Session, in_sum: Sequence[int]) -> None:
        """Close the sum; payloads that are not in it will not arrive."""
        begun, group = session.inputs.keys(), session.group or frozenset()
        session.close()
        self._record(*key, "secure_sum", len(in_sum))
        if len(begun) > len(in_sum):
            self._record(*key, "secure_dropouts", len(begun) - len(in_sum))
        for user in sorted((group | begun).difference(in_sum)):
            self._mailboxes.fail(key[0], PUSH, user, key[1])

    def _begin_timeout(self, key: Key, session: protocol.Session) -> None:
        seconds, stage = self._settings.stage_timeout_s, session.stage
        if seconds is None:
            return

        def over(_: Any) -> None:
            if session.stage == stage and self._sessions.get(key) is session:  # otherwise it has ended meanwhile
                session.gone |= session.pending
                self._continue(key, session)

        self._clock.after(seconds).callbacks.append(over)

    def _message(self, src: int, receivers: Nodes, round_num: int, content: str, size: int) -> Message:
        return Message(src, receivers, round_num, SECURE, {content: None}, size, self._network.header_bytes)
