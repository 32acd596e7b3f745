"""What a node's messages hold and weigh when parameters are compressed.

Every place in a payload where parameters stand (`model`, `core`, `head` of an algorithm; keys of mappings and positions
of lists count) is a stream of its own. Parameters that are sent again, to one more peer or to one more who asks, are
encoded once: all who get them get the same decoded row, which is a job's output like any other.

Codecs that keep copies need receivers that have what the sender believes they have. The copy of a stream has a version,
one more with each new encoding. A receiver needs all encodings since the version that reached it last; they are sent
together, or the whole copy in float32 if it has none or that is shorter. So a message can be decoded whatever became of
earlier ones; those still on their way count as not there. The sender knows what has reached whom, as it would from
the acknowledgements of its transport. A node that loses its state loses its own copies and those of others.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from ddlsim.units import FLOAT32_BYTES

if TYPE_CHECKING:
    from ddlsim.learning.bank import Params
    from ddlsim.learning.layout import Part
    from ddlsim.messages.compression import Codec

SCALAR_BYTES = 8


@dataclass(slots=True, eq=False)
class Stream:
    """The parameters that a node sends under one name, over time.

    Args:
        update_bytes: of one encoding, buffers apart.
        buffer_bytes: of the buffers, of which only the newest count.
        whole_bytes: of the copy as it is.
        source: serial of what was encoded last.
        copy: what receivers have who got that.
        version: number of encodings.
        held: receiver -> version that reached it.
    """

    update_bytes: int
    buffer_bytes: int
    whole_bytes: int
    source: int
    copy: "Params"
    version: int = 1
    held: dict[int, int] = field(default_factory=dict)

    def bytes_to(self, receiver: int, version: int) -> int:
        """Bytes that give a receiver this version."""
        if receiver not in self.held:
            return self.whole_bytes
        held = self.held[receiver]
        if held >= version:
            return 0
        return min(self.whole_bytes, (version - held) * self.update_bytes + self.buffer_bytes)

    def reached(self, receiver: int, version: int) -> None:
        """A message has arrived."""
        self.held[receiver] = max(version, self.held.get(receiver, 0))


@dataclass(frozen=True, slots=True)
class EncodedPayload:
    """A payload ready to be sent.

    Args:
        payload: as the receivers read it.
        num_bytes: what it weighs for every receiver, apart from the streams.
        streams: with the version that it brings.
    """

    payload: Any
    num_bytes: int
    streams: tuple[tuple[Stream, int], ...]

    def bytes_to(self, receiver: int) -> int:
        """Bytes on the wire to one receiver."""
        return self.num_bytes + sum(stream.bytes_to(receiver, version) for stream, version in self.streams)


class MessageEncoder:
    """Packs the payloads of one node.

    Args:
        codec: see ddlsim.messages.compression: Codec.
        compress: (codec, params, copy, seed) -> what receivers decode; see learning/learner.py.
        draw_seed: a random integer for each encoding.
    """

    def __init__(
        self,
        codec: "Codec",
        compress: "Callable[[Codec, Params, Params | None, int], Params]",
        draw_seed: Callable[[], int],
    ):
        self._codec = codec
        self._compress = compress
        self._draw_seed = draw_seed
        self._streams: dict[Hashable, Stream] = {}
        self._encoded: WeakValueDictionary[int, Params] = WeakValueDictionary()

    def pack(self, payload: Any) -> EncodedPayload:
        """Encodes all parameters in a payload."""
        streams: list[tuple[Stream, int]] = []
        packed, num_bytes = self._pack(payload, (), streams)
        return EncodedPayload(packed, num_bytes, tuple(streams))

    def forget(self) -> None:
        """The node has lost its state."""
        self._streams.clear()

    def forget_receiver(self, receiver: int) -> None:
        """A receiver has lost its state."""
        for stream in self._streams.values():
            stream.held.pop(receiver, None)

    def _pack(self, value: Any, path: tuple[Hashable, ...], streams: list[tuple[Stream, int]]) -> tuple[Any, int]:
        if hasattr(value, "part"):
            if self._codec.keeps_copies:
                stream = self._advance(value, path)
                streams.append((stream, stream.version))
                return stream.copy, 0
            return self._encode(value), sum(encoded_bytes(self._codec, value.part))
        if isinstance(value, Mapping):
            packed = {key: self._pack(child, (*path, key), streams) for key, child in value.items()}
            return {key: child for key, (child, _) in packed.items()}, sum(size for _, size in packed.values())
        if isinstance(value, (list, tuple)):
            children = [self._pack(child, (*path, i), streams) for i, child in enumerate(value)]
            return type(value)(child for child, _ in children), sum(size for _, size in children)
        return value, payload_bytes(value)

    def _encode(self, params: "Params") -> "Params":
        decoded = self._encoded.get(params.serial)
        if decoded is None:
            decoded = self._encoded[params.serial] = self._compress(self._codec, params, None, self._draw_seed())
        return decoded

    def _advance(self, params: "Params", path: tuple[Hashable, ...]) -> Stream:
        """The stream of this place, brought to a new version unless the parameters are those of the last one."""
        key = (path, params.part)
        stream = self._streams.get(key)
        if stream is None:
            sizes = encoded_bytes(self._codec, params.part)
            stream = self._streams[key] = Stream(*sizes, params.size * FLOAT32_BYTES, params.serial, params)
        elif stream.source != params.serial:
            stream.copy = self._compress(self._codec, params, stream.copy, self._draw_seed())
            stream.source = params.serial
            stream.version += 1
        return stream


def encoded_bytes(codec: "Codec", part: "Part") -> tuple[int, int]:
    """Bytes on the wire of one encoding of a part: of its trained values, and of its buffers, as float32."""
    sizes = part.trained_sizes
    return codec.num_bytes(sizes) if sizes else 0, (part.size - sum(sizes)) * FLOAT32_BYTES


def payload_bytes(payload: Any) -> int:
    """Bytes on the wire of parameters (float32), arrays, numbers and collections of them."""
    if type(payload) is dict:  # nearly every payload is one; asking for an abstract class takes longer
        num_bytes = 0
        for value in payload.values():
            num_bytes += value.part.size * FLOAT32_BYTES if hasattr(value, "part") else payload_bytes(value)
        return num_bytes
    if hasattr(payload, "part"):
        return payload.size * FLOAT32_BYTES
    if isinstance(payload, np.ndarray):
        return payload.nbytes
    if getattr(payload, "wire_bytes", None) is not None:
        return payload.wire_bytes
    if isinstance(payload, Mapping):
        return sum(payload_bytes(value) for value in payload.values())
    if isinstance(payload, (list, tuple)):
        return sum(payload_bytes(value) for value in payload)
    return SCALAR_BYTES
