"""Payloads of messages: their bytes, and the encoding of their parameters if these are compressed.

A payload is a mapping from names of contents (`model`, `core`, `age`, ...) to leaves, or to mappings and lists of them.
Leaves are parameters, arrays and tensors, numbers, texts and bytes, deferred values, and objects with an attribute
`wire_bytes`.

Every place of parameters in a payload (`model`, `core`, `head` of an algorithm; keys of mappings and positions of lists
count) is a separate stream. Parameters that are sent again, to one more peer or in one more answer, are encoded once:
all receivers get the same decoded row, which is a job's output like any other.

Codecs that keep copies need the sender to know which version of the copy each receiver holds. The version of a stream's
copy increases with each new encoding. A receiver needs all encodings since the last version that reached it; they are
sent together, or the whole copy in float32 if it has none or the copy is shorter. So every message can be decoded
whether earlier ones arrived or not; messages still on their way count as missing. The sender learns of an arrival at
once, without bytes: acknowledgments of the transport are not simulated. When a node loses its state, its copies and the
others' copies of its parameters are forgotten.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from numbers import Number
from typing import Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from ddlsim.foundation.errors import DdlsimError
from ddlsim.foundation.units import FLOAT32_BYTES
from ddlsim.network.messages.compression import Codec


class ParameterPart(Protocol):
    """Part of a model, as far as messages need it, see ddlsim/learning/layout.py."""

    @property
    def size(self) -> int:
        """Number of float32 values."""

    @property
    def trained_sizes(self) -> tuple[int, ...]:
        """Values per trained tensor; the rest are buffers."""


class Parameters(Protocol):
    """Handle of parameters, as far as messages need it, see ddlsim/learning/bank.py."""

    @property
    def part(self) -> ParameterPart:
        """The part of a model that it holds."""

    @property
    def size(self) -> int:
        """Number of float32 values."""

    @property
    def serial(self) -> int:
        """Unique number of the values."""


SCALAR_BYTES = 8

Payload = Mapping[str, Any]
"""Contents of a message by name."""

Path = tuple[Any, ...]
"""Keys and positions that lead to a leaf; the first one names its content."""

Sizes = tuple[tuple[str, int], ...]
"""Bytes by content, in the order of the payload."""


def walk(value: Any, visit: Callable[[Any, Path], Any], path: Path = ()) -> Any:
    """Return the same mappings and lists with `visit(leaf, path)` instead of every leaf, visited in order."""
    if isinstance(value, Mapping):
        return {key: walk(child, visit, (*path, key)) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        children = (walk(child, visit, (*path, i)) for i, child in enumerate(value))
        return type(value)._make(children) if hasattr(value, "_make") else type(value)(children)
    return visit(value, path)


def is_parameters(leaf: Any) -> bool:
    """Whether a leaf is a handle to parameters (learning/bank.py, learning/size_learner.py)."""
    return hasattr(leaf, "part")


def leaves(value: Any) -> list[tuple[Path, Any]]:
    """Return the path of every leaf and the leaf, in order."""
    found: list[tuple[Path, Any]] = []
    walk(value, lambda leaf, path: found.append((path, leaf)))
    return found


def parameters_in(payload: Payload) -> list[tuple[Path, Any]]:
    """Return the path of all parameters in a payload and the parameters, in order."""
    return [(path, leaf) for path, leaf in leaves(payload) if is_parameters(leaf)]


def as_sent(payload: Payload) -> dict[str, Any]:
    """Return a copy of a payload, independent of later changes by its sender.

    Arrays are read-only, since all receivers share them.

    Raises:
        DdlsimError: a leaf whose bytes on the wire are unknown.
    """
    return {
        name: value if is_parameters(value) else walk(value, _leaf_as_sent, (name,)) for name, value in payload.items()
    }


def _leaf_as_sent(leaf: Any, path: Path) -> Any:
    if is_parameters(leaf) or leaf is None or isinstance(leaf, (Number, str, bytes, np.generic)):
        return leaf
    if hasattr(leaf, "wire_bytes"):  # a deferred value, or an object that has a size
        return leaf
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        copy = leaf.copy()
        copy.setflags(write=False)
        return copy
    if _is_tensor(leaf):
        return leaf.detach().clone()
    if isinstance(leaf, bytearray):
        return bytes(leaf)
    what = "an array of objects" if isinstance(leaf, np.ndarray) else f"a {type(leaf).__name__}"
    kinds = "parameters, arrays, tensors, numbers, texts, bytes, or mappings, lists and tuples of them"
    raise DdlsimError(f"message: content {path[0]}: expected {kinds}, got {what}. Give it an attribute wire_bytes.")


def leaf_bytes(leaf: Any) -> int:
    """Return the bytes on the wire of an unencoded leaf: parameters in float32, arrays and tensors in their type, texts
    in UTF-8, and 8 for a number.
    """
    if is_parameters(leaf):
        return leaf.part.size * FLOAT32_BYTES
    if isinstance(leaf, np.ndarray) or _is_tensor(leaf):
        return leaf.nbytes
    if isinstance(leaf, str):
        return len(leaf.encode())
    if isinstance(leaf, bytes):
        return len(leaf)
    wire_bytes = getattr(leaf, "wire_bytes", None)  # a deferred value
    return SCALAR_BYTES if wire_bytes is None else wire_bytes


def _is_tensor(leaf: Any) -> bool:
    """Whether it is a torch.Tensor, without importing torch."""
    return hasattr(leaf, "element_size")


def content_bytes(value: Any) -> int:
    """Return the bytes on the wire of one unencoded content of a payload: a leaf, or mappings and lists of leaves."""
    if is_parameters(value) or not isinstance(value, (dict, list, tuple, Mapping)):
        return leaf_bytes(value)
    return sum(leaf_bytes(leaf) for _, leaf in leaves(value))


def payload_sizes(payload: Payload) -> Sizes:
    """Return the bytes by content of an unencoded payload."""
    return tuple([(key, content_bytes(value)) for key, value in payload.items()])


class Follower(Protocol):
    """Listener of arrivals."""

    def reached(self, receiver: int, version: int) -> None:
        """Handle the arrival of a message with this version."""


@dataclass(slots=True, eq=False)
class Stream:
    """The parameters that a node sends in one place, over time.

    Args:
        update_bytes: bytes of one encoding, without buffers.
        buffer_bytes: bytes of the buffers, of which only the newest count.
        whole_bytes: bytes of the copy in float32.
        source: serial of the parameters that were encoded last.
        copy: the copy of the receivers of that encoding.
        version: number of encodings.
        held: receiver -> version that reached it.
    """

    update_bytes: int
    buffer_bytes: int
    whole_bytes: int
    source: int
    copy: Parameters
    version: int = 1
    held: dict[int, int] = field(default_factory=dict)

    def bytes_to(self, receiver: int, version: int) -> int:
        """Return the bytes that bring a receiver to this version."""
        if receiver not in self.held:
            return self.whole_bytes
        held = self.held[receiver]
        if held >= version:
            return 0
        return min(self.whole_bytes, (version - held) * self.update_bytes + self.buffer_bytes)

    def reached(self, receiver: int, version: int) -> None:
        """Record that a message with this version has arrived."""
        self.held[receiver] = max(version, self.held.get(receiver, 0))


@dataclass(frozen=True, slots=True)
class EncodedPayload:
    """A payload ready to be sent.

    Args:
        payload: payload with decoded parameters.
        sizes: bytes by content, without copies.
        copies: content, stream, and the version that the message contains.
    """

    payload: Payload
    sizes: Sizes
    copies: tuple[tuple[str, Stream, int], ...]

    @property
    def streams(self) -> tuple[tuple[Stream, int], ...]:
        """Streams and versions of the receiver's copies after the arrival."""
        return tuple((stream, version) for _, stream, version in self.copies)

    def sizes_to(self, receiver: int) -> Sizes:
        """Return the bytes by content to one receiver."""
        if not self.copies:
            return self.sizes
        sizes = dict(self.sizes)
        for content, stream, version in self.copies:
            sizes[content] += stream.bytes_to(receiver, version)
        return tuple(sizes.items())

    def bytes_to(self, receiver: int) -> int:
        """Return the bytes on the wire to one receiver."""
        return sum(num_bytes for _, num_bytes in self.sizes_to(receiver))


class MessageEncoder:
    """Encoder of one node's payloads.

    Args:
        codec: see ddlsim.network.messages.compression: Codec.
        compress: (codec, params, copy, seed) -> decoded parameters; see learning/learner.py.
        draw_seed: returns a random integer for each encoding.
    """

    def __init__(self, codec: Codec, compress: Callable[..., Any], draw_seed: Callable[[], int]):
        self._codec = codec
        self._compress = compress
        self._draw_seed = draw_seed
        self._streams: dict[Hashable, Stream] = {}
        self._encoded: WeakValueDictionary[int, Parameters] = WeakValueDictionary()

    def pack(self, payload: Payload, receiver: int | None = None) -> EncodedPayload:
        """Encode all parameters in a payload.

        Args:
            payload: the payload to send.
            receiver: the only receiver with these copies; None: the copies of all receivers without separate ones.
        """
        sizes = dict.fromkeys(payload, 0)
        copies: list[tuple[str, Stream, int]] = []

        def encode(leaf: Any, path: Path) -> Any:
            content = path[0]
            if not is_parameters(leaf):
                sizes[content] += leaf_bytes(leaf)
                return leaf
            if self._codec.keeps_copies:
                stream = self._advance(leaf, (receiver, *path))
                copies.append((content, stream, stream.version))
                return stream.copy
            sizes[content] += sum(encoded_bytes(self._codec, leaf.part))
            return self._encode(leaf)

        return EncodedPayload(walk(payload, encode), tuple(sizes.items()), tuple(copies))

    def forget(self) -> None:
        """Forget all streams, because the node has lost its state."""
        self._streams.clear()

    def forget_receiver(self, receiver: int) -> None:
        """Forget a receiver's copies, because it has lost its state."""
        for stream in self._streams.values():
            stream.held.pop(receiver, None)

    def _encode(self, params: Parameters) -> Parameters:
        decoded = self._encoded.get(params.serial)
        if decoded is None:
            decoded = self._encoded[params.serial] = self._compress(self._codec, params, None, self._draw_seed())
        return decoded

    def _advance(self, params: Parameters, path: tuple[Hashable, ...]) -> Stream:
        """Return the stream of this place; parameters other than the last ones give a new version."""
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


def encoded_bytes(codec: Codec, part: ParameterPart) -> tuple[int, int]:
    """Return the bytes on the wire of one encoding of a part: of its trained values, and of its buffers in float32."""
    sizes = part.trained_sizes
    return codec.num_bytes(sizes) if sizes else 0, (part.size - sum(sizes)) * FLOAT32_BYTES
