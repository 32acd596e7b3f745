"""What has reached every node, by round, and the senders that it still waits for (kept by csrc/flow/mailboxes.h).

A node has a mailbox for each kind of message that is kept for it. The network puts messages there as they arrive,
without a call of Python; it is told when the last message is in that a process waits for. Pushes are announced when
they are sent. One may still come from a sender that is there and has not closed the round; an answer from one that
is there.
"""

from collections.abc import Iterable
from typing import Any

import simpy

from ddlsim.network.flows import LAST, call_at
from ddlsim.network.latencies import NS_PER_S
from ddlsim.network.messages.message import BOXES, PUSH, Message

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
        """An event that happens when everything that can still come from `senders` for this round has come.

        Args:
            node: the node that waits.
            kind: of the messages.
            round_num: the round; messages of other rounds do not count.
            senders: the nodes to wait for.
            deadline_s: the event happens this many seconds from now, in whole nanoseconds, at the latest, and what
                comes at that very instant has come; None: no deadline.
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
        """The round's messages ordered by sender; forgets it and everything older.

        Args:
            node: the mailbox's node.
            kind: of the messages.
            round_num: the round that ends.
            late_too: senders without a message of this round count with their newest of an older one, if that came
                after its round had ended here.
        """
        return self._transport.take(node, BOXES[kind], ALWAYS if late_too else round_num, round_num)

    def take_all(self, node: int, kind: str, oldest_round: int, newest_round: int = NEVER) -> list[Message]:
        """The newest message of every sender of these rounds; forgets them and all older ones."""
        return self._transport.take(node, BOXES[kind], oldest_round, newest_round)

    def announce(self, node: int, sender: int, round_num: int) -> None:
        """A push is on its way that the network does not carry as such; `deliver` or `fail` will follow."""
        self._transport.announce(node, sender, round_num)

    def deliver(self, message: Message) -> None:
        """A message is in that Python has handled first; the newest of a sender and round counts."""
        succeed(self._transport.deliver(message.dst, BOXES[message.kind], message.src, message.round_num, message))

    def fail(self, node: int, kind: str, sender: int, round_num: int) -> None:
        """A message to a node was lost on the way and will not be sent again."""
        succeed(self._transport.fail(node, BOXES[kind], sender, round_num))

    def opens_at(self, sender: int, round_num: int) -> None:
        """A node may push messages of this round and later ones from now on."""
        self._transport.set_open_round(sender, round_num)

    def closed(self, sender: int, next_round: int | None) -> None:
        """A node has completed a round, and may push messages of `next_round` and later ones; None: it never will.

        Processes that wait for what cannot come any more stop waiting for it.
        """
        woken = self._transport.close_round(sender, next_round)
        if woken:
            succeed(woken)

    def reconsider(self, sender: int) -> None:
        """A node has left: processes that wait for what cannot come any more stop waiting for it."""
        succeed(self._transport.reconsider(sender))

    def clear(self, node: int) -> None:
        """Forgets everything: the node has left."""
        self._transport.clear(node)

    def close(self, node: int) -> None:
        """Forgets everything; what comes from now on is of no use: the node is through."""
        self._transport.close(node)

    def waiting_for(self, node: int, kind: str = PUSH) -> dict[int, list[int]]:
        """Round -> senders still waited for."""
        return dict(self._transport.waiting_for(node, BOXES[kind]))


def succeed(events: list[simpy.Event]) -> None:
    """Resumes the processes whose waits are over."""
    for event in events:
        event.succeed()
