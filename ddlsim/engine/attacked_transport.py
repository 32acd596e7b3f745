"""Transport of a run with attackers, who forge, flood with junk, or hold back messages until honest nodes have sent.

In the papers an omniscient adversary sees the honest models of a round before it sends (He et al. 2022, equation 8), as
in their code. Simulated time has an order of events instead, also within one instant. So if rounds wait for each other,
an attacker's sending waits until each honest node that it observes has sent as often in that round, or cannot send
before it hears from the attacker; then the attacker continues. Otherwise (asynchronous runs, protocol.deadline_s) it
waits for the end of the instant.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import simpy

from ddlsim.engine.forging import JUNK, ForgingPacker
from ddlsim.engine.transport import NetworkTransport
from ddlsim.foundation.errors import DdlsimError
from ddlsim.network.messages.encoder import Payload
from ddlsim.network.messages.message import EXCHANGE, PUSH, RESPONSE, SCORE_REQUEST, Message, Nodes
from ddlsim.node.ports import CollectiveCall


@dataclass(eq=False)
class Held:
    """A held sending.

    Args:
        sender: the attacker.
        round_num: round of the sending.
        pending: honest nodes that have yet to send; None: it waits for the end of the instant.
        go: performs the sending.
        released: event of the sending.
        answers: whether the sending answers pulls.
    """

    sender: int
    round_num: int
    pending: set[int] | None
    go: Callable[[], None]
    released: simpy.Event
    answers: bool = False


class HeldSendings:
    """Count of nodes' sendings in each round, and store of attackers' held sendings.

    Args:
        may_send: (node, round) -> whether a node takes part and has not completed that round.
        waiting_for: node -> kind of message that it waits for, the round, and the nodes that it waits for.

    Attributes:
        held: sendings that are held now, in the order of their start.
    """

    def __init__(
        self, may_send: Callable[[int, int], bool], waiting_for: Callable[[int], list[tuple[str, int, list[int]]]]
    ):
        self._may_send, self._waiting_for = may_send, waiting_for
        self._sent: dict[int, tuple[int, int]] = {}  # node -> the latest round in which it sent, and how often
        self._waiting: set[int] = set()
        self.held: list[Held] = []

    def count(self, node: int, round_num: int) -> None:
        """Count a node's sending or publication."""
        latest, times = self._sent.get(node, (-1, 0))
        if round_num >= latest:
            self._sent[node] = round_num, (times + 1 if round_num == latest else 1)

    def times(self, node: int, round_num: int) -> int:
        """Return the number of a node's sendings in a round; 1 for rounds before its latest one."""
        latest, times = self._sent.get(node, (-1, 0))
        return times if round_num == latest else int(round_num < latest)

    def yet_to_send(self, sender: int, round_num: int, view: Iterable[int]) -> set[int]:
        """Return the nodes of a view that will send in a round before they need a message of the attacker."""
        number = self.times(sender, round_num)
        return {
            node
            for node in view
            if self._pending(node, round_num, number) and not self._blocked(node, sender, round_num)
        }

    def of(self, sender: int) -> list[Held]:
        """Return an attacker's held sendings."""
        return [held for held in self.held if held.sender == sender]

    def release(self, held: Held) -> None:
        """Send it now, unless it has been sent."""
        if held in self.held:
            self.held.remove(held)
            held.go()
            held.released.succeed()

    def drop(self, sender: int) -> None:
        """Discard the held sendings of an attacker that has left."""
        self.held = [held for held in self.held if held.sender != sender]

    def has_sent(self, node: int, round_num: int) -> None:
        """Handle the sending of an honest node, whose content is now known."""
        self._settle(
            lambda held, one: (
                one == node and not self._pending(one, held.round_num, self.times(held.sender, held.round_num))
            )
        )

    def has_moved(self, node: int) -> None:
        """Handle a node that has completed a round, stopped, finished or left."""
        self._waiting.discard(node)
        self._settle(lambda held, one: one == node and not self._may_send(one, held.round_num))

    def waits(self, node: int) -> None:
        """Handle a node's wait for messages, perhaps from an attacker that waits for nodes that wait for it."""
        self._waiting.add(node)
        self._settle(lambda held, one: one in self._waiting and self._blocked(one, held.sender, held.round_num))

    def takes(self, node: int) -> None:
        """Handle the end of a node's wait."""
        self._waiting.discard(node)

    def _settle(self, settled: Callable[[Held, int], bool]) -> None:
        """Send the held sendings that wait for no node any more."""
        for held in list(self.held):
            if held.pending is None:
                continue
            held.pending = {node for node in held.pending if not settled(held, node)}
            if not held.pending:
                self.release(held)

    def _pending(self, node: int, round_num: int, number: int) -> bool:
        return self._may_send(node, round_num) and self.times(node, round_num) < number

    def _blocked(self, node: int, sender: int, round_num: int) -> bool:
        """Whether a node waits, directly or through other nodes, for an attacker's messages of a round."""
        seen, to_look_at = {node}, [node]
        while to_look_at:
            for _, asked, senders in self._waiting_for(to_look_at.pop()):
                for one in senders:
                    if one == sender and asked >= round_num:
                        return True
                    if one not in seen and self.times(one, asked) == 0:  # otherwise its message is in flight
                        seen.add(one)
                        to_look_at.append(one)
        return False


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

    def collective(self, node: int, call: CollectiveCall, content: Any, wire_bytes: int | None) -> NoReturn:
        """Refuse collectives, whose members see sums."""
        text = "expected a run without attacks, since members of a collective see sums, which attackers cannot forge"
        raise DdlsimError(f"node.{call.verb}: {text}. Remove attacks, or choose an algorithm that sends models.")

    def publish(self, node: int, round_num: int, stage: int | None, payload: dict[str, Any]) -> None:
        """Answer pulls with the attacked form of this payload from now on."""
        self._holding.count(node, round_num)
        super().publish(node, round_num, stage, payload)
        self._has_sent(node, round_num)

    def fail(self, message: Message) -> None:
        """Fail as in NetworkTransport; no node waits for junk."""
        if message.kind != JUNK:
            super().fail(message)

    def _push(self, sender: int, receivers: Nodes, round_num: int, payload: Payload) -> None:
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

    def wait(self, node: int, kind: str, round_num: int, senders: Sequence[int]) -> simpy.Event:
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
        self, sender: int, receivers: Nodes, round_num: int, send: Callable[[], None], answers: bool = False
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
        self._holding.held.append(held)
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
        return self._members[node].has_yet_to_do(round_num)

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
