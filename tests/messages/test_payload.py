"""The walk over message payloads."""

from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ddlsim.foundation.errors import DdlsimError
from ddlsim.network.messages.encoder import as_sent, payload_sizes, walk

PAYLOAD = {"age": 3, "heads": {1: np.zeros(3, np.float32), 2: [np.zeros(2, np.int64), 7]}}


def test_the_walk_visits_every_leaf_with_its_path_in_the_order_of_the_payload():
    seen = []
    walk(PAYLOAD, lambda leaf, path: seen.append(path))
    assert seen == [("age",), ("heads", 1), ("heads", 2, 0), ("heads", 2, 1)]


def test_visit_replaces_a_leaf_by_its_result():
    changed = walk(PAYLOAD, lambda leaf, path: len(path))
    assert changed == {"age": 1, "heads": {1: 2, 2: [3, 3]}}
    assert PAYLOAD["age"] == 3


def test_sizes_are_listed_by_content():
    assert payload_sizes(PAYLOAD) == (("age", 8), ("heads", 3 * 4 + 2 * 8 + 8))


def test_attribute_wire_bytes_sets_the_bytes_of_a_leaf():
    class Table:
        wire_bytes = 5

    assert payload_sizes({"table": Table()}) == (("table", 5),)


Pair = namedtuple("Pair", "one other")


class Params:
    part = SimpleNamespace(size=5)


@pytest.mark.parametrize(
    ("leaf", "num_bytes"),
    [
        (torch.zeros(1000), 4000),
        (torch.zeros(3, dtype=torch.int64), 24),
        ("größe", 7),
        (b"12345", 5),
        (np.float32(1), 8),
        (True, 8),
        (None, 8),
        (Params(), 20),
        (Pair(np.zeros(2), "ab"), 18),
        ({"deep": [torch.zeros(2), {"er": "abc"}]}, 11),
    ],
)
def test_bytes_of_leaves_follow_their_types(leaf, num_bytes):
    assert payload_sizes(as_sent({"x": leaf})) == (("x", num_bytes),)


@pytest.mark.parametrize(
    ("leaf", "what"), [({1, 2}, "a set"), ([object()], "a object"), (np.array([None]), "an array of objects")]
)
def test_leaf_of_unknown_size_is_an_error_that_names_its_content(leaf, what):
    with pytest.raises(DdlsimError, match=rf"content table: expected parameters, .*, got {what}. Give it"):
        as_sent({"table": leaf})


def test_changes_in_place_after_sending_do_not_reach_the_receiver():
    array, tensor, counts, nested = np.zeros(2), torch.zeros(2), [1], {"a": [np.ones(1)]}
    sent = as_sent({"array": array, "tensor": tensor, "counts": counts, "nested": nested})
    array[0], tensor[0], nested["a"][0][0] = 7, 7, 7
    counts.append(2)
    assert sent["array"].tolist() == [0, 0] and sent["tensor"].tolist() == [0, 0]
    assert sent["counts"] == [1] and sent["nested"]["a"][0].tolist() == [1]


def test_receivers_share_an_array_and_cannot_write_into_it():
    with pytest.raises(ValueError, match="read-only"):
        as_sent({"array": np.zeros(2)})["array"] += 1


def test_named_tuples_keep_their_type():
    assert walk({"pair": Pair(1, 2)}, lambda leaf, path: -leaf) == {"pair": Pair(-1, -2)}
