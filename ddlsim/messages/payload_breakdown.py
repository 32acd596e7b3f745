"""Bytes by what messages hold (model, core, prototypes, ...) and by round, counted as they are handed to the network.

A payload's top-level keys name its contents, as an algorithm sends or publishes them; `header` is what every message
has beside. Each message counts whole and once, whatever becomes of it: what was cut short on its way, or sent again
after a loss, only communication.jsonl and links.jsonl tell.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddlsim.messages.message import Message

HEADER = "header"


class PayloadBreakdown:
    """Counts of one run."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, str, int, int | None], int] = {}  # (round, content, its bytes, header) -> messages
        self._counts: dict[tuple[int, str], list[int]] = {}  # (round, content) -> [messages, bytes], of all others

    def count(self, messages: "Sequence[Message]") -> None:
        """Adds messages; one to oneself is on no wire."""
        alike = self._alike
        for message in messages:
            receivers = message.receivers
            count = len(receivers) - receivers.count(message.src)
            if not count:
                continue
            if len(message.payload) == 1:  # nearly always, and then it weighs what the message does
                (key,) = message.payload
                shape = message.round_num, key, message.payload_bytes, message.header_bytes
                alike[shape] = alike.get(shape, 0) + count
                continue
            for key, num_bytes in ((HEADER, message.header_bytes or 0), *message.sizes):
                _add(self._counts, message.round_num, key, count, num_bytes)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One per round and content, in this order; `round` counts completed rounds, as in metrics.jsonl."""
        counts = {place: list(known) for place, known in self._counts.items()}
        for (round_num, key, num_bytes, header_bytes), count in self._alike.items():
            _add(counts, round_num, HEADER, count, header_bytes or 0)
            _add(counts, round_num, key, count, num_bytes)
        for (round_num, key), (messages, num_bytes) in sorted(counts.items()):
            yield {"round": round_num + 1, "content": key, "messages": messages, "bytes": num_bytes}


def _add(counts: dict[tuple[int, str], list[int]], round_num: int, key: str, messages: int, num_bytes: int) -> None:
    """Adds so many messages, in each of which this content has so many bytes."""
    known = counts.setdefault((round_num, key), [0, 0])
    known[0] += messages
    known[1] += messages * num_bytes
