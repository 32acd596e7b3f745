"""One walk over what messages hold."""

import numpy as np

from ddlsim.messages.payload import payload_sizes, walk

PAYLOAD = {"age": 3, "heads": {1: np.zeros(3, np.float32), 2: [np.zeros(2, np.int64), 7]}}


def test_the_walk_visits_every_leaf_with_its_path_in_the_order_of_the_payload():
    seen = []
    walk(PAYLOAD, lambda leaf, path: seen.append(path))
    assert seen == [("age",), ("heads", 1), ("heads", 2, 0), ("heads", 2, 1)]


def test_what_a_visit_returns_stands_in_the_place_of_the_leaf():
    changed = walk(PAYLOAD, lambda leaf, path: len(path))
    assert changed == {"age": 1, "heads": {1: 2, 2: [3, 3]}}
    assert PAYLOAD["age"] == 3


def test_sizes_are_of_contents_whatever_they_hold():
    assert payload_sizes(PAYLOAD) == (("age", 8), ("heads", 3 * 4 + 2 * 8 + 8))


def test_a_leaf_may_say_what_it_takes_on_the_wire():
    class Table:
        wire_bytes = 5

    assert payload_sizes({"table": Table()}) == (("table", 5),)
