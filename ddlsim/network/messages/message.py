"""Messages from one node to one or several others.

Bytes by what messages hold (model, core, prototypes, ...) and by round, counted as they are handed to the network.

A payload's top-level keys name its contents, as an algorithm sends or publishes them; `header` is what every message
has beside. Each message counts whole and once, whatever becomes of it: what was cut short on its way, or sent again
after a loss, only communication.jsonl and links.jsonl tell.

Messages and bytes from node to node by round, counted as they are handed to the network.

Rounds are taken out as they end, so that little is held. Of a run of more than `MOST_NODES` nodes nothing is counted:
its pairs and rounds would be the largest of its records by far; communication.jsonl has the sums over all rounds.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddlsim.network.messages.encoder import Follower, Sizes

PUSH, REQUEST, RESPONSE = "push", "request", "response"
SCORE_REQUEST, SCORE = "score request", "score"
EXCHANGE = "exchange"
"""A request that carries something, see `Node.exchange`; the answer is a response."""
SECURE = "secure aggregation"
"""Of the messages of its protocol; what one brings is the name of its content."""

BOXES = {PUSH: 0, RESPONSE: 1, SCORE: 2}
"""Kinds of messages that are kept for their receiver, and the number of its mailbox for them."""


@dataclass(slots=True)
class Message:
    """Message from one node to one or several others.

    Args:
        src: sender.
        dst: receiver, or several of them.
        round_num: round it belongs to.
        kind: what the receiver does with it.
        payload: content; the network does not look at it.
        payload_bytes, header_bytes: bytes on the wire to each receiver; header_bytes None: the network's.
        keys: of a request, which keys of the payload are asked for; None: all. They travel in the header.
        streams: what its arrival tells the sender (see encoder.py); the network does not look at it.
        sent_s: simulated time of sending, set by the network.
        sizes: bytes of the payload by content, where it holds several contents.
    """

    src: int
    dst: int | tuple[int, ...]
    round_num: int
    kind: str
    payload: Any
    payload_bytes: int
    header_bytes: int | None = None
    streams: "tuple[tuple[Follower, int], ...]" = ()
    keys: Sequence[str] | None = None
    sent_s: float = 0.0
    sizes: "Sizes" = ()

    @property
    def receivers(self) -> tuple[int, ...]:
        """Those it goes to."""
        return self.dst if isinstance(self.dst, tuple) else (self.dst,)

    @property
    def receiver(self) -> int:
        """The one that it goes to, or has reached; only of a message to one node."""
        assert not isinstance(self.dst, tuple)
        return self.dst


def to_one(message: Message, receiver: int) -> Message:
    """A message as one of its receivers gets it."""
    if message.dst == receiver:
        return message
    return Message(
        message.src,
        receiver,
        message.round_num,
        message.kind,
        message.payload,
        message.payload_bytes,
        message.header_bytes,
        message.streams,
        message.keys,
        message.sent_s,
        message.sizes,
    )


HEADER = "header"


class PayloadBreakdown:
    """Counts of one run."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, str, int, int | None], int] = {}  # (round, content, its bytes, header) -> messages
        self._counts: dict[tuple[int, str], list[int]] = {}  # (round, content) -> [messages, bytes], of all others
        self._parameters: dict[tuple[str, int], int] = {}  # (content, its bytes) -> parameters, of the first such one

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
                known = alike.get(shape, 0)
                if not known:
                    self._count_parameters(key, message)
                alike[shape] = known + count
                continue
            for key, num_bytes in ((HEADER, message.header_bytes or 0), *message.sizes):
                _add(self._counts, message.round_num, key, count, num_bytes)

    def _count_parameters(self, key: str, message: Message) -> None:
        part = getattr(message.payload[key], "part", None)
        if part is not None and not message.sizes:  # messages that were encoded list their sizes
            entries = getattr(part, "entries", None)  # absent in network-only runs, which know sizes alone
            shapes = {entry.start: math.prod(entry.shape) for entry in entries or ()}  # tied tensors share columns
            self._parameters.setdefault((key, message.payload_bytes), sum(shapes.values()) if entries else part.size)

    def parameters(self) -> Iterator[tuple[str, int, int]]:
        """Content, counted bytes and parameters of each size of an uncompressed message with parameters alone."""
        return ((key, num_bytes, count) for (key, num_bytes), count in self._parameters.items())

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
