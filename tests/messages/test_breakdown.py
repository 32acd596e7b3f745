"""Bytes by message content: by hand, and against the sizes of compressed messages."""

from dataclasses import dataclass

import numpy as np
import pytest

from ddlsim.network.messages.compression import COMPRESSIONS
from ddlsim.network.messages.encoder import MessageEncoder, payload_sizes
from ddlsim.network.messages.message import Message, PayloadBreakdown


def message(dst, payload, size, round_num=0, header=10, **more):
    return Message(0, dst, round_num, "push", payload, size, header, **more)


@dataclass(frozen=True)
class Part:
    trained_sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.trained_sizes)


@dataclass(frozen=True, eq=False)
class Params:
    serial: int
    part: Part

    @property
    def size(self) -> int:
        return self.part.size


def params(serial=0, sizes=(30, 12)):
    return Params(serial, Part(sizes))


def test_contents_of_a_round_add_up_over_messages():
    contents = PayloadBreakdown()
    both, one = {"head": np.zeros(3, np.float32), "age": 4}, {"head": np.zeros(5, np.float32)}
    assert payload_sizes(both) == (("head", 12), ("age", 8))
    sizes = payload_sizes(both)
    contents.count([message(1, both, 20, sizes=sizes), message(2, both, 20, sizes=sizes), message(3, one, 20)])
    contents.count([message(1, {}, 0, round_num=1)])
    assert list(contents.rows()) == [
        {"round": 1, "content": "age", "messages": 2, "bytes": 2 * 8},
        {"round": 1, "content": "head", "messages": 3, "bytes": 2 * 12 + 20},
        {"round": 1, "content": "header", "messages": 3, "bytes": 30},
        {"round": 2, "content": "header", "messages": 1, "bytes": 10},
    ]


def test_message_from_a_node_to_itself_uses_no_link():
    contents = PayloadBreakdown()
    contents.count([message(0, {"age": 4}, 8)])
    assert list(contents.rows()) == []


@pytest.mark.parametrize("name", sorted(name for name in COMPRESSIONS if name != "none"))
def test_bytes_of_encoded_contents_add_up_to_their_messages(name):
    codec = COMPRESSIONS[name]()
    serials = iter(range(100, 200))
    encoder = MessageEncoder(
        codec, lambda codec, sent, copy, seed: params(next(serials), sent.part.trained_sizes), lambda: 0
    )
    contents, total = PayloadBreakdown(), 0
    for turn in range(3):
        payload = {"core": params(turn), "means": {1: params(10 + turn, (7,)), 2: params(20 + turn, (7,))}, "age": turn}
        packed = encoder.pack(payload)
        sent = [message(dst, packed.payload, packed.bytes_to(dst), turn, sizes=packed.sizes_to(dst)) for dst in (1, 2)]
        contents.count(sent)
        total += sum(each.payload_bytes for each in sent)
        for stream, version in packed.streams:
            stream.reached(1, version)  # never to the other
    found = [row for row in contents.rows() if row["content"] != "header"]
    assert {row["content"] for row in found} == {"core", "means", "age"}
    assert sum(row["bytes"] for row in found) == total
