"""Messages of omniscient attackers, held back until the honest nodes have sent theirs.

In the papers such an adversary sees the honest models of a round before it sends (He et al. 2022, equation 8), as in
their code. Simulated time has an order of events instead, also within one instant. So if rounds wait for each other, an
attacker's sending waits until each honest node that it observes has sent as often in that round, or cannot send before
it hears from the attacker; then the attacker continues. Otherwise (asynchronous runs, protocol.deadline_s) it waits for
the end of the instant.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import simpy


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
    """

    def __init__(
        self, may_send: Callable[[int, int], bool], waiting_for: Callable[[int], list[tuple[str, int, list[int]]]]
    ):
        self._may_send, self._waiting_for = may_send, waiting_for
        self._sent: dict[int, tuple[int, int]] = {}  # node -> the latest round in which it sent, and how often
        self._waiting: set[int] = set()
        self._held: list[Held] = []

    def count(self, node: int, round_num: int) -> int:
        """Count a node's sending or publication; return its number in that round."""
        latest, times = self._sent.get(node, (-1, 0))
        if round_num >= latest:
            self._sent[node] = round_num, (times + 1 if round_num == latest else 1)
        return self.times(node, round_num)

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

    def hold(self, held: Held) -> None:
        """Hold a sending until it is released."""
        self._held.append(held)

    def of(self, sender: int) -> list[Held]:
        """Return an attacker's held sendings."""
        return [held for held in self._held if held.sender == sender]

    def release(self, held: Held) -> None:
        """Send it now, unless it has been sent."""
        if held in self._held:
            self._held.remove(held)
            held.go()
            held.released.succeed()

    def drop(self, sender: int) -> None:
        """Discard the held sendings of an attacker that has left."""
        self._held = [held for held in self._held if held.sender != sender]

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
        for held in list(self._held):
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
                    if one not in seen and self.times(one, asked) == 0:  # otherwise its message is on its way
                        seen.add(one)
                        to_look_at.append(one)
        return False
