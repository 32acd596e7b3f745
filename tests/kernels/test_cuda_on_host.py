"""The CUDA kernels' logic where there is no device: every thread a fiber of the host, in two orders."""

import numpy as np
import pytest
import torch
from cuda_on_host import HostCuda, compiler, tensors_on
from random_models import random_params
from scipy import sparse

from ddlsim import native
from ddlsim.kernels import class_cosine, cosine, inverse_l2, merge, merge_rows, project_simplex, reference

pytestmark = pytest.mark.skipif(compiler() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def host_cuda(tmp_path_factory):
    return HostCuda(tmp_path_factory.mktemp("cuda"))


@pytest.fixture(params=["rising", "falling"])
def device(request, host_cuda):
    host_cuda.run_threads(request.param == "falling")
    return host_cuda


def random_mixing(rng, n):
    return (sparse.random(n, n, min(0.2, 6 / n), format="csr", random_state=rng) + sparse.eye(n, format="csr")).astype(
        np.float32
    )


@pytest.mark.parametrize(("n", "p"), [(1, 3), (32, 1000), (40, 3333), (700, 130), (4000, 40)])
@pytest.mark.parametrize("in_place", [False, True])
def test_merges_have_the_bits_of_fused_multiply_adds(device, monkeypatch, rng, n, p, in_place):
    params, mixing = random_params(rng, n, p), random_mixing(rng, n)
    expected, moved = merge(params, mixing), params.clone() if n == 40 else params  # a clone's rows are not aligned
    assert device.merge_fits(n) == (n < 4000)
    with tensors_on(device, monkeypatch):
        found = merge(moved, mixing, out=moved if in_place else None)
    if native.extension().isa() == "x86-64-v2":
        torch.testing.assert_close(found, expected, atol=2e-6, rtol=1e-6)
    else:
        assert torch.equal(found, expected)


def test_scattered_rows_and_columns(device, monkeypatch, rng):
    ours = random_params(rng, 50, 700)
    moved = ours.clone()
    arguments = [0, 2, 5], [40, 3, 7, 7, 11], [0.25, 0.75, 0.5, 0.25, 0.25], [11, 48]
    merge_rows(ours, *arguments, columns=(13, 601))
    with tensors_on(device, monkeypatch):
        merge_rows(moved, *arguments, columns=(13, 601))
    torch.testing.assert_close(moved, ours, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("n", "p"), [(1, 5), (33, 4200), (70, 700), (130, 90)])
def test_similarities(device, monkeypatch, rng, n, p):
    params, start = random_params(rng, n, p), random_params(rng, 1, p)[0]
    starts, left = random_params(rng, n, p), rng.integers(0, n, 59 if n > 1 else 0)
    pairs = np.stack([left, (left + rng.integers(1, max(2, n), len(left))) % n], axis=1)
    with tensors_on(device, monkeypatch):
        found = [
            cosine(params),
            cosine(params, start),
            cosine(params, starts, pairs=pairs),
            inverse_l2(params),
            cosine(params, pairs=pairs),
            inverse_l2(params, columns=(1, p), pairs=pairs),
        ]
    left, right = pairs.T
    expected = [
        reference.cosine(params),
        reference.cosine(params, start),
        reference.cosine(params, starts)[left, right],
        reference.inverse_l2(params),
        reference.cosine(params)[left, right],
        reference.inverse_l2(params[:, 1:])[left, right],
    ]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, atol=1e-6, rtol=2e-6)


@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_close_models_keep_their_distance(device, monkeypatch, rng, delta):
    params = random_params(rng, 1, 6_000) + delta * random_params(rng, 12, 6_000)
    with tensors_on(device, monkeypatch):
        found = inverse_l2(params)
    torch.testing.assert_close(found.double(), reference.inverse_l2(params), rtol=2e-6, atol=0)


def test_class_rows(device, monkeypatch, rng):
    params = random_params(rng, 20, 330)
    expected = class_cosine(params, 10)
    with tensors_on(device, monkeypatch):
        torch.testing.assert_close(class_cosine(params, 10), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("num_columns", [1, 10, 33, 1000, 1024, 1025, 3000])
def test_projections(device, monkeypatch, dtype, num_columns):
    rows = torch.randn(9, num_columns, dtype=dtype)
    rows[1] = 1 / num_columns
    rows[2] = 3.0
    rows[3, 0] = float("inf")
    rows[4, 0] = float("nan")
    rows[5] = -float("inf")
    rows[6, 0] = -float("inf")
    with tensors_on(device, monkeypatch):
        found = project_simplex(rows)
    torch.testing.assert_close(found, project_simplex(rows), atol=3e-7, rtol=0, equal_nan=True)
