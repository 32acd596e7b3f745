"""The overhead of a kernel call: matrices of 2 x 16 floats, against torch's calls on the same matrices.

The overhead is checking arguments, finding addresses and making the result; it does not matter for large matrices. The
alternative is the torch call with the same result; for reading one matrix, the three attributes that any
binding by address needs. One thread, mean of 500 calls; helpers/turns.py describes the timing.
"""

import numpy as np
import pytest
import torch
from scipy import sparse
from torch.nn import functional as F
from turns import compare

from ddlsim.kernels import aligned_rows, cosine, inverse_l2, merge, merge_rows, project_simplex
from ddlsim.kernels.matrices import rows_of

N, P, CALLS = 2, 16, 500


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def params():
    return aligned_rows(N, P).normal_()


def timed(benchmark, ours, name, theirs):
    compare(benchmark, ours, {name: theirs}, calls=CALLS)


def test_reading_a_matrix(benchmark, params):
    found = rows_of(params, "params")
    assert found[:4] == (params.data_ptr(), params.stride(0), N, P)
    by_hand = lambda: (params.data_ptr(), params.stride(), params.shape)  # noqa: E731
    timed(benchmark, lambda: rows_of(params, "params"), "data_ptr(), stride(), shape", by_hand)


@pytest.mark.parametrize("kind", ["scipy CSR", "torch dense"])
def test_merge(benchmark, params, kind):
    weights, out = torch.rand(N, N), aligned_rows(N, P)
    mixing = sparse.csr_matrix(weights.numpy()) if kind == "scipy CSR" else weights
    torch.testing.assert_close(merge(params, mixing), weights @ params)
    timed(benchmark, lambda: merge(params, mixing, out=out), "torch mm", lambda: torch.mm(weights, params, out=out))


def test_merge_of_rows_in_place(benchmark, params):
    starts, sources = np.array([0, 2, 4]), np.array([0, 1, 0, 1])
    halves, targets, twice = np.full(4, 0.5, np.float32), np.arange(2), torch.full((N, N), 0.5)
    expected, merged = twice @ params, params.clone()
    merge_rows(merged, starts, sources, halves, targets)
    torch.testing.assert_close(merged, expected)
    out = aligned_rows(N, P)
    ours = lambda: merge_rows(params, starts, sources, halves, targets)  # noqa: E731
    timed(benchmark, ours, "torch mm", lambda: torch.mm(twice, params, out=out))


def test_cosine_of_all_pairs(benchmark, params):
    def theirs():
        unit = F.normalize(params)
        return unit @ unit.T

    torch.testing.assert_close(cosine(params), theirs())
    timed(benchmark, lambda: cosine(params), "torch normalize, mm", theirs)


def test_cosine_of_a_pair(benchmark, params):
    pairs, (one, other) = np.array([[0, 1]]), params
    theirs = lambda: F.cosine_similarity(one, other, dim=0)  # noqa: E731
    torch.testing.assert_close(cosine(params, pairs=pairs)[0], theirs())
    timed(benchmark, lambda: cosine(params, pairs=pairs), "torch cosine_similarity", theirs)


def test_inverse_l2_of_all_pairs(benchmark, params):
    theirs = lambda: (1 / (torch.cdist(params, params) + 1e-6)).fill_diagonal_(0)  # noqa: E731
    torch.testing.assert_close(inverse_l2(params), theirs())
    timed(benchmark, lambda: inverse_l2(params), "torch cdist, inverse", theirs)


def test_simplex_projection(benchmark, params):
    out, counts = torch.empty_like(params), torch.arange(1, P + 1)

    def theirs():
        ordered = params.sort(dim=1, descending=True).values
        sums = ordered.cumsum(dim=1) - 1
        support = (ordered * counts > sums).sum(dim=1, keepdim=True)
        return (params - sums.gather(1, support - 1) / support).clamp_min_(0)

    torch.testing.assert_close(project_simplex(params), theirs())
    timed(benchmark, lambda: project_simplex(params, out=out), "torch sort", theirs)
