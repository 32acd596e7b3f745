"""Messages from one node to one or several others, and their counts by content and by pair of nodes.

A message counts in full and once when it is handed to the network, whether it arrives, is cut short or is sent again
after a loss; communication.jsonl and links.jsonl distinguish these.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from ddlsim.network.messages.encoder import Follower, Sizes

PUSH, REQUEST, RESPONSE = "push", "request", "response"
SCORE_REQUEST, SCORE = "score request", "score"
EXCHANGE = "exchange"
"""A request with contents, see `Node.exchange`; the answer is a response."""
SECURE = "secure aggregation"
"""A message of the protocol of secure aggregation; its content's name is its type."""
COLLECTIVE = "collective"
"""One flow of a collective operation, see network/collective_schedules.py; its content's name is the verb."""

Nodes = tuple[int, ...]
"""Ids of nodes."""

Keys = Sequence[str] | None
"""Contents of a publication that a request asks for; None: all."""

BOXES = {PUSH: 0, RESPONSE: 1, SCORE: 2}
"""Kinds of messages with a mailbox, and its number."""


@dataclass(slots=True)
class Message:
    """Message from one node to one or several others.

    Args:
        src: sender.
        dst: receiver, or several of them.
        round_num: round of the message.
        kind: PUSH, REQUEST, ...
        payload: contents; the network ignores them.
        payload_bytes, header_bytes: bytes on the wire to each receiver; header_bytes None: the network's.
        keys: contents of a publication that a request asks for, sent in the header; None: all.
        streams: listeners of its arrival (see encoder.py), and their versions.
        sent_s: simulated time of sending, set by the network.
        sizes: bytes of the payload by content, if it has several contents.
    """

    src: int
    dst: int | Nodes
    round_num: int
    kind: str
    payload: Any
    payload_bytes: int
    header_bytes: int | None = None
    streams: tuple[tuple[Follower, int], ...] = ()
    keys: Keys = None
    sent_s: float = 0.0
    sizes: Sizes = ()

    @property
    def receivers(self) -> Nodes:
        """All receivers."""
        return self.dst if isinstance(self.dst, tuple) else (self.dst,)

    @property
    def receiver(self) -> int:
        """The only receiver."""
        assert not isinstance(self.dst, tuple)
        return self.dst


def to_one(message: Message, receiver: int) -> Message:
    """Return the message with one of its receivers."""
    return message if message.dst == receiver else Message(message.src, receiver, *_after_dst(message))


_after_dst = attrgetter(*[field.name for field in fields(Message)][2:])

HEADER = "header"
"""Content that every message has in addition to its payload."""


class PayloadBreakdown:
    """Bytes of one run by round and content (model, core, prototypes, ...): a payload's top-level keys."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, str, int, int | None], int] = {}  # (round, content, bytes, header) -> messages
        self._counts: dict[tuple[int, str], list[int]] = {}  # (round, content) -> [messages, bytes] of the others
        self._parameters: dict[tuple[str, int], int] = {}  # (content, bytes) -> parameters of the first message

    def count(self, messages: Sequence[Message]) -> None:
        """Add messages; a node's message to itself does not count."""
        alike = self._alike
        for message in messages:
            receivers = message.receivers
            count = len(receivers) - receivers.count(message.src)
            if not count:
                continue
            if len(message.payload) == 1:  # nearly always; its bytes are the payload's
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
        """Return content, counted bytes and parameters of each size of an uncompressed message with only parameters."""
        return ((key, num_bytes, count) for (key, num_bytes), count in self._parameters.items())

    def rows(self) -> Iterator[dict[str, Any]]:
        """Return a row per round and content, in this order; `round` counts completed rounds, as in metrics.jsonl."""
        counts = {place: list(known) for place, known in self._counts.items()}
        for (round_num, key, num_bytes, header_bytes), count in self._alike.items():
            _add(counts, round_num, HEADER, count, header_bytes or 0)
            _add(counts, round_num, key, count, num_bytes)
        for (round_num, key), (messages, num_bytes) in sorted(counts.items()):
            yield {"round": round_num + 1, "content": key, "messages": messages, "bytes": num_bytes}


def _add(counts: dict[tuple[int, str], list[int]], round_num: int, key: str, messages: int, num_bytes: int) -> None:
    """Add messages in which this content has `num_bytes` bytes each."""
    known = counts.setdefault((round_num, key), [0, 0])
    known[0] += messages
    known[1] += messages * num_bytes


MOST_NODES = 256
"""Contacts of runs with more nodes are not counted, since pairs times rounds would be by far the largest record."""


class Contacts:
    """Messages and bytes of one run by round and pair of nodes, for the rounds that have not been taken."""

    def __init__(self) -> None:
        self._counts: dict[int, dict[tuple[int, int], list[int]]] = {}  # round -> (src, dst) -> [messages, bytes]

    def count(self, messages: Sequence[Message]) -> None:
        """Add messages; a node's message to itself does not count."""
        for message in messages:
            of_round = self._counts.setdefault(message.round_num, {})
            src, num_bytes = message.src, message.payload_bytes + (message.header_bytes or 0)
            for receiver in message.receivers:
                if receiver == src:
                    continue
                known = of_round.setdefault((src, receiver), [0, 0])
                known[0] += 1
                known[1] += num_bytes

    def take(self, completed: int | None = None) -> list[dict[str, Any]]:
        """Remove and return the rounds below `completed` (None: all) as rows for contacts.jsonl, ascending.

        A row has one round, and the columns `src`, `dst`, `messages` and `bytes`, sorted by pair. Messages that are
        sent for a round after it was taken (without a barrier between rounds) give another row of that round.
        """
        rows = []
        for round_num in sorted(self._counts):
            if completed is not None and round_num >= completed:
                break
            pairs = sorted((*pair, *counts) for pair, counts in self._counts.pop(round_num).items())
            if pairs:
                columns = zip(("src", "dst", "messages", "bytes"), map(list, zip(*pairs, strict=True)), strict=True)
                rows.append({"round": round_num + 1, **dict(columns)})
        return rows
