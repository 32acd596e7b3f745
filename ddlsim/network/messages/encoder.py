"""What a node's messages hold and weigh when parameters are compressed.

Every place in a payload where parameters stand (`model`, `core`, `head` of an algorithm; keys of mappings and positions
of lists count) is a stream of its own. Parameters that are sent again, to one more peer or in one more answer, are
encoded once: all receivers get the same decoded row, which is a job's output like any other.

Codecs that keep copies need the sender to know which version of the copy each receiver holds. The copy of a stream has
a version, one more with each new encoding. A receiver needs all encodings since the version that reached it last; they
are sent together, or the whole copy in float32 if it has none or that is shorter. So a message can be decoded whatever
became of earlier ones; those still on their way count as not there. What has reached a receiver is recorded at its
sender at once, without bytes: acknowledgments of the transport are not simulated. A node that loses its state loses its
own copies and those of others.

What messages hold, and the one walk over it: for its size, for its encoding, and for what else is done to it on its
way out.

A payload is a mapping from names of contents (`model`, `core`, `age`, ...) to leaves, or to mappings and lists of them.
Leaves are parameters, arrays and tensors, numbers, texts and bytes, deferred values, and objects that say their size.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from numbers import Number
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakValueDictionary

import numpy as np

from ddlsim.foundation.errors import DdlsimError
from ddlsim.foundation.units import FLOAT32_BYTES

if TYPE_CHECKING:
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

Path = tuple[Any, ...]
"""Keys and positions that lead to a leaf; the first one names its content."""

Sizes = tuple[tuple[str, int], ...]
"""Bytes by content, in the order of the payload."""


def walk(value: Any, visit: Callable[[Any, Path], Any], path: Path = ()) -> Any:
    """The same mappings and lists with `visit(leaf, path)` in the place of every leaf, in the order of the payload."""
    if isinstance(value, Mapping):
        return {key: walk(child, visit, (*path, key)) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        made = (walk(child, visit, (*path, i)) for i, child in enumerate(value))
        return type(value)._make(made) if hasattr(value, "_make") else type(value)(made)
    return visit(value, path)


def is_parameters(leaf: Any) -> bool:
    """Whether a leaf is a handle to parameters (learning/bank.py, learning/size_learner.py)."""
    return hasattr(leaf, "part")


def as_sent(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A payload as it is when it is sent, whatever its sender changes in place afterwards.

    Mappings and lists are made anew, arrays and tensors copied; the arrays can only be read, since all receivers share
    them.

    Raises:
        DdlsimError: a leaf whose size on the wire cannot be told.
    """
    return {
        name: value if is_parameters(value) else walk(value, _leaf_as_sent, (name,)) for name, value in payload.items()
    }


def _leaf_as_sent(leaf: Any, path: Path) -> Any:
    if is_parameters(leaf) or leaf is None or isinstance(leaf, (Number, str, bytes, np.generic)):
        return leaf
    if hasattr(leaf, "wire_bytes"):  # of a deferred value, or an object that says its size
        return leaf
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        made = leaf.copy()
        made.setflags(write=False)
        return made
    if _is_tensor(leaf):
        return leaf.detach().clone()
    if isinstance(leaf, bytearray):
        return bytes(leaf)
    what = "an array of objects" if isinstance(leaf, np.ndarray) else f"a {type(leaf).__name__}"
    raise DdlsimError(
        f"the content {path[0]} of a message holds {what}, whose bytes on the wire cannot be told. Send parameters, "
        "arrays, tensors, numbers, texts, bytes, or mappings, lists and tuples of them, or an object with an "
        "attribute wire_bytes."
    )


def leaf_bytes(leaf: Any) -> int:
    """Bytes on the wire of a leaf that is sent as it is: parameters as float32, arrays and tensors as they are, texts
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
    wire_bytes = getattr(leaf, "wire_bytes", None)  # of a deferred value
    return SCALAR_BYTES if wire_bytes is None else wire_bytes


def _is_tensor(leaf: Any) -> bool:
    """Whether it is a torch.Tensor, without importing torch."""
    return hasattr(leaf, "element_size")


def content_bytes(value: Any) -> int:
    """Bytes on the wire of one content of a payload, sent as it is: a leaf, or mappings and lists of leaves."""
    if is_parameters(value) or not isinstance(value, (dict, list, tuple, Mapping)):
        return leaf_bytes(value)
    sizes: list[int] = []
    walk(value, lambda leaf, _: sizes.append(leaf_bytes(leaf)))
    return sum(sizes)


def payload_sizes(payload: Mapping[str, Any]) -> Sizes:
    """Bytes by content of a payload that is sent as it is."""
    return tuple([(key, content_bytes(value)) for key, value in payload.items()])


class Follower(Protocol):
    """What is told when a message has reached a receiver."""

    def reached(self, receiver: int, version: int) -> None:
        """A message with this version has arrived."""


@dataclass(slots=True, eq=False)
class Stream:
    """The parameters that a node sends under one name, over time.

    Args:
        update_bytes: of one encoding, buffers apart.
        buffer_bytes: of the buffers, of which only the newest count.
        whole_bytes: of the copy as it is.
        source: serial of what was encoded last.
        copy: what the receivers of that have.
        version: number of encodings.
        held: receiver -> version that reached it.
    """

    update_bytes: int
    buffer_bytes: int
    whole_bytes: int
    source: int
    copy: "Parameters"
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
        sizes: bytes by content, the same for every receiver, apart from the copies.
        copies: of which content, and the version that the message brings.
    """

    payload: Mapping[str, Any]
    sizes: Sizes
    copies: tuple[tuple[str, Stream, int], ...]

    @property
    def streams(self) -> tuple[tuple[Stream, int], ...]:
        """The copies that a receiver has once the message has arrived."""
        return tuple((stream, version) for _, stream, version in self.copies)

    def sizes_to(self, receiver: int) -> Sizes:
        """Bytes by content to one receiver."""
        if not self.copies:
            return self.sizes
        sizes = dict(self.sizes)
        for content, stream, version in self.copies:
            sizes[content] += stream.bytes_to(receiver, version)
        return tuple(sizes.items())

    def bytes_to(self, receiver: int) -> int:
        """Bytes on the wire to one receiver."""
        return sum(num_bytes for _, num_bytes in self.sizes_to(receiver))


class MessageEncoder:
    """Packs the payloads of one node.

    Args:
        codec: see ddlsim.network.messages.compression: Codec.
        compress: (codec, params, copy, seed) -> what receivers decode; see learning/learner.py.
        draw_seed: a random integer for each encoding.
    """

    def __init__(self, codec: "Codec", compress: "Callable[..., Any]", draw_seed: Callable[[], int]):
        self._codec = codec
        self._compress = compress
        self._draw_seed = draw_seed
        self._streams: dict[Hashable, Stream] = {}
        self._encoded: WeakValueDictionary[int, Parameters] = WeakValueDictionary()

    def pack(self, payload: Mapping[str, Any], receiver: int | None = None) -> EncodedPayload:
        """Encodes all parameters in a payload.

        Args:
            payload: what is sent.
            receiver: whose copies these are alone; None: those of all that get no others.
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
        """The node has lost its state."""
        self._streams.clear()

    def forget_receiver(self, receiver: int) -> None:
        """A receiver has lost its state."""
        for stream in self._streams.values():
            stream.held.pop(receiver, None)

    def _encode(self, params: "Parameters") -> "Parameters":
        decoded = self._encoded.get(params.serial)
        if decoded is None:
            decoded = self._encoded[params.serial] = self._compress(self._codec, params, None, self._draw_seed())
        return decoded

    def _advance(self, params: "Parameters", path: tuple[Hashable, ...]) -> Stream:
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


def encoded_bytes(codec: "Codec", part: "ParameterPart") -> tuple[int, int]:
    """Bytes on the wire of one encoding of a part: of its trained values, and of its buffers, as float32."""
    sizes = part.trained_sizes
    return codec.num_bytes(sizes) if sizes else 0, (part.size - sum(sizes)) * FLOAT32_BYTES
