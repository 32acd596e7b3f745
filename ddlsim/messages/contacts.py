"""Messages and bytes from node to node by round, counted as they are handed to the network.

Rounds are taken out as they end, so that little is held. Of a run of more than `MOST_NODES` nodes nothing is counted:
its pairs and rounds would be the largest of its records by far; communication.jsonl has the sums over all rounds.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddlsim.messages.message import Message

MOST_NODES = 256


class Contacts:
    """Counts of one run, of the rounds that have not been taken."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[tuple[int, int], list[int]]] = {}  # round -> (src, dst) -> [messages, bytes]

    def count(self, messages: "Sequence[Message]") -> None:
        """Adds messages, whole, whatever becomes of them; one to oneself is on no wire."""
        for message in messages:
            of_round = self._counts.setdefault(message.round_num, {})
            src, num_bytes = message.src, message.payload_bytes + (message.header_bytes or 0)
            for receiver in message.receivers:
                if receiver == src:
                    continue
                known = of_round.get((src, receiver))
                if known is None:
                    of_round[src, receiver] = [1, num_bytes]
                else:
                    known[0] += 1
                    known[1] += num_bytes

    def take(self, completed: int | None = None) -> list[dict[str, Any]]:
        """Rounds that were completed by now, as rows for contacts.jsonl, ascending; None: all that there are.

        A row is of one round and has columns `src`, `dst`, `messages` and `bytes`, sorted by pair. What is sent for a
        round after it was taken (without a barrier between rounds) comes with another row of that round.
        """
        rows = []
        for round_num in sorted(self._counts):
            if completed is not None and round_num >= completed:
                break
            pairs = sorted(self._counts.pop(round_num).items())
            if pairs:
                rows.append(
                    {
                        "round": round_num + 1,
                        "src": [src for (src, _), _ in pairs],
                        "dst": [dst for (_, dst), _ in pairs],
                        "messages": [messages for _, (messages, _) in pairs],
                        "bytes": [num_bytes for _, (_, num_bytes) in pairs],
                    }
                )
        return rows
