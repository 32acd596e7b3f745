"""The CUDA kernels against the host kernels if there is a device, and their replacement in plain torch."""

import numpy as np
import pytest
import reference_kernels as reference
import torch
from random_models import random_params
from scipy import sparse

from ddlsim.foundation import native
from ddlsim.kernels import (
    aligned_rows,
    cosine,
    dots,
    inverse_l2,
    merge,
    merge_rows,
    on_device,
    plain,
    project_simplex,
    sqdist,
)
from ddlsim.kernels.model_rows import models_of

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
needs_cuda_kernels = pytest.mark.skipif(
    not torch.cuda.is_available() or native.cuda() is None, reason="no CUDA device, or built without a CUDA compiler"
)


def random_mixing(rng, n):
    return (sparse.random(n, n, 0.2, format="csr", random_state=rng) + sparse.eye(n, format="csr")).astype(np.float32)


@needs_cuda
@pytest.mark.parametrize(("n", "p"), [(1, 3), (32, 1000), (100, 62_006), (700, 513), (5000, 40)])
@pytest.mark.parametrize("in_place", [False, True])
def test_merges_on_the_device_equal_those_on_the_host(rng, n, p, in_place):
    params, mixing = random_params(rng, n, p), random_mixing(rng, n)
    on_device = params.cuda() if n == 700 else aligned_rows(n, p, "cuda").copy_(params)
    found = merge(on_device, mixing, out=on_device if in_place else None)
    torch.testing.assert_close(found.cpu(), merge(params, mixing), atol=2e-6, rtol=1e-6)


@needs_cuda_kernels
def test_merges_on_the_device_have_the_bits_of_fused_multiply_adds_on_the_host(rng):
    if native.extension().isa() == "x86-64-v2":
        pytest.skip("no fused multiply-add on this host")
    params, mixing = random_params(rng, 40, 3333), random_mixing(rng, 40)
    assert torch.equal(merge(params.cuda(), mixing).cpu(), merge(params, mixing))


@needs_cuda
def test_scattered_rows_and_columns_on_the_device(rng):
    host = random_params(rng, 50, 700)
    device = host.cuda()
    arguments = [0, 2, 5], [40, 3, 7, 7, 11], [0.25, 0.75, 0.5, 0.25, 0.25], [11, 48]
    for matrix in (host, device):
        merge_rows(matrix, *arguments, columns=(13, 601))
    torch.testing.assert_close(device.cpu(), host, atol=1e-6, rtol=1e-6)


@needs_cuda
@pytest.mark.parametrize(("n", "p"), [(1, 5), (33, 8200), (100, 62_006), (230, 90)])
def test_similarities_on_the_device(rng, n, p):
    params = random_params(rng, n, p)
    start = random_params(rng, 1, p)[0]
    pairs = rng.integers(0, n, (60, 2))
    device = params.cuda()
    for found, expected in (
        (cosine(device), reference.cosine(params)),
        (cosine(device, start.cuda()), reference.cosine(params, start)),
        (cosine(device, pairs=pairs), reference.cosine(params)[pairs[:, 0], pairs[:, 1]]),
        (inverse_l2(device), reference.inverse_l2(params)),
    ):
        assert found.is_cuda
        torch.testing.assert_close(found.cpu().double(), expected, atol=5e-7, rtol=1e-6)


@needs_cuda
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_close_models_keep_their_distance_on_the_device(rng, delta):
    params = random_params(rng, 1, 20_000) + delta * random_params(rng, 12, 20_000)
    found = inverse_l2(params.cuda()).cpu().double()
    torch.testing.assert_close(found, reference.inverse_l2(params), rtol=2e-6, atol=0)


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_columns", [1, 10, 100, 1000, 3000])
def test_projections_on_the_device(dtype, num_columns):
    rows = torch.randn(33, num_columns, dtype=dtype)
    rows[3, 0] = float("inf")
    rows[4, 0] = float("nan")
    torch.testing.assert_close(
        project_simplex(rows.cuda()).cpu(), project_simplex(rows), atol=3e-7, rtol=0, equal_nan=True
    )


def test_plain_torch_merges_like_the_kernel(rng):
    params, mixing = random_params(rng, 30, 500), random_mixing(rng, 30)
    mixing[4] = 0
    mixing.eliminate_zeros()
    out = params.clone()
    plain.merge(params, out, (mixing.indptr, mixing.indices, mixing.data, np.arange(30)), (20, 480, 20))
    expected = params.clone()
    merge(params, mixing, columns=(20, 480), out=expected)
    torch.testing.assert_close(out, expected, atol=2e-6, rtol=1e-6)


@pytest.mark.parametrize("squared", [False, True])
def test_plain_torch_products_equal_the_kernels(rng, squared):
    params, start = random_params(rng, 12, 900), random_params(rng, 1, 900)[0]
    models = models_of(params, start, columns=(7, 888))
    pairs, products = rng.integers(0, 12, (20, 2)), sqdist if squared else dots
    expected = products(params, start, columns=(7, 888))
    np.testing.assert_allclose(plain.all_products(models, squared), expected, rtol=1e-5, atol=1e-3)
    found, expected = plain.listed_products(models, pairs, squared), products(params, start, pairs, (7, 888))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-3)


def test_plain_torch_cosines_equal_the_kernels(rng, monkeypatch):
    monkeypatch.setattr(native, "cuda", lambda: None)
    params = random_params(rng, 12, 900)
    params[5] = 0
    pairs = rng.integers(0, 12, (20, 2))
    for listed, expected in ((None, cosine(params)), (pairs, cosine(params, pairs=pairs))):
        found = on_device.cosines([models_of(params)], listed, 1e-8)[0]
        torch.testing.assert_close(found.float(), expected, atol=1e-6, rtol=0)


def test_plain_torch_projects_like_the_kernel():
    rows = torch.randn(9, 40)
    out = torch.empty_like(rows)
    plain.project_simplex(rows, out)
    assert torch.equal(out, project_simplex(rows))


def test_cuda_module_is_absent_without_a_device():
    if not torch.cuda.is_available():
        assert native.cuda() is None
