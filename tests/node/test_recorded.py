"""Recorded values become JSON or are refused with their name."""

import json

import numpy as np
import pytest
import torch

from ddlsim.foundation.errors import DdlsimError
from ddlsim.node.arguments import refuse_simulator_rows, to_json_value
from ddlsim.node.parameters import Deferred
from ddlsim.tasks.base import Metric, rows_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, 3),
        (None, None),
        ("chosen", "chosen"),
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.bool_(True), True),
        (torch.tensor(2), 2),
        (torch.tensor([1.5, 2.5]), [1.5, 2.5]),
        (np.arange(3), [0, 1, 2]),
        ([np.float64(1.0), (2, np.int8(3))], [1.0, [2, 3]]),
        ({"a": {"b": np.zeros((1, 2))}}, {"a": {"b": [[0.0, 0.0]]}}),
    ],
)
def test_numbers_of_any_library_are_written_as_numbers(value, expected):
    found = to_json_value("x", value)
    assert found == expected and json.loads(json.dumps(found)) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({1, 2}, "got a set."),
        ([object()], "got a object."),
        ({1: 2}, "got a dict."),
        (Deferred(lambda: 1), "got a Deferred; call it for its value."),
        (np.array([object()]), "got a object."),
        (b"x", "got a bytes."),
    ],
)
def test_unsupported_value_is_refused_with_its_name(value, text):
    with pytest.raises(DdlsimError) as raised:
        to_json_value("similarity", value)
    assert str(raised.value).startswith("node.record: similarity: expected a number") and text in str(raised.value)


@pytest.mark.parametrize(
    "name",
    ["accuracy", "test_loss", "confusion", "bytes_sent", "accuracy_lowest_test_loss", "round_last_s", "balanced"],
)
def test_names_of_simulator_rows_are_refused(name):
    with pytest.raises(DdlsimError, match=rf"node.record: {name}: .* such as train_{name}"):
        refuse_simulator_rows(name, rows_of([Metric("balanced")]))


def test_other_names_are_accepted():
    for name in ("train_accuracy", "head", "pulled_from"):
        refuse_simulator_rows(name, ())
