"""The projection on the simplex against sorting in float64, on every instruction set of this machine."""

import numpy as np
import pytest
import reference_kernels as reference
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ddlsim.kernels import project_simplex

INF = float("inf")
NAN = float("nan")
DTYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float32: 3e-7, torch.float64: 1e-14}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dtype=st.sampled_from(DTYPES),
    num_columns=st.sampled_from([1, 2, 3, 8, 10, 50, 127, 128, 129, 1003]),  # full and part vectors, one chunk and more
    log_scale=st.floats(-3, 2),
    nearly_feasible=st.booleans(),
    seed=st.integers(0, 999),
)
def test_projection_equals_the_one_by_sorting(isa, dtype, num_columns, log_scale, nearly_feasible, seed):
    draw, scale = torch.Generator().manual_seed(seed), 10.0**log_scale
    rows = torch.randn(37, num_columns, dtype=dtype, generator=draw) * scale
    if nearly_feasible:
        start = torch.rand(37, num_columns, dtype=dtype, generator=draw)
        rows, scale = start / start.sum(dim=1, keepdim=True) + rows / scale * 0.3 / num_columns, 1.0
    atol = TOLERANCE[dtype] * max(1, scale)  # the precision of differences in a row of large numbers
    torch.testing.assert_close(project_simplex(rows).double(), reference.project_simplex(rows), atol=atol, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_columns", [4, 64, 256])  # powers of two: the rows are feasible without a rounding
def test_feasible_row_is_unchanged(isa, dtype, num_columns):
    rows = torch.full((3, num_columns), 1 / num_columns, dtype=dtype)
    assert torch.equal(project_simplex(rows), rows)
    corner = torch.zeros(1, num_columns, dtype=dtype)
    corner[0, 1] = 1
    assert torch.equal(project_simplex(corner), corner)


@pytest.mark.parametrize("num_columns", [6, 300])
def test_equal_entries_share_equally(isa, num_columns):
    rows = torch.full((9, num_columns), 5.0)
    rows[:, num_columns // 2 :] = -3.0
    expected = torch.tensor([2 / num_columns, 0.0]).repeat_interleave(num_columns // 2).expand(9, -1)
    torch.testing.assert_close(project_simplex(rows), expected)


@pytest.mark.parametrize("repeat", [1, 100])
def test_infinities_and_nan(isa, repeat):
    rows = torch.tensor([[INF, 1, 2], [INF, INF, 0], [-INF, 0.5, 0.5], [NAN, 1, 0], [-INF, -INF, -INF], [3, 0, 0]])
    rows = torch.cat([rows, torch.full((6, 3 * repeat - 3), -INF)], dim=1)
    expected = torch.zeros_like(rows)
    expected[:, :3] = torch.tensor([[1, 0, 0], [0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 0], [0, 0, 0], [1, 0, 0]])
    expected[3:5] = NAN
    torch.testing.assert_close(project_simplex(rows), expected, equal_nan=True)


@pytest.mark.parametrize("num_columns", [7, 500])
def test_huge_numbers_do_not_overflow(isa, num_columns):
    rows = torch.full((2, num_columns), -3e38)
    rows[0, 3] = 3e38
    rows[1, [1, 4]] = 1e30
    expected = torch.zeros(2, num_columns)
    expected[0, 3] = 1
    expected[1, [1, 4]] = 0.5
    assert torch.equal(project_simplex(rows), expected)


def test_results_are_feasible(isa):
    for num_columns in (5, 90, 4000):
        projected = project_simplex(torch.randn(50, num_columns))
        assert (projected >= 0).all()
        torch.testing.assert_close(projected.double().sum(dim=1), torch.ones(50).double(), atol=3e-6, rtol=0)


def test_thread_count_and_neighbors_do_not_change_a_bit(isa):
    for num_columns in (10, 700):
        rows = torch.randn(5000 if num_columns == 10 else 90, num_columns)
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        expected = project_simplex(rows)
        torch.set_num_threads(2)
        assert torch.equal(project_simplex(rows), expected)
        torch.set_num_threads(before)
        assert torch.equal(project_simplex(rows[3:4]), expected[3:4])


def test_in_place_and_strided_rows(isa):
    for num_columns in (20, 200):
        base = torch.randn(30, num_columns + 9)
        rows = base[::3, 4 : 4 + num_columns]
        expected = project_simplex(rows.clone())
        assert project_simplex(rows, out=rows) is rows
        assert torch.equal(rows, expected)


def test_one_row_and_numpy():
    projected = project_simplex(np.array([0.0, 2.0, 1.5]))
    assert isinstance(projected, np.ndarray)
    assert projected.tolist() == [0, 0.75, 0.25]


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (torch.zeros(2, 3, dtype=torch.int64), TypeError),
        (torch.zeros(2, 3, 4), ValueError),
        (torch.zeros(2, 0), ValueError),
    ],
)
def test_wrong_rows_are_refused(rows, error):
    with pytest.raises(error):
        project_simplex(rows)
