"""Coordinate-wise trimmed means against their plain reference, and invalid arguments."""

import numpy as np
import pytest
import reference_kernels as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ddlsim import kernels
from ddlsim.foundation import native


@settings(max_examples=60, deadline=None)
@given(data=st.data(), count=st.integers(1, 50), columns=st.integers(1, 200), seed=st.integers(0, 2**31))
def test_trimmed_means_equal_the_reference(data, count, columns, seed):
    cut = data.draw(st.integers(0, (count - 1) // 2))
    params = torch.randn(count, columns, generator=torch.Generator().manual_seed(seed))
    found = trimmed_mean(params, cut).double()
    torch.testing.assert_close(found, reference.trimmed_mean(params, cut), atol=1e-6, rtol=1e-6)


def trimmed_mean(params, cut):
    """Return the kernel's trimmed mean of all rows, [P]."""
    out = np.empty((1, params.shape[1]), np.float32)
    kernels.trimmed_mean_rows(params, [0, len(params)], np.arange(len(params)), [cut], torch.from_numpy(out), [0])
    return torch.from_numpy(out[0])


def test_largest_cut_of_an_odd_number_of_rows_is_torchs_median_to_the_bit():
    params = torch.randn(21, 1000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(trimmed_mean(params, 10), params.median(dim=0).values)


def test_ties_and_equal_rows_are_averaged():
    params = np.array([[1, 5], [1, 5], [1, 7], [9, 7]], np.float32)
    assert trimmed_mean(params, 1).tolist() == [1, 6]


def test_nan_is_trimmed_as_the_largest_value():
    params = np.array([[1, np.nan], [2, 3], [np.nan, 4]], np.float32)
    assert trimmed_mean(params, 1).tolist() == [2, 4]


def test_kept_row_joins_the_mean_untrimmed():
    matrix = np.array([[100], [1], [2], [9], [0]], np.float32)
    kernels.trimmed_mean_rows(matrix, [0, 3], [1, 2, 3], [1], matrix, [4], [0])
    assert matrix[4, 0] == 51  # 2 is left of the three, and 100


def test_results_are_the_same_bits_on_every_instruction_set_and_in_any_batch():
    generator = torch.Generator().manual_seed(1)
    params, chosen = torch.randn(30, 1111, generator=generator), native.extension().isa()
    found = []
    try:
        for name in native.extension().isas():
            native.extension().set_isa(name)
            out = torch.zeros(2, 1111)
            kernels.trimmed_mean_rows(params, [0, 7, 30], list(range(30)), [2, 5], out, [1, 0])
            found += [out[0], trimmed_mean(params[7:], 5)]
    finally:
        native.extension().set_isa(chosen)
    assert all(torch.equal(one, found[0]) for one in found)


@pytest.mark.parametrize(
    ("indptr", "sources", "cuts", "targets", "words"),
    [
        ([0, 2], [0, 1], [1], [3], "below half"),
        ([0, 2], [0, 1], [-1], [3], "below half"),
        ([0, 3], [0, 1], [0], [3], "offsets"),
        ([0, 0], [], [0], [3], "one source or more"),
        ([0, 2], [0, 9], [0], [3], "sources"),
        ([0, 2], [0, 1], [0], [1], "not sources"),
        ([0, 2], [0, 1], [0, 0], [3], "for 1 targets"),
    ],
)
def test_incompatible_arguments_are_refused(indptr, sources, cuts, targets, words):
    matrix = np.zeros((4, 3), np.float32)
    with pytest.raises((ValueError, IndexError), match=words):
        kernels.trimmed_mean_rows(matrix, indptr, sources, cuts, matrix, targets)
