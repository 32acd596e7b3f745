"""Transport of a run with attackers, who forge, flood with junk, or hold back messages until honest nodes have sent."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import simpy

from ddlsim.engine.forging import JUNK, ForgingPacker
from ddlsim.engine.held_sendings import Held, HeldSendings
from ddlsim.engine.transport import NetworkTransport
from ddlsim.network.messages.message import EXCHANGE, PUSH, RESPONSE, SCORE_REQUEST, Message


class _Seen:
    """Entry in a message's streams that reports its arrival; a message without streams goes to its mailbox at once."""

    def reached(self, receiver: int, version: int) -> None:
        """Handle the message's arrival; `AttackedTransport._delivered` records the attacker's new knowledge."""


SEEN = _Seen()


class AttackedTransport(NetworkTransport):
    """NetworkTransport under attack, with a ForgingPacker; arguments as in NetworkTransport."""

    packer: ForgingPacker

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._attackers, self._watches = self.packer.attackers, "neighbors" in self.packer.knowing
        self._holding = HeldSendings(self._may_send, self.waiting_for)
        self._answering: set[int] = set()  # attackers whose held answers are being sent
        self.answers.holds = self._holds_answer
        self.packer.withheld = self._withheld

    # -- the port --------------------------------------------------------------------------------------------------

    def publish(self, node: int, round_num: int, stage: int | None, payload: dict[str, Any]) -> None:
        """Answer pulls with the attacked form of this payload from now on."""
        self._holding.count(node, round_num)
        super().publish(node, round_num, stage, payload)
        self._has_sent(node, round_num)

    def fail(self, message: Message) -> None:
        """Fail as in NetworkTransport; no node waits for junk."""
        if message.kind != JUNK:
            super().fail(message)

    def _push(self, sender: int, receivers: tuple[int, ...], round_num: int, payload: Mapping[str, Any]) -> None:
        packer, push = self.packer, super()._push
        packer.push(sender, receivers, payload)
        own_round = packer.round_of(sender, round_num)

        def send() -> None:
            for group, changed in packer.outgoing(sender, receivers, round_num, PUSH, payload, own_round):
                push(sender, group, round_num, changed)

        self._holding.count(sender, round_num)
        if not receivers or not self._held_back(sender, receivers, round_num, send):
            send()
        self._has_sent(sender, round_num)

    def wait(self, node: int, kind: str, round_num: int, senders: Iterable[int]) -> simpy.Event:
        """Wait as in NetworkTransport; an attacker continues once its messages have been sent."""
        event = super().wait(node, kind, round_num, senders)
        self._holding.waits(node)
        held = [one.released for one in self._holding.of(node)] if self._run.in_step else []
        return simpy.AllOf(event.env, [event, *held]) if held else event

    def take(self, node: int, kind: str, round_num: int) -> list[Message]:
        self._holding.takes(node)
        return super().take(node, kind, round_num)

    def _send(self, messages: list[Message]) -> None:
        """Send messages and their junk, whose size depends on the size of the original messages."""
        if self._watches:
            for message in messages:
                if any(self._attackers.of(receiver) is not None for receiver in message.receivers):
                    message.streams = (*message.streams, (SEEN, 0))
        junk = [made for message in messages if (made := self.packer.junk(message)) is not None]
        super()._send(messages)
        if junk:
            super()._send(junk)

    def _delivered(self, message: Message) -> None:
        if message.kind == JUNK:
            self.network.unused(message)
            return
        if self._watches and message.kind in (PUSH, RESPONSE, SCORE_REQUEST, EXCHANGE):
            self.packer.receive(message)
        super()._delivered(message)

    # -- attackers that know all send last -------------------------------------------------------------------------

    def _held_back(
        self, sender: int, receivers: tuple[int, ...], round_num: int, send: Callable[[], None], answers: bool = False
    ) -> bool:
        """Whether a node's sending is held back, to be sent later."""
        packer, attacks = self.packer, self._attackers.of(sender)
        forging = () if attacks is None else attacks.forging(packer.round_of(sender, round_num))
        omniscient = [attack for attack, _ in forging if attack.knows == "all"]
        if not omniscient:
            return False
        pending: set[int] | None = None
        if self._run.in_step and self._deadline_s is None:
            view: set[int] = set()
            for attack in omniscient:
                for one in receivers if attack.per_receiver else ():
                    view.update((one, *packer.around(one, round_num)))
                if not attack.per_receiver:
                    view.update(range(self._run.num_nodes))
            pending = self._holding.yet_to_send(sender, round_num, filter(packer.is_honest, view))
            if not pending:
                return False
        held = Held(sender, round_num, pending, send, self._clock.event(), answers)
        self._holding.hold(held)
        if pending is None:
            self._clock.at_end_of_instant(partial(self._holding.release, held))
        return True

    def _holds_answer(self, request: Message) -> bool:
        """Whether an attacker's answer to a pull is held back: the pull waits as if it had not published yet."""
        node = request.receiver
        if node in self._answering:
            return False
        if any(held.answers and held.round_num == request.round_num for held in self._holding.of(node)):
            return True

        def answer() -> None:
            self._answering.add(node)
            self.answers.answer_waiting(node)
            self._answering.discard(node)

        return self._held_back(node, (request.src,), request.round_num, answer, answers=True)

    def _withheld(self, message: Message) -> None:
        """End the wait for a message that an attacker withholds, unless the wait ends at the deadline."""
        if self._deadline_s is None:
            self.fail(message)

    def _may_send(self, node: int, round_num: int) -> bool:
        member = self._members[node]
        at_work = member.online and not member.finished and not member.stopped
        return at_work and max(member.round_num, member.first_round) <= round_num

    def _has_sent(self, node: int, round_num: int) -> None:
        if self._attackers.of(node) is None:
            self._holding.has_sent(node, round_num)

    def _release(self, node: int) -> None:
        """Send the attacker's held messages now, because it ends its round or the run."""
        for held in self._holding.of(node):
            self._holding.release(held)

    def round_closed(self, node: int, next_round: int | None) -> None:
        if self._run.in_step:
            self._release(node)
        super().round_closed(node, next_round)
        self._holding.has_moved(node)

    def stopped(self, node: int) -> None:
        super().stopped(node)
        self._holding.has_moved(node)

    def finished(self, node: int) -> None:
        self._release(node)
        super().finished(node)
        self._holding.has_moved(node)

    def leaves(self, node: int) -> int:
        self._holding.drop(node)
        aborted = super().leaves(node)
        self._holding.has_moved(node)
        return aborted
