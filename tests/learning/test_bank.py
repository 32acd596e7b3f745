"""Rows of a bank's matrix, read and written together."""

import pytest
import torch
from counted_operators import CountedOperators

from ddlsim.learning.bank import Rows, stacked_rows, store_rows
from ddlsim.learning.layout import Entry, Part

PART = Part("net", "core", (Entry("weight", (3,), 0, 3, True),))


@pytest.fixture
def filled():
    """Make handles to rows of 1, 1, 1; 2, 2, 2; ..."""
    rows = Rows(torch.device("cpu"))
    return lambda count: [rows.store(PART, torch.full((3,), float(number))) for number in range(1, count + 1)]


def test_rows_are_stacked_in_the_requested_order(filled):
    held = filled(40)
    found = stacked_rows([held[place].row for place in (30, 2, 2)])
    assert found.tolist() == [[31.0] * 3, [3.0] * 3, [3.0] * 3]
    found += 1
    assert held[2].values().tolist() == [3.0] * 3


def test_unreferenced_row_is_not_stored(filled):
    held = filled(4)
    store_rows([held[3].row, None, held[0].row], torch.tensor([[7.0] * 3, [8.0] * 3, [9.0] * 3]))
    assert [params.values()[0].item() for params in held] == [9.0, 2.0, 3.0, 7.0]
    store_rows([None, None], torch.zeros(2, 3))
    assert [params.values()[0].item() for params in held] == [9.0, 2.0, 3.0, 7.0]


def test_the_number_of_rows_does_not_change_the_number_of_operators(filled):
    counts = set()
    for number in (2, 200):
        held = filled(number)
        rows = [params.row for params in held]
        with CountedOperators() as operators:
            store_rows(rows, 2 * stacked_rows(rows))
        counts.add(operators.found.total())
        assert held[-1].values().tolist() == [2.0 * number] * 3
    assert len(counts) == 1


def test_a_repeated_wave_keeps_its_places(filled):
    (params,) = filled(1)
    place, free = params.row.slot, len(params.row.bank._free)
    assert params.row.allocate() == place and len(params.row.bank._free) == free
