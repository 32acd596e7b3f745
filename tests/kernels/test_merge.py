"""Merges against a float64 sum, on every instruction set of this machine."""

import numpy as np
import pytest
import torch
from random_models import random_params
from scipy import sparse

from ddlsim.foundation import native
from ddlsim.kernels import aligned_rows, merge, merge_rows


def random_mixing(rng, num_targets, num_sources, density=0.3):
    mixing = sparse.random(num_targets, num_sources, density, format="csr", random_state=rng)
    mixing.data /= np.repeat(
        np.maximum(mixing.sum(1).A1 if hasattr(mixing.sum(1), "A1") else mixing.sum(1), 1e-9), np.diff(mixing.indptr)
    )
    return mixing.astype(np.float32)


@pytest.mark.parametrize("num_columns", [1, 7, 16, 63, 200, 4099])
def test_merge_is_the_mixing_matrix_times_the_parameters(isa, rng, num_columns):
    params = random_params(rng, 9, num_columns)
    mixing = random_mixing(rng, 9, 9) + sparse.eye(9, format="csr", dtype=np.float32)
    expected = mixing.toarray().astype(np.float64) @ params.double().numpy()
    np.testing.assert_allclose(merge(params, mixing).numpy(), expected, atol=3e-6)


def test_dense_scipy_and_torch_mixing_give_the_same_bits(rng):
    params = random_params(rng, 12, 500)
    mixing = random_mixing(rng, 12, 12) + sparse.eye(12, format="csr", dtype=np.float32)
    mixing.sort_indices()
    expected = merge(params, mixing)
    dense = mixing.toarray()
    for same in (dense, torch.from_numpy(dense)):
        assert torch.equal(merge(params, same), expected)
    assert np.array_equal(merge(params.numpy(), dense), expected.numpy())


def test_in_place_and_double_buffered_merges_give_the_same_bits(isa, rng):
    params = random_params(rng, 40, 3001)
    mixing = random_mixing(rng, 40, 40) + sparse.eye(40, format="csr", dtype=np.float32)
    expected = merge(params, mixing)
    assert merge(params, mixing, out=params) is params
    assert torch.equal(params, expected)


def test_thread_count_does_not_change_a_bit(isa, rng):
    params = random_params(rng, 30, 20_011)
    mixing = random_mixing(rng, 30, 30)
    results = []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(merge(params, mixing))
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_merging_rows_one_by_one_gives_the_same_bits_as_together(rng):
    together = random_params(rng, 20, 2500)
    alone = together.clone()
    mixing = random_mixing(rng, 10, 10)
    targets = np.arange(10, 20)
    merge_rows(together, mixing.indptr, mixing.indices, mixing.data, targets)
    for target in range(10):
        part = slice(mixing.indptr[target], mixing.indptr[target + 1])
        count = part.stop - part.start
        merge_rows(alone, [0, count], mixing.indices[part], mixing.data[part], targets[target : target + 1])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("num_targets", [2, 6, 13])
def test_a_dense_mixing_has_the_bits_of_the_same_rows_merged_alone(isa, rng, num_targets):
    params = random_params(rng, 13, 1007)
    mixing = rng.random((num_targets, 13), dtype=np.float32)
    together = merge(params, mixing)
    for target in range(num_targets):
        assert torch.equal(merge(params, mixing[target : target + 1])[0], together[target])
    expected = torch.from_numpy(mixing).double() @ params.double()
    torch.testing.assert_close(together.double(), expected, atol=1e-5, rtol=0)


def test_scattered_rows_are_merged_where_they_lie(isa, rng):
    matrix = random_params(rng, 50, 700)
    before = matrix.double().numpy().copy()
    merge_rows(matrix, [0, 2, 5], [40, 3, 7, 7, 19], [0.25, 0.75, 0.5, 0.25, 0.25], [11, 48])
    expected = before.copy()
    expected[11] = 0.25 * before[40] + 0.75 * before[3]
    expected[48] = 0.75 * before[7] + 0.25 * before[19]
    np.testing.assert_allclose(matrix.numpy(), expected, atol=1e-6)


def test_sources_that_are_targets_are_read_before_they_are_written(rng):
    matrix = random_params(rng, 4, 300)
    before = matrix.clone()
    merge_rows(matrix, [0, 1, 2], [1, 0], [1.0, 1.0], [0, 1])
    assert torch.equal(matrix[:2], before[:2].flip(0))


def test_columns_outside_the_range_are_unchanged(isa, rng):
    matrix = random_params(rng, 6, 100)
    before = matrix.clone()
    merge_rows(matrix, [0, 2], [2, 3], [0.5, 0.5], [0], columns=(13, 77))
    assert torch.equal(matrix[0, :13], before[0, :13])
    assert torch.equal(matrix[0, 77:], before[0, 77:])
    assert torch.equal(matrix[0, 13:77], 0.5 * before[2, 13:77] + 0.5 * before[3, 13:77])
    assert torch.equal(matrix[1:], before[1:])


def test_a_column_range_has_the_bits_of_the_whole(rng):
    params = random_params(rng, 20, 1000)
    mixing = random_mixing(rng, 20, 20) + sparse.eye(20, format="csr", dtype=np.float32)
    whole = merge(params, mixing)
    assert torch.equal(merge(params, mixing, columns=(333, 901)), whole[:, 333:901])
    out = torch.full((20, 1000), 7.0)
    merge(params, mixing, columns=(333, 901), out=out)
    assert torch.equal(out[:, 333:901], whole[:, 333:901])
    assert (out[:, :333] == 7).all()


def test_a_row_without_entries_keeps_the_model(rng):
    params = random_params(rng, 3, 50)
    mixing = np.array([[0.5, 0.5, 0], [0, 0, 0], [0, 0, 1.0]])
    assert torch.equal(merge(params, mixing)[1:], params[1:])
    expected = merge(params, mixing)
    assert torch.equal(merge(params, mixing, out=params), expected)


def test_nan_reaches_only_the_rows_that_read_it(rng):
    params = random_params(rng, 3, 50)
    params[0, 20] = float("nan")
    merged = merge(params, np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]]))
    assert merged[0].isnan().nonzero().tolist() == [[20]]
    assert not merged[1:].isnan().any()


def test_one_node_keeps_its_model():
    params = torch.tensor([[1.0, 2.0, 3.0]])
    assert torch.equal(merge(params, np.ones((1, 1))), params)


def test_unpadded_and_strided_rows_are_merged(isa, rng):
    base = torch.from_numpy(rng.standard_normal((8, 301), dtype=np.float32))
    params = base[::2, 5:]
    mixing = np.full((4, 4), 0.25)
    expected = params.double().mean(0).expand(4, -1)
    torch.testing.assert_close(merge(params, mixing).double(), expected, atol=1e-6, rtol=0)


def test_every_instruction_set_agrees_to_a_rounding(rng):
    params = random_params(rng, 10, 999)
    mixing = random_mixing(rng, 10, 10)
    extension = native.extension()
    before = extension.isa()
    results = {}
    for name in extension.isas():
        extension.set_isa(name)
        results[name] = merge(params, mixing)
    extension.set_isa(before)
    for result in results.values():
        torch.testing.assert_close(result, results[before], atol=1e-6, rtol=1e-6)
    fused = [result for name, result in results.items() if name != "x86-64-v2"]
    assert all(torch.equal(result, fused[0]) for result in fused)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0, 1], [9], [1.0], [0]), IndexError, r"sources must lie in 0\.\.4, found 9\.\.9"),
        (([0, 2], [-1, 3], [1.0, 1.0], [0]), IndexError, r"sources must lie in 0\.\.4, found -1\.\.3"),
        (([0, 1], [0], [1.0], [5]), IndexError, r"targets must lie in 0\.\.4, found 5\.\.5"),
        (([0, 1, 2], [0, 0], [1.0, 1.0], [3, 3]), ValueError, "targets must all be different"),
        (([0, 2], [0], [1.0], [1]), ValueError, r"indptr \[2\], sources \[1\], weights \[1\] and 1 targets do not fit"),
        (([1, 1], [0], [1.0], [1]), ValueError, "do not fit"),
        (([], [], [], []), ValueError, "do not fit"),
        (([0, 2, 1], [0], [1.0], [1, 2]), ValueError, "indptr must be non-decreasing"),
    ],
)
def test_wrong_row_numbers_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        merge_rows(torch.zeros(5, 8), *arguments)


def test_an_empty_row_that_keeps_no_model_is_refused():
    with pytest.raises(ValueError, match="mixing row 1 has no entries"):
        merge(torch.zeros(3, 8), np.array([[1.0, 0, 0], [0, 0, 0]]))


@pytest.mark.parametrize(
    ("params", "error"),
    [
        (torch.zeros(3, 4, dtype=torch.float64), TypeError),
        (torch.zeros(4, 3).t(), ValueError),
        (torch.zeros(4), ValueError),
        (torch.zeros(3, 4, requires_grad=True), ValueError),
        ([[1.0]], TypeError),
    ],
)
def test_wrong_matrices_are_refused(params, error):
    with pytest.raises(error):
        merge(params, np.eye(3))


def test_an_output_that_overlaps_its_input_is_refused():
    params = torch.zeros(6, 10)
    with pytest.raises(ValueError, match="overlap"):
        merge(params[:3], np.eye(3), out=params[1:4])


def test_aligned_rows_start_on_cache_lines():
    for num_columns in (1, 16, 1000, 1024, 62_006):
        rows = aligned_rows(3, num_columns)
        assert rows.shape == (3, num_columns)
        assert all(row.data_ptr() % 64 == 0 for row in rows)
        assert rows.stride(0) * 4 % 4096 != 0
        assert not rows.any()


def test_a_merge_is_seen_by_autograds_version_counter():
    matrix = torch.zeros(4, 8)
    version = matrix._version
    merge_rows(matrix, [0, 1], [0], [1.0], [1])
    assert matrix._version > version
