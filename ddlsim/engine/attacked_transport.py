"""Messages of a run with attackers, who forge, flood with junk, or hold back messages.

Parameters are forged on their way out, before compression, and once for all receivers unless the attack sends each
receiver different parameters; so a repeated sending is the same forgery. Under `privacy` a node that forges neither
clips nor adds noise, and knows only the released parameters of honest nodes. An attack begins with the attacker's own
round, also for nodes in other rounds that ask it. attacks/base.py describes the attackers' knowledge.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import simpy

from ddlsim.attacks.forgeries import Sybil
from ddlsim.engine.held_sendings import Held, HeldSendings
from ddlsim.engine.transport import NetworkTransport
from ddlsim.network.messages.encoder import Path, is_parameters, walk
from ddlsim.network.messages.message import EXCHANGE, PUSH, RESPONSE, SCORE_REQUEST, SECURE, Message

if TYPE_CHECKING:
    from ddlsim.attacks.base import Attack
    from ddlsim.attacks.node_attacks import Attackers, NodeAttacks
    from ddlsim.learning.bank import Params

JUNK = "junk"
FLOODED = (PUSH, RESPONSE, SCORE_REQUEST, SECURE, EXCHANGE)
"""Kinds of messages that junk accompanies."""

Place = tuple[Path, int]
"""Location of parameters in a payload, and their number of values."""

Known = dict[int, "Params"]
"""Node -> parameters."""

Forgery = tuple[int, int | None, tuple[int, ...]]
"""Sender, receiver (None: all of them), and `id` of the active attacks, which live as long as the run."""


class _Seen:
    """Entry in a message's streams that reports its arrival; a message without streams goes to its mailbox at once."""

    def reached(self, receiver: int, version: int) -> None:
        """Handle the message's arrival; `AttackedTransport._delivered` records the attacker's new knowledge."""


SEEN = _Seen()


class AttackedTransport(NetworkTransport):
    """NetworkTransport under attack; further arguments as in NetworkTransport.

    Args:
        attackers: the attackers and their attacks.
    """

    def __init__(self, attackers: "Attackers", *args: Any):
        self._attackers = attackers
        self._knowing = {attack.knows for attack, _ in attackers.attacks if attack.forges}
        self._sent: dict[Place, Known] = {}  # newest parameters that each node would have sent honestly
        self._forged_last: dict[Place, Known] = {}  # parameters that attacked nodes have sent, after all forging
        self._received: dict[int, dict[Place, Known]] = {}  # attacked node -> parameters that reached it
        self._newest_s: dict[tuple[int, int, Place], float] = {}  # (attacked node, sender, place) -> its time
        # Parameters -> their forgery; several nodes may have the same parameters.
        self._forged: WeakKeyDictionary[Params, dict[Forgery, Params]] = WeakKeyDictionary()
        self._in_clear: set[int] = set()  # nodes under `privacy` that have sent forgeries without noise
        self._answering: set[int] = set()  # attackers whose held answers are being sent
        super().__init__(*args)
        self._holding = HeldSendings(self._may_send, self.waiting_for) if "all" in self._knowing else None

    # -- the port --------------------------------------------------------------------------------------------------

    def publish(self, node: int, round_num: int, stage: int | None, payload: dict[str, Any]) -> None:
        """Answer pulls with the attacked form of this payload from now on."""
        if not self._senders:  # otherwise noise is added first
            self._learn(node, payload)
        if self._holding is not None:
            self._holding.count(node, round_num)
        super().publish(node, round_num, stage, payload)
        self._has_sent(node, round_num)

    def fail(self, message: Message) -> None:
        """Fail as in NetworkTransport; no node waits for junk."""
        if message.kind != JUNK:
            super().fail(message)

    def _push(self, sender: int, receivers: tuple[int, ...], round_num: int, payload: Mapping[str, Any]) -> None:
        if receivers or not self._senders:
            self._learn(sender, payload)
        own_round, push = self._round_of(sender, round_num), super()._push

        def send() -> None:
            for group, changed in self._outgoing(sender, receivers, round_num, PUSH, payload, own_round):
                push(sender, group, round_num, changed)

        if self._holding is not None:
            self._holding.count(sender, round_num)
        if not receivers or not self._held_back(sender, receivers, round_num, send):
            send()
        self._has_sent(sender, round_num)

    def wait(self, node: int, kind: str, round_num: int, senders: Iterable[int]) -> simpy.Event:
        """Wait as in NetworkTransport; an attacker continues once its messages have been sent."""
        event = super().wait(node, kind, round_num, senders)
        if self._holding is None:
            return event
        self._holding.waits(node)
        held = [one.released for one in self._holding.of(node)] if self._run.in_step else []
        return simpy.AllOf(event.env, [event, *held]) if held else event

    def take(self, node: int, kind: str, round_num: int) -> list[Message]:
        if self._holding is not None:
            self._holding.takes(node)
        return super().take(node, kind, round_num)

    def sent_in_clear(self, node: int) -> bool:
        """Whether the node has sent parameters without noise, as in NetworkTransport or by forging."""
        return node in self._in_clear

    def _private(self, sender: int, payload: Mapping[str, Any], round_num: int) -> Mapping[str, Any]:
        """Return the payload to send; forgers neither clip nor add noise."""
        attacks = self._attackers.of(sender)
        if attacks is not None and attacks.forging(self._round_of(sender, round_num)):
            walk(payload, lambda leaf, _: self._in_clear.add(sender) if is_parameters(leaf) else None)
            return payload
        return super()._private(sender, payload, round_num)

    def _messages(
        self,
        sender: int,
        receivers: Iterable[int],
        round_num: int,
        kind: str,
        payload: Mapping[str, Any],
        keys: Sequence[str] | None = None,
    ) -> list[Message]:
        if kind not in (RESPONSE, SCORE_REQUEST, EXCHANGE):  # pushes have passed through `push`
            return super()._messages(sender, receivers, round_num, kind, payload, keys)
        found: list[Message] = []
        receivers = tuple(receivers)
        if self._senders or kind != RESPONSE:  # answers without noise are known since they were published
            self._learn(sender, payload)
        for group, changed in self._outgoing(sender, receivers, round_num, kind, payload):
            found += super()._messages(sender, group, round_num, kind, changed, keys)
        return found

    def _send(self, messages: list[Message]) -> None:
        """Send messages and their junk, whose size depends on the size of the original messages."""
        if "neighbors" in self._knowing:
            for message in messages:
                if any(self._attackers.of(receiver) is not None for receiver in message.receivers):
                    message.streams = (*message.streams, (SEEN, 0))
        junk = [made for message in messages if (made := self._junk(message)) is not None]
        super()._send(messages)
        if junk:
            super()._send(junk)

    def _delivered(self, message: Message) -> None:
        if message.kind == JUNK:
            self.network.unused(message)
            return
        if "neighbors" in self._knowing and message.kind in (PUSH, RESPONSE, SCORE_REQUEST, EXCHANGE):
            self._receive(message)
        super()._delivered(message)

    def _answer_to_offer(self, offer: Message) -> Mapping[str, Any]:
        """Answer as in NetworkTransport; nothing was published before it."""
        payload = super()._answer_to_offer(offer)
        if not self._senders:
            self._learn(offer.receiver, payload)
        return payload

    def _stream_for(self, sender: int, receivers: tuple[int, ...]) -> int | None:
        attacks = self._attackers.of(sender)
        return receivers[0] if attacks is not None and attacks.per_receiver else None

    # -- attackers that know all send last -------------------------------------------------------------------------

    def _held_back(
        self, sender: int, receivers: tuple[int, ...], round_num: int, send: Callable[[], None], answers: bool = False
    ) -> bool:
        """Whether a node's sending is held back, to be sent later."""
        attacks, holding = self._attackers.of(sender), self._holding
        if attacks is None or holding is None:
            return False
        forging = [each for each, _ in attacks.forging(self._round_of(sender, round_num)) if each.knows == "all"]
        if not forging:
            return False
        pending: set[int] | None = None
        if self._run.in_step and self._deadline_s is None:
            view: set[int] = set()
            for attack in forging:
                around = [{one, *self._around(one, round_num)} for one in receivers] if attack.per_receiver else []
                view.update(*around) if attack.per_receiver else view.update(range(self._run.num_nodes))
            pending = holding.yet_to_send(sender, round_num, filter(self._is_honest, view))
            if not pending:
                return False
        held = Held(sender, round_num, pending, send, self._clock.event(), answers)
        holding.hold(held)
        if pending is None:
            self._clock.at_end_of_instant(partial(holding.release, held))
        return True

    def _answer(self, request: Message) -> None:
        """Answer as in NetworkTransport; requests that an attacker holds back wait as if it had not published yet."""
        node, holding = request.receiver, self._holding
        if holding is not None and node not in self._answering and self._store(node).answer_to(request) is not None:

            def answer() -> None:
                self._answering.add(node)
                self._answer_waiting(node)
                self._answering.discard(node)

            held_already = any(one.answers and one.round_num == request.round_num for one in holding.of(node))
            if held_already or self._held_back(node, (request.src,), request.round_num, answer, answers=True):
                self._store(node).wait(request, self._members[request.src].stay)
                return
        super()._answer(request)

    def _may_send(self, node: int, round_num: int) -> bool:
        member = self._members[node]
        at_work = member.online and not member.finished and not member.stopped
        return at_work and max(member.round_num, member.first_round) <= round_num

    def _has_sent(self, node: int, round_num: int) -> None:
        if self._holding is not None and self._attackers.of(node) is None:
            self._holding.has_sent(node, round_num)

    def _release(self, node: int) -> None:
        """Send the attacker's held messages now, because it ends its round or the run."""
        if (holding := self._holding) is not None:
            for held in holding.of(node):
                holding.release(held)

    def round_closed(self, node: int, next_round: int | None) -> None:
        if self._run.in_step:
            self._release(node)
        super().round_closed(node, next_round)
        if self._holding is not None:
            self._holding.has_moved(node)

    def stopped(self, node: int) -> None:
        super().stopped(node)
        if self._holding is not None:
            self._holding.has_moved(node)

    def finished(self, node: int) -> None:
        self._release(node)
        super().finished(node)
        if self._holding is not None:
            self._holding.has_moved(node)

    def leaves(self, node: int) -> int:
        if self._holding is not None:
            self._holding.drop(node)
        aborted = super().leaves(node)
        if self._holding is not None:
            self._holding.has_moved(node)
        return aborted

    # -- messages of attacked nodes -------------------------------------------------------------------------------

    def _round_of(self, sender: int, round_num: int) -> int:
        """Return the round by which a node attacks when it sends a message of this round: its own, whatever the
        requester's.

        If nodes do their rounds together, a node that has stopped early continues with the others.
        """
        own = self._members[sender].node.round_num
        return max(own, round_num) if self._run.in_step else own

    def _outgoing(
        self,
        sender: int,
        receivers: tuple[int, ...],
        round_num: int,
        kind: str,
        payload: Mapping[str, Any],
        own_round: int | None = None,
    ) -> Iterator[tuple[tuple[int, ...], Mapping[str, Any]]]:
        """Return receivers and payloads; `own_round` is the round by which the node attacks (default: its own)."""
        attacks = self._attackers.of(sender)
        if attacks is None:
            yield receivers, payload
            return
        receivers = self._not_withheld(attacks, receivers, round_num, kind)
        forging = attacks.forging(self._round_of(sender, round_num) if own_round is None else own_round)
        if not forging and attacks.leads_sybils:
            self._note(self._forged_last, sender, payload)
        forged_apart = any(attack.per_receiver for attack, _ in forging)
        apart = forged_apart or (attacks.per_receiver and self._encoders is not None)  # into each receiver's stream
        for group in [(receiver,) for receiver in receivers] if apart else [receivers]:
            if not group:
                continue
            to = group[0] if forged_apart else None

            def forged(leaf: Any, path: Path, to: int | None = to) -> Any:
                return self._forge(sender, leaf, path, to, round_num, forging) if is_parameters(leaf) else leaf

            yield group, walk(payload, forged) if forging else payload

    def _forge(
        self,
        sender: int,
        own: "Params",
        path: Path,
        receiver: int | None,
        round_num: int,
        forging: "Sequence[tuple[Attack, tuple[int, ...]]]",
    ) -> "Params":
        """Return the forgery of parameters; the same parameters of a sender give the same forgery."""
        follows = any(isinstance(attack, Sybil) and sender != nodes[0] for attack, nodes in forging)
        made = {} if follows else self._forged.setdefault(own, {})
        key = sender, receiver, tuple(id(attack) for attack, _ in forging)
        found = made.get(key)
        if found is None:
            place, found = (path, own.size), own
            start = self._members[sender].node.started_from(own)
            for attack, nodes in forging:
                if isinstance(attack, Sybil):
                    first = self._forged_last.get(place, {}).get(nodes[0])
                    found = found if sender == nodes[0] or first is None else first
                    continue
                known, accomplices, center = self._known(attack, nodes, sender, place, receiver, round_num)
                seed = int(self._run.rng("attack", sender).integers(2**63 - 1)) if self._compute.draws_numbers else 0
                sizes = self._sizes(nodes, accomplices)
                found = self._compute.attack(
                    attack, found, known=known, start=start, receiver=center, seed=seed, sizes=sizes
                )
            if found is not own:  # of the first sybil, which would keep its own models forever
                made[key] = found
            self._forged_last.setdefault(place, {})[sender] = found
        return found

    def _sizes(self, nodes: Sequence[int], accomplices: int) -> tuple[int, int, int]:
        """Nodes of the run, of the attack, and of the attack around a receiver."""
        return self._run.num_nodes, len(nodes), accomplices

    def _known(
        self, attack: "Attack", nodes: tuple[int, ...], sender: int, place: Place, receiver: int | None, round_num: int
    ) -> "tuple[list[Params], int, Params | None]":
        """Return the rows that an attack knows, the accomplices around the receiver, and the receiver's row; the last
        two only for attacks that send each receiver different parameters.
        """
        sent = self._sent.get(place, {})
        if attack.per_receiver and receiver is not None:
            around = self._around(receiver, round_num)
            rows = [sent[node] for node in sorted(around) if node in sent and self._is_honest(node)]
            accomplices = max(1, sum(node in nodes for node in around))
            center = sent.get(receiver)
            return rows or [sent[sender]], accomplices, center
        if attack.knows != "all":  # those under one attack collude
            known = {node: sent[node] for node in nodes if node in sent}
            if attack.knows == "neighbors":
                known |= self._received.get(sender, {}).get(place, {})
        else:
            known = {node: row for node, row in sent.items() if self._is_honest(node)}
        return [known[node] for node in sorted(known)] or [sent[sender]], 1, None

    def _around(self, receiver: int, round_num: int) -> Sequence[int]:
        """Return the nodes that send to a receiver in a round."""
        all_with_all = not self._run.uses_topology or round_num >= self._run.rounds
        anybody = receiver == self._run.server or all_with_all
        return range(self._run.num_nodes) if anybody else self._run.neighbors(round_num)[receiver]

    def _is_honest(self, node: int) -> bool:
        """Whether it is a node, not a server, and not under attack."""
        return node != self._run.server and self._attackers.of(node) is None

    def _learn(self, sender: int, payload: Mapping[str, Any]) -> None:
        """Record the parameters that a node sends, or would send if it were honest, as known to the attackers that can
        see it.
        """
        if "all" in self._knowing or self._attackers.of(sender) is not None:
            self._note(self._sent, sender, payload)

    def _receive(self, message: Message) -> None:
        """Record the parameters of an honest node as known to the attacked receiver."""
        receiver, src, sent_s = message.receiver, message.src, message.sent_s
        if self._attackers.of(receiver) is None or not self._is_honest(src):
            return
        known = self._received.setdefault(receiver, {})

        def note(leaf: Any, path: Path) -> Any:
            if is_parameters(leaf):
                place = path, leaf.size
                if sent_s >= self._newest_s.get((receiver, src, place), 0.0):  # an older one may arrive later
                    self._newest_s[receiver, src, place] = sent_s
                    known.setdefault(place, {})[src] = leaf
            return leaf

        walk(message.payload, note)

    def _note(self, known: dict[Place, Known], node: int, payload: Mapping[str, Any]) -> None:
        def note(leaf: Any, path: Path) -> Any:
            if is_parameters(leaf):
                known.setdefault((path, leaf.size), {})[node] = leaf
            return leaf

        walk(payload, note)

    def _not_withheld(
        self, attacks: "NodeAttacks", receivers: tuple[int, ...], round_num: int, kind: str
    ) -> tuple[int, ...]:
        """Return the receivers of a message; the others stop waiting for it, at once or at the deadline."""
        chance = attacks.withholds(self._round_of(attacks.node, round_num))
        if not chance:
            return receivers
        rng, left = self._run.rng("withheld messages", attacks.node), []
        for receiver in receivers:
            if self._attackers.of(receiver) is not None or rng.random() >= chance:
                left.append(receiver)
            elif self._deadline_s is None:
                self.fail(Message(attacks.node, receiver, round_num, kind, {}, 0))
        return tuple(left)

    def _junk(self, message: Message) -> Message | None:
        """Return the junk that a flooding node adds to a message; none for requests and scores, which are small."""
        attacks = self._attackers.of(message.src) if message.kind in FLOODED else None
        factor = 0.0 if attacks is None else attacks.flood(self._round_of(message.src, message.round_num))
        if not factor:
            return None
        header_bytes = self.network.header_bytes
        size = round(factor * (message.payload_bytes + header_bytes))
        return Message(message.src, message.dst, message.round_num, JUNK, {JUNK: None}, size, header_bytes)

    def forget(self, node: int) -> None:
        """Forget a node's knowledge after it has lost its state."""
        super().forget(node)
        self._received.pop(node, None)
