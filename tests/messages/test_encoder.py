"""Sizes of compressed messages, by the receivers' copies. Parameters are counters of 100 values."""

from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace

import pytest

from ddlsim.learning.size_learner import SizedPart
from ddlsim.network.messages.encoder import MessageEncoder

serials = count()
MODEL, HEAD = (SizedPart(name, 100, (60, 39)) for name in ("model", "head"))


@dataclass(eq=False)
class Values:
    text: str
    part: SizedPart = MODEL
    size: int = 100
    serial: int = field(default_factory=lambda: next(serials))


def encoder(keeps_copies=True, calls=None) -> MessageEncoder:
    """Return an encoder: an encoding takes 30 bytes and 4 of buffers, the whole model 400."""
    calls = [] if calls is None else calls

    def compress(codec, params, copy, seed):
        calls.append((params.text, copy and copy.text))
        return Values(f"{copy.text if copy else ''}>{params.text}", params.part)

    codec = SimpleNamespace(keeps_copies=keeps_copies, num_bytes=lambda sizes: 30)
    return MessageEncoder(codec, compress, lambda: 0)


def arrive(packed, receiver):
    for stream, version in packed.streams:
        stream.reached(receiver, version)


def test_repeated_parameters_are_encoded_once():
    calls = []
    box, model = encoder(False, calls), Values("a")
    first, again = box.pack({"model": model}), box.pack({"model": model})
    assert first.payload["model"] is again.payload["model"]
    assert calls == [("a", None)]
    assert first.bytes_to(5) == 34


def test_numbers_and_collections_weigh_as_without_compression():
    packed = encoder(False).pack({"age": 3, "models": [Values("a"), Values("b")], "heads": {1: Values("c")}})
    assert packed.bytes_to(0) == 8 + 3 * 34
    assert packed.payload["age"] == 3
    assert [packed.payload["models"][1].text, packed.payload["heads"][1].text] == [">b", ">c"]


def test_receiver_without_a_copy_gets_the_whole_model():
    box, calls = encoder(), []
    packed = box.pack({"model": Values("a")})
    assert (packed.bytes_to(1), packed.payload["model"].text) == (400, "a")
    assert calls == []


def test_receiver_with_the_last_copy_gets_one_encoding():
    box = encoder()
    arrive(box.pack({"model": Values("a")}), 1)
    packed = box.pack({"model": Values("b")})
    assert packed.bytes_to(1) == 34
    assert packed.bytes_to(2) == 400
    assert packed.payload["model"].text == "a>b"


def test_receiver_gets_all_missed_encodings_unless_the_model_is_shorter():
    box = encoder()
    arrive(box.pack({"model": Values("0")}), 1)
    weights = [box.pack({"model": Values(str(i))}).bytes_to(1) for i in range(1, 16)]
    assert weights == [30 * i + 4 if 30 * i + 4 < 400 else 400 for i in range(1, 16)]
    assert weights[12:14] == [394, 400]


def test_message_in_flight_counts_as_not_received():
    box = encoder()
    first = box.pack({"model": Values("a")})
    second = box.pack({"model": Values("b")})
    assert second.bytes_to(1) == 400
    arrive(second, 1)
    arrive(first, 1)  # overtaken
    assert box.pack({"model": Values("c")}).bytes_to(1) == 34


def test_receiver_with_the_current_copy_gets_nothing():
    box, model = encoder(), Values("a")
    arrive(box.pack({"model": model}), 1)
    assert box.pack({"model": model, "age": 1}).bytes_to(1) == 8


def test_each_name_is_a_separate_stream():
    box = encoder()
    arrive(box.pack({"heads": {0: Values("a", HEAD)}}), 1)
    assert box.pack({"heads": {1: Values("b", HEAD)}}).bytes_to(1) == 400
    third = box.pack({"heads": {0: Values("c", HEAD)}})
    assert (third.bytes_to(1), third.payload["heads"][0].text) == (34, "a>c")


@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_lost_state_discards_copies(who):
    box = encoder()
    first = box.pack({"model": Values("a")})
    arrive(first, 1)
    arrive(first, 2)
    box.forget() if who == "sender" else box.forget_receiver(1)
    packed = box.pack({"model": Values("b")})
    assert packed.bytes_to(1) == 400
    assert packed.bytes_to(2) == (400 if who == "sender" else 34)
    assert packed.payload["model"].text == ("b" if who == "sender" else "a>b")
