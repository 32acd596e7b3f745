"""Messages made from payloads: privacy before sending, compression, and bytes."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from ddlsim.engine.clock import RunParts
from ddlsim.foundation.errors import DdlsimError
from ddlsim.network.messages.compression import Codec
from ddlsim.network.messages.encoder import MessageEncoder, Payload, content_bytes, payload_sizes
from ddlsim.network.messages.gaussian import PrivateSender
from ddlsim.network.messages.message import Keys, Message, Nodes
from ddlsim.node.ports import Model
from ddlsim.scenario.network_sections import Privacy


class MessagePacker:
    """Messages of all nodes of one run.

    Args:
        parts: objects of the run.
        codec: compression of parameters, see network/messages/compression.py; None: no compression.
        privacy: clipping and noise before compression, see network/messages/gaussian.py; None: neither.
        released: (node, round), called at each release of parameters under `privacy`.
    """

    def __init__(
        self,
        parts: RunParts,
        codec: Codec | None = None,
        privacy: Privacy | None = None,
        released: Callable[[int, int], None] = lambda *_: None,
    ):
        self._network, self._members, self._run, self._compute = parts.network, parts.members, parts.run, parts.compute
        self._released = released
        self.use_codec(codec)
        self._senders = [] if privacy is None else [self._sender(privacy, node) for node in range(parts.run.num_nodes)]

    def use_codec(self, codec: Codec | None) -> None:
        """Compress messages from now on with this codec; copies that receivers had cannot be used with it."""
        self._encoders = None if codec is None else [self._encoder(codec, member.id) for member in self._members]

    def starts_with(self, node: int, models: Sequence[Model]) -> None:
        """Register models that a node has drawn, which contain no information on data."""
        if node < len(self._senders):
            self._senders[node].starts_with(models)

    def publish(self, node: int, payload: Payload) -> None:
        """Handle a payload that peers may ask for. Default: nothing."""

    def release(self, sender: int, payload: Payload, round_num: int) -> Payload:
        """Return the payload with clipped and noised parameters under `privacy`; a server has no data."""
        return self._senders[sender].protect(payload) if sender < len(self._senders) else payload

    def sent_in_clear(self, node: int) -> bool:
        """Whether a node has sent parameters without the privacy mechanism."""
        return False

    def messages(
        self, sender: int, receivers: Nodes, round_num: int, kind: str, payload: Payload, keys: Keys = None
    ) -> list[Message]:
        """Return the messages that bring a payload to the receivers."""
        if not receivers:
            return []
        header_bytes = self._network.header_bytes
        if self._encoders is not None:
            packed = self._encoders[sender].pack(payload, self._separate_receiver(sender, receivers))
            whole = Message(sender, receivers, round_num, kind, packed.payload, 0, header_bytes, packed.streams, keys)
            return [
                replace(whole, dst=each, payload_bytes=packed.bytes_to(each), sizes=packed.sizes_to(each))
                for each in receivers
            ]
        if len(payload) == 1:  # nearly always
            (content,) = payload.values()
            size = content_bytes(content)
            return [Message(sender, receivers, round_num, kind, payload, size, header_bytes, keys=keys)]
        sizes = payload_sizes(payload)
        size = sum(num_bytes for _, num_bytes in sizes)
        return [Message(sender, receivers, round_num, kind, payload, size, header_bytes, keys=keys, sizes=sizes)]

    def contribution(self, sender: int, payload: Payload) -> tuple[Payload, int]:
        """Return a payload as the members of a collective receive it, and its bytes.

        Raises:
            DdlsimError: the compression sends changes of a receiver's copy.
        """
        if self._encoders is None:
            return payload, sum(num_bytes for _, num_bytes in payload_sizes(payload))
        packed = self._encoders[sender].pack(payload)
        if packed.copies:
            text = "this network.compression sends changes of a receiver's copy, and a collective has no fixed receiver"
            raise DdlsimError(f"node.{next(iter(payload))}: {text}. Choose float16, int8 or none.")
        return packed.payload, packed.bytes_to(sender)

    def forget(self, node: int) -> None:
        """Forget a node's releases, and its and others' copies of each other's parameters, because it has lost its
        state.
        """
        if node < len(self._senders):
            self._senders[node].forget()
        if self._encoders is not None:
            self._encoders[node].forget()
            for encoder in self._encoders:
                encoder.forget_receiver(node)

    def _separate_receiver(self, sender: int, receivers: Nodes) -> int | None:
        """Return the receiver with separate copies of a node's messages; None: all receivers share the same."""
        return None

    def _encoder(self, codec: Codec, node: int) -> MessageEncoder:
        return MessageEncoder(codec, self._compute.compress, lambda: self._draw_seed("compression", node))

    def _sender(self, privacy: Privacy, node: int) -> PrivateSender:
        return PrivateSender(
            privacy.clip,
            privacy.noise_multiplier,
            privacy.clips == "update",
            self._compute.compress,
            lambda: self._draw_seed("privacy noise", node),
            lambda: self._released(node, self._members[node].node.round_num),
        )

    def _draw_seed(self, purpose: str, node: int) -> int:
        return int(self._run.rng(purpose, node).integers(2**63 - 1))
