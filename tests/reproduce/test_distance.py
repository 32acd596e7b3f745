"""The common distance of the cells of a table, on made-up cells, by hand."""

import pytest

from ddlsim.runs.reproduce.matrix import Cell
from ddlsim.runs.reproduce.published import CellFile, Published
from ddlsim.runs.reproduce.result import Result, common_distance


def result(ours, run=1, wanted=4, **published):
    cell = Cell("cell", None, tuple(range(wanted)), CellFile(published=Published(**published) if published else None))
    return Result(cell, tuple(range(run)), ours, None, ())


def test_cells_are_weighted_by_their_certainty():
    found = common_distance([result(9.0, run=1, mean=10.0, std=0.3), result(18.0, run=4, mean=20.0, std=0.4)])
    # The variance of a seed is 4 (0.09 + 0.16) / 6 = 1/6; the differences -1 and -2 have 5/4 and 1/2 of it.
    assert (found.cells, found.seed_std) == (2, pytest.approx((1 / 6) ** 0.5))
    assert found.mean == pytest.approx((4.8 * -1 + 12 * -2) / 16.8)
    assert found.error == pytest.approx(16.8**-0.5)
    assert found.chi_squared == pytest.approx(4.8 * (5 / 7) ** 2 + 12 * (2 / 7) ** 2)
    assert found.text(2) == (
        "the 2 cells with a published deviation lie -1.71 ± 0.24 from the published means together (a seed deviates by "
        "0.41, those published taken together), and scatter about it by chi squared 3.4 with 1 degrees of freedom"
    )


def test_cells_without_a_mean_or_a_deviation_are_left_out():
    others = [
        result(9.0),
        result(9.0, mean=10.0),
        result(9.0, mean=10.0, std=0.0),
        result(None, mean=10.0, std=0.3),
        result(9.0, wanted=1, mean=10.0, std=0.3),
    ]
    one = result(9.0, mean=10.0, std=0.3)
    assert common_distance([one, *others]) is None
    assert common_distance([one, one, *others]).cells == 2
