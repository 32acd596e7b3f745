"""What one node sends to another, or to several."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddlsim.messages.encoder import Follower
    from ddlsim.messages.payload import Sizes

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
    """What one node sends to another, or the same to several.

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
