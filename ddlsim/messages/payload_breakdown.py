"""Bytes by what messages hold (model, core, prototypes, ...) and by round, counted as they are handed to the network.

A payload's top-level keys name its contents, as an algorithm sends or publishes them; `header` is what every message
has beside. Each message counts whole and once, whatever becomes of it: what was cut short on its way, or sent again
after a loss, only communication.jsonl and links.jsonl tell.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddlsim.messages.encoder import Stream, encoded_bytes, payload_bytes

if TYPE_CHECKING:
    from ddlsim.messages.compression import Codec
    from ddlsim.messages.message import Message

HEADER = "header"


class PayloadBreakdown:
    """Counts of one run.

    Args:
        codec: as the nodes' encoders have it; None: parameters are sent as they are.
    """

    def __init__(self, codec: "Codec | None" = None):
        self._codec = codec
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
            payload = message.payload
            if len(payload) == 1:  # nearly always, and then it weighs what the message does
                (key,) = payload
                shape = message.round_num, key, message.payload_bytes, message.header_bytes
                alike[shape] = alike.get(shape, 0) + count
                continue
            for key, num_bytes in self._sizes(message):
                _add(self._counts, message.round_num, key, count, num_bytes)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One per round and content, in this order; `round` counts completed rounds, as in metrics.jsonl."""
        counts = {place: list(known) for place, known in self._counts.items()}
        for (round_num, key, num_bytes, header_bytes), count in self._alike.items():
            _add(counts, round_num, HEADER, count, header_bytes or 0)
            _add(counts, round_num, key, count, num_bytes)
        for (round_num, key), (messages, num_bytes) in sorted(counts.items()):
            yield {"round": round_num + 1, "content": key, "messages": messages, "bytes": num_bytes}

    def _sizes(self, message: "Message") -> Iterable[tuple[str, int]]:
        header, payload = (HEADER, message.header_bytes or 0), message.payload
        if self._codec is None:
            return header, *((key, payload_bytes(value)) for key, value in payload.items())
        streams = iter(message.streams)
        codec, receiver = self._codec, message.receiver
        return header, *((key, _encoded(codec, value, receiver, streams)) for key, value in payload.items())


def _encoded(codec: "Codec", value: Any, receiver: int, streams: Iterator[tuple[Stream, int]]) -> int:
    """As the encoder packs it, whose streams stand in the order of the payload."""
    if hasattr(value, "part"):
        if codec.keeps_copies:
            stream, version = next(streams)
            return stream.bytes_to(receiver, version)
        return sum(encoded_bytes(codec, value.part))
    if isinstance(value, Mapping):
        return sum(_encoded(codec, child, receiver, streams) for child in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_encoded(codec, child, receiver, streams) for child in value)
    return payload_bytes(value)


def _add(counts: dict[tuple[int, str], list[int]], round_num: int, key: str, messages: int, num_bytes: int) -> None:
    """Adds so many messages, in each of which this content has so many bytes."""
    known = counts.setdefault((round_num, key), [0, 0])
    known[0] += messages
    known[1] += messages * num_bytes
