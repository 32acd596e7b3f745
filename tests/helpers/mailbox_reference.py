"""Mailboxes in plain Python: the reference for ddlsim/network/mailboxes.py and csrc/flow/mailboxes.h."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import simpy

from ddlsim.network.messages.message import BOXES, PUSH, Message
from ddlsim.network.scheduled_calls import LAST, call_at

Wait = tuple[int, set[int], simpy.Event]
"""A round, the senders that are still missing, and what happens when none is."""


class Mailbox:
    """Messages of one kind to one node.

    Args:
        label: (node id, kind), unique; mailboxes are checked in this order.
        env: the SimPy environment.
        may_come: (sender, round) -> whether a message of that round can still arrive from that sender, except those in
            flight (see `announce`).
        watch: called with (sender, mailbox) at the start of a wait: `reconsider` is due when that sender leaves or
            completes a round.
        unused: called with every message that arrived and was discarded unread.
    """

    __slots__ = ("_arrived", "_env", "_failed", "_may_come", "_unused", "_waits", "_watch", "label")

    def __init__(
        self,
        label: tuple[int, str],
        env: simpy.Environment,
        may_come: Callable[[int, int], bool],
        watch: "Callable[[int, Mailbox], None]" = lambda *_: None,
        unused: Callable[[Message], None] = lambda _: None,
    ):
        self.label = label
        self._env = env
        self._may_come = may_come
        self._watch = watch
        self._unused = unused
        self._arrived: dict[int, dict[int, Message | None]] = {}  # by round and sender; None if in flight
        self._failed: dict[int, set[int]] = {}
        self._waits: list[Wait] = []

    @property
    def waits(self) -> bool:
        """Whether a wait for missing messages is pending."""
        return bool(self._waits)

    def announce(self, sender: int, round_num: int) -> None:
        """Announce a message in flight; `deliver` or `fail` follows."""
        arrived = self._arrived.get(round_num)
        if arrived is None:
            self._arrived[round_num] = {sender: None}
        elif sender not in arrived:
            arrived[sender] = None

    def deliver(self, message: Message) -> None:
        """Deliver a message; the newest of a sender and round counts."""
        round_num, sender = message.round_num, message.src
        arrived = self._arrived.get(round_num)
        if arrived is None:
            arrived = self._arrived[round_num] = {}
        replaced = arrived.get(sender)
        if replaced is not None:
            self._unused(replaced)
        arrived[sender] = message
        if self._waits:
            self._answered(sender, round_num)

    def fail(self, sender: int, round_num: int) -> None:
        """Report a lost message that will not be sent again."""
        self._failed.setdefault(round_num, set()).add(sender)
        if self._arrived.get(round_num, {}).get(sender, self) is None:
            del self._arrived[round_num][sender]
        self._answered(sender, round_num)

    def wait(self, round_num: int, senders: Iterable[int], deadline_s: float | None = None) -> simpy.Event:
        """Return an event that occurs when no more messages of this round can arrive from `senders`.

        Args:
            round_num: the round; messages of other rounds do not count.
            senders: nodes to wait for.
            deadline_s: the event occurs at most this many seconds from now, after all arrivals of that
                instant; None if there is no deadline.
        """
        event = self._env.event()
        known, failed = self._arrived.get(round_num, {}), self._failed.get(round_num, ())
        missing = {
            sender
            for sender in senders
            if known.get(sender) is None
            and sender not in failed
            and (sender in known or self._may_come(sender, round_num))
        }
        if not missing:
            return event.succeed()
        wait = (round_num, missing, event)
        self._waits.append(wait)
        for sender in missing:
            if sender not in known:
                self._watch(sender, self)
        if deadline_s is not None:
            call_at(self._env, lambda: self._give_up(wait), round((self._env.now + deadline_s) * 1e9) / 1e9, LAST)
        return event

    def reconsider(self) -> None:
        """Stop waiting for messages that can no longer arrive."""
        for wait in list(self._waits):
            round_num, missing, _ = wait
            known = self._arrived.get(round_num, {})
            for sender in [sender for sender in missing if sender not in known]:
                if self._may_come(sender, round_num):
                    self._watch(sender, self)
                else:
                    missing.discard(sender)
            self._close_if_done(wait)

    def take(self, round_num: int, late_too: bool = False) -> list[Message]:
        """Return the round's messages ordered by sender; discard this and older rounds.

        Args:
            round_num: the round that ends.
            late_too: senders without a message of this round count with their newest of an older one, if that came
                after its round had ended here.
        """
        taken = self._newest(known for known in self._arrived if known == round_num or (late_too and known < round_num))
        self._forget([known for known in self._arrived if known <= round_num], taken)
        for old in [known for known in self._failed if known <= round_num]:
            del self._failed[old]
        return taken

    def take_all(self, oldest_round: int) -> list[Message]:
        """Return the newest message of every sender, unless older than `oldest_round`; discard all."""
        taken = self._newest(known for known in self._arrived if known >= oldest_round)
        self._forget(list(self._arrived), taken)
        self._failed.clear()
        return taken

    def clear(self) -> None:
        """Discard everything, because the node has left or finished."""
        self._forget(list(self._arrived), [])
        self._failed.clear()
        self._waits.clear()

    def waiting_for(self) -> dict[int, list[int]]:
        """Return round -> senders of a pending wait."""
        return {round_num: sorted(missing) for round_num, missing, _ in self._waits}

    def _forget(self, rounds: Sequence[int], taken: Sequence[Message]) -> None:
        """Discard the messages of these rounds; those not in `taken` were unused."""
        known = [self._arrived.pop(round_num) for round_num in rounds]
        if sum(map(len, known)) == len(taken):
            return
        used = set(map(id, taken))
        for arrived in known:
            for message in arrived.values():
                if message is not None and id(message) not in used:
                    self._unused(message)

    def _newest(self, rounds: Iterable[int]) -> list[Message]:
        """Return the newest message of every sender in these rounds, ordered by sender."""
        newest: dict[int, Message] = {}
        for round_num in sorted(rounds):
            newest.update(item for item in self._arrived[round_num].items() if item[1] is not None)
        return [newest[sender] for sender in sorted(newest)]

    def _answered(self, sender: int, round_num: int) -> None:
        over = False
        for waiting_round, missing, _ in self._waits:
            if waiting_round == round_num:
                missing.discard(sender)
                over = over or not missing
        if over:
            for wait in list(self._waits):
                self._close_if_done(wait)

    def _give_up(self, wait: Wait) -> None:
        """Handle a deadline; the wait may be over, or its node offline."""
        if wait in self._waits:
            wait[1].clear()
            self._close_if_done(wait)

    def _close_if_done(self, wait: Wait) -> None:
        if not wait[1]:
            self._waits.remove(wait)
            wait[2].succeed()


class PlainMailboxes:
    """The interface of network/mailboxes.py: Mailboxes over one Mailbox of the above per node and kind.

    Args:
        env: the SimPy environment.
        num_nodes: how many nodes.
        unused: called with (receiver, message) for unused messages.
    """

    def __init__(self, env: simpy.Environment, num_nodes: int, unused: Callable[[int, Message], None]):
        self._online, self._open, self._closed = [True] * num_nodes, [0] * num_nodes, set()
        self._watchers = defaultdict(set)
        self._unused = unused
        self._boxes = {
            (node, kind): Mailbox(
                (node, box),
                env,
                lambda sender, round_num, kind=kind: self._may_come(kind, sender, round_num),
                lambda sender, mailbox: self._watchers[sender].add(mailbox),
                lambda message, node=node: unused(node, message),
            )
            for node in range(num_nodes)
            for kind, box in BOXES.items()
        }

    def _may_come(self, kind: str, sender: int, round_num: int) -> bool:
        return self._online[sender] and (kind != PUSH or self._open[sender] <= round_num)

    def wait(self, node, kind, round_num, senders, deadline_s=None):
        return self._boxes[node, kind].wait(round_num, senders, deadline_s)

    def take(self, node, kind, round_num, late_too=False):
        return self._boxes[node, kind].take(round_num, late_too)

    def take_all(self, node, kind, oldest_round):
        return self._boxes[node, kind].take_all(oldest_round)

    def announce(self, node, sender, round_num):
        self._boxes[node, PUSH].announce(sender, round_num)

    def deliver(self, message):
        if message.dst in self._closed:
            self._unused(message.dst, message)
        else:
            self._boxes[message.dst, message.kind].deliver(message)

    def fail(self, node, kind, sender, round_num):
        self._boxes[node, kind].fail(sender, round_num)

    def opens_at(self, sender, round_num):
        self._open[sender] = round_num

    def closed(self, sender, next_round):
        self._open[sender] = 10**9 if next_round is None else next_round
        self.reconsider(sender)

    def left(self, sender):
        self._online[sender] = False

    def returned(self, sender):
        self._online[sender] = True

    def reconsider(self, sender):
        waiting = [mailbox for mailbox in self._watchers.pop(sender, ()) if mailbox.waits]
        for mailbox in sorted(waiting, key=lambda mailbox: mailbox.label):
            mailbox.reconsider()

    def clear(self, node):
        for kind in BOXES:
            self._boxes[node, kind].clear()

    def close(self, node):
        self.clear(node)
        self._closed.add(node)

    def waiting_for(self, node, kind=PUSH):
        return self._boxes[node, kind].waiting_for()
