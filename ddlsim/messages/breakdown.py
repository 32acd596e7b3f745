"""Bytes by what messages hold (model, core, prototypes, ...) and by round, counted as they are handed to the network.

A payload's top-level keys name its contents, as an algorithm sends or publishes them; `header` is what every message
has beside. Each message counts whole and once, whatever becomes of it: what was cut short on its way, or sent again
after a loss, only communication.jsonl and links.jsonl tell.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddlsim.messages.encoder import encoded_bytes, payload_bytes

if TYPE_CHECKING:
    from ddlsim.messages.message import Message

HEADER = "header"


class Contents:
    """Counts of one run.

    Args:
        codec: as the nodes' outboxes have it; None: parameters are sent as they are.
    """

    def __init__(self, codec=None):
        self._codec = codec
        self._messages: dict[tuple[int, str], int] = defaultdict(int)
        self._bytes: dict[tuple[int, str], int] = defaultdict(int)

    def count(self, messages: "Sequence[Message]") -> None:
        """Adds messages; one to oneself is on no wire."""
        for message in messages:
            receivers = message.receivers
            count = len(receivers) - receivers.count(message.src)
            if not count:
                continue
            round_num = message.round_num
            self._add(round_num, HEADER, count, count * (message.header_bytes or 0))
            for key, num_bytes in self._sizes(message):
                self._add(round_num, key, count, count * num_bytes)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One per round and content, in this order; `round` counts completed rounds, as in metrics.jsonl."""
        for (round_num, key), num_bytes in sorted(self._bytes.items()):
            yield {
                "round": round_num + 1,
                "content": key,
                "messages": self._messages[round_num, key],
                "bytes": num_bytes,
            }

    def _add(self, round_num: int, key: str, count: int, num_bytes: int) -> None:
        self._messages[round_num, key] += count
        self._bytes[round_num, key] += num_bytes

    def _sizes(self, message: "Message") -> Iterator[tuple[str, int]]:
        streams = iter(message.streams)
        for key, value in message.payload.items():
            yield key, payload_bytes(value) if self._codec is None else self._encoded(value, message.dst, streams)

    def _encoded(self, value: Any, receiver: int, streams: Iterator) -> int:
        """As the outbox packs it, whose streams stand in the order of the payload."""
        if hasattr(value, "part"):
            if self._codec.keeps_copies:
                stream, version = next(streams)
                return stream.bytes_to(receiver, version)
            return sum(encoded_bytes(self._codec, value.part))
        if isinstance(value, Mapping):
            return sum(self._encoded(child, receiver, streams) for child in value.values())
        if isinstance(value, (list, tuple)):
            return sum(self._encoded(child, receiver, streams) for child in value)
        return payload_bytes(value)
