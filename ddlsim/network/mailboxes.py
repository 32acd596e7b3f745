"""Messages received by every node, by round, and the senders that it still waits for (stored by csrc/flow/mailboxes.h).

A node has a mailbox for each kind of message that is kept for it. The network puts messages there as they arrive,
without a call of Python; Python is called when the last message has arrived that a process waits for. Pushes are
announced when they are sent. A push may still arrive from a sender that is online and has not closed the round; an
answer from any sender that is online.
"""

from collections.abc import Iterable
from typing import Any

import simpy

from ddlsim.network.link_table import NS_PER_S
from ddlsim.network.messages.message import BOXES, PUSH, Message
from ddlsim.network.scheduled_calls import LAST, call_at

NEVER = 2**63 - 1
ALWAYS = -(2**63)


class Mailboxes:
    """The mailboxes of a network's nodes; made by Network.use_mailboxes.

    Args:
        transport: the extension's Transport.
        env: the environment of the network.
    """

    __slots__ = ("_env", "_transport")

    def __init__(self, transport: Any, env: simpy.Environment):
        self._transport = transport
        self._env = env

    def wait(
        self, node: int, kind: str, round_num: int, senders: Iterable[int], deadline_s: float | None = None
    ) -> simpy.Event:
        """Return an event that happens when every message of this round that can still arrive from `senders` has
        arrived.

        Args:
            node: the node that waits.
            kind: kind of the messages.
            round_num: the round; messages of other rounds do not count.
            senders: the nodes to wait for.
            deadline_s: the event happens this many seconds from now, in whole nanoseconds, at the latest, after the
                messages of that instant; None: no deadline.
        """
        event = self._env.event()
        if not self._transport.wait(node, BOXES[kind], round_num, senders, event):
            return event.succeed()
        if deadline_s is not None:
            ends_s = round((self._env.now + deadline_s) * NS_PER_S) / NS_PER_S
            give_up = self._transport.give_up
            call_at(self._env, lambda: succeed(give_up(node, BOXES[kind], event)), ends_s, LAST)
        return event

    def take(self, node: int, kind: str, round_num: int, late_too: bool = False) -> list[Message]:
        """Return the round's messages ordered by sender; forget this round and older ones.

        Args:
            node: the mailbox's node.
            kind: kind of the messages.
            round_num: the round that ends.
            late_too: whether senders without a message of this round count with their newest older message, if that
                arrived after its round had ended here.
        """
        return self._transport.take(node, BOXES[kind], ALWAYS if late_too else round_num, round_num)

    def take_all(self, node: int, kind: str, oldest_round: int, newest_round: int = NEVER) -> list[Message]:
        """Return the newest message of every sender of these rounds; forget these rounds and all older ones."""
        return self._transport.take(node, BOXES[kind], oldest_round, newest_round)

    def announce(self, node: int, sender: int, round_num: int) -> None:
        """Announce a push that the network does not carry as such; `deliver` or `fail` will follow."""
        self._transport.announce(node, sender, round_num)

    def deliver(self, message: Message) -> None:
        """Deliver a message that Python has handled first; the newest of a sender and round counts."""
        succeed(self._transport.deliver(message.dst, BOXES[message.kind], message.src, message.round_num, message))

    def fail(self, node: int, kind: str, sender: int, round_num: int) -> None:
        """Register a message that was lost on the way and will not be sent again."""
        succeed(self._transport.fail(node, BOXES[kind], sender, round_num))

    def opens_at(self, sender: int, round_num: int) -> None:
        """Allow a node to push messages of this round and later ones from now on."""
        self._transport.set_open_round(sender, round_num)

    def closed(self, sender: int, next_round: int | None) -> None:
        """Close a round of a node, which may push messages of `next_round` and later ones; None: it never pushes again.

        Processes stop waiting for messages that can no longer arrive.
        """
        woken = self._transport.close_round(sender, next_round)
        if woken:
            succeed(woken)

    def reconsider(self, sender: int) -> None:
        """Stop waits for messages that can no longer arrive because a node has left."""
        succeed(self._transport.reconsider(sender))

    def clear(self, node: int) -> None:
        """Forget everything, because the node has left."""
        self._transport.clear(node)

    def close(self, node: int) -> None:
        """Forget everything, because the node has finished; later messages are unused."""
        self._transport.close(node)

    def waiting_for(self, node: int, kind: str = PUSH) -> dict[int, list[int]]:
        """Return round -> senders that the node still waits for."""
        return dict(self._transport.waiting_for(node, BOXES[kind]))


def succeed(events: list[simpy.Event]) -> None:
    """Resume the processes whose waits are over."""
    for event in events:
        event.succeed()
