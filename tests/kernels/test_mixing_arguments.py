"""Mixing matrices of every library and layout are taken by merge, or refused with what to do instead."""

import numpy as np
import pytest
import torch
from scipy import sparse

from ddlsim.kernels import merge

ROLL = np.roll(np.eye(5, dtype=np.float32), 1, axis=0)  # every row becomes its neighbor


def some_mixing():
    """Sparse, with an entry in every row."""
    return (sparse.random(5, 5, 0.4, format="csr", random_state=1) + sparse.eye(5, format="csr")).astype(np.float32)


def test_every_sparse_layout_of_scipy_is_taken(params):
    expected = merge(params, some_mixing().toarray())
    for layout in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok"):
        assert np.array_equal(merge(params, some_mixing().asformat(layout)), expected), layout
        assert np.array_equal(merge(params, sparse.csr_array(some_mixing()).asformat(layout)), expected), layout


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_every_sparse_layout_of_torch_is_taken(params, dtype):
    dense = torch.from_numpy(some_mixing().toarray()).to(dtype)
    for layout in ("sparse_csr", "sparse_csc", "sparse", "sparse_bsr", "sparse_bsc"):
        mixing = getattr(dense, f"to_{layout}")(*(((5, 5),) if "bs" in layout else ()))
        assert np.array_equal(merge(params, mixing), merge(params, dense.float())), layout


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_unsorted_and_repeated_entries_are_summed_in_their_order(params, index):
    indptr, sources = torch.tensor([0, 2, 5], dtype=index), torch.tensor([3, 1, 4, 0, 4], dtype=index)
    weights = torch.tensor([0.5, 0.5, 0.25, 0.25, 0.5])
    expected = np.stack([(params[3] + params[1]) / 2, 0.75 * params[4] + 0.25 * params[0]])
    ours = merge(params, torch.sparse_csr_tensor(indptr, sources, weights, size=(2, 5)))
    theirs = merge(params, sparse.csr_matrix((weights.numpy(), sources.numpy(), indptr.numpy()), shape=(2, 5)))
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    assert np.array_equal(ours, theirs)


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_dense_mixing_of_any_kind(params):
    dense = some_mixing().toarray()
    expected = merge(params, dense)
    kinds = [
        np.asfortranarray(dense),
        dense.astype(dense.dtype.newbyteorder()),
        dense.tolist(),
        np.matrix(dense),
        np.repeat(dense, 2, 1)[:, ::2],
        torch.from_numpy(dense).t().contiguous().t(),
        torch._neg_view(-torch.from_numpy(dense)),
    ]
    assert all(np.array_equal(merge(params, kind), expected) for kind in kinds)
    eye = np.eye(5)
    for kind in (eye > 0, eye.astype(int), eye.astype(np.float16), torch.eye(5, dtype=torch.bfloat16)):
        assert np.array_equal(merge(params, kind), params)


def test_rows_need_not_be_stochastic(isa, params):
    np.testing.assert_allclose(merge(params, -3 * ROLL), -3 * (ROLL @ params), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    ("mixing", "error", "message"),
    [
        (np.eye(5) * 1j, TypeError, "mixing must be real numbers, not complex128"),
        (sparse.eye(5, format="csr") * 1j, TypeError, "mixing must be real numbers, not complex128"),
        (torch.eye(5) * 1j, TypeError, "mixing must be real numbers in memory, not torch.complex64"),
        (torch.eye(5, device="meta"), TypeError, "in memory, not torch.float32 on meta"),
        (np.ma.masked_array(np.eye(5), np.eye(5) > 0), TypeError, "mixing is a masked array"),
        (torch.eye(5).requires_grad_(), ValueError, r"pass mixing.detach\(\)"),
        (torch.eye(5).to_sparse().requires_grad_(), ValueError, r"pass mixing.detach\(\)"),
        (None, TypeError, "mixing must be real numbers, not object"),
        ("eye", TypeError, "mixing must be real numbers, not <U3"),
        (np.eye(4), ValueError, r"mixing must be \[targets, 5\], not \[4, 4\]"),
        (np.ones(5), ValueError, r"mixing must be \[targets, 5\], not \[5\]"),
        (sparse.coo_array(np.ones(5)), ValueError, r"mixing must be \[targets, 5\], not \[5\]"),
        (torch.ones(2, 5, 5).to_sparse(), ValueError, r"mixing must be \[targets, 5\], not \[2, 5, 5\]"),
    ],
)
def test_what_is_no_mixing_matrix_is_refused(params, mixing, error, message):
    with pytest.raises(error, match=message):
        merge(params, mixing)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [("indices", 99, IndexError), ("indices", -1, IndexError), ("indptr", 99, ValueError), ("indptr", -1, ValueError)],
)
def test_a_damaged_sparse_matrix_is_refused(params, name, value, error):
    mixing = some_mixing()
    getattr(mixing, name)[1] = value
    with pytest.raises(error):
        merge(params, mixing)
