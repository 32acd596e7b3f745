"""The CUDA kernels' logic without a device: every thread is a fiber of the host, in two orders."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import reference_kernels as reference
import torch
from cuda_on_host import HostCuda, compiler, tensors_on
from random_models import random_params
from scipy import sparse

from ddlsim.foundation import native
from ddlsim.kernels import (
    class_cosine,
    cosine,
    inverse_l2,
    merge,
    merge_rows,
    model_rows,
    on_device,
    plain,
    project_simplex,
)

pytestmark = [pytest.mark.full, pytest.mark.skipif(compiler() is None, reason="no C++ compiler")]


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


FULL = pytest.mark.full


@pytest.mark.parametrize(
    ("n", "p", "in_place"),
    [
        (40, 3333, False),
        (700, 130, True),
        (4000, 40, False),
        *(
            pytest.param(n, p, in_place, marks=FULL)
            for n, p in [(1, 3), (32, 1000), (700, 130)]
            for in_place in (False, True)
        ),
    ],
)
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


@pytest.mark.parametrize(
    ("n", "p"), [(1, 5), (33, 700), *(pytest.param(*size, marks=FULL) for size in [(33, 4200), (70, 700), (130, 90)])]
)
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


@pytest.mark.parametrize("delta", [pytest.param(1e-3, marks=FULL), 1e-5])
def test_close_models_keep_their_distance(device, monkeypatch, rng, delta):
    params = random_params(rng, 1, 6_000) + delta * random_params(rng, 12, 6_000)
    with tensors_on(device, monkeypatch):
        found = inverse_l2(params)
    torch.testing.assert_close(found.double(), reference.inverse_l2(params), rtol=2e-6, atol=0)


def test_class_cosines_equal_the_host(device, monkeypatch, rng):
    params = random_params(rng, 20, 330)
    expected = class_cosine(params, 10)
    with tensors_on(device, monkeypatch):
        torch.testing.assert_close(class_cosine(params, 10), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_projections(device, monkeypatch, dtype):
    for num_columns in (1, 33, 1024, 1025):  # one block of threads takes 1,024
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


INSUFFICIENT_DRIVER, NO_DEVICE, NO_KERNEL_IMAGE = 2, 3, 4


@pytest.mark.parametrize(
    ("machine", "why"),
    [
        ({}, ""),
        ({"driver": 0, "devices": 0, "counting": INSUFFICIENT_DRIVER}, "there is no NVIDIA driver"),
        (
            {"driver": 12020, "devices": 0, "counting": INSUFFICIENT_DRIVER},
            "too old: it is for CUDA 12.2, .* with 13.0",
        ),
        ({"devices": 0, "counting": NO_DEVICE}, "there is no device"),
        ({"loading": NO_KERNEL_IMAGE}, r"not built for compute capability 6\.1 \(no kernel image\)"),
    ],
)
def test_unusable_kernels_report_the_reason(host_cuda, machine, why):
    host_cuda.pretend(**machine)
    try:
        found = host_cuda.why_unusable()
    finally:
        host_cuda.pretend()
    assert bool(found) == bool(why) and re.search(why, found)


def test_torch_computes_on_an_unsupported_gpu(host_cuda, monkeypatch):
    monkeypatch.setattr(native, "_load", lambda name: host_cuda)
    monkeypatch.setattr(native, "_refuse_stale", lambda module: None)
    for loading, expected in ((NO_KERNEL_IMAGE, None), (0, host_cuda)):
        native.why_no_cuda.cache_clear()
        native.cuda.cache_clear()
        host_cuda.pretend(loading=loading)
        assert native.cuda() is expected
    native.why_no_cuda.cache_clear()
    native.cuda.cache_clear()


def test_more_chunks_than_a_grid_takes_along_y_are_refused_by_the_host_too(host_cuda, rng):
    params = random_params(rng, 1, 8)
    numbers, parts, sums = np.zeros(1, np.int64), np.zeros(70_000), np.zeros(1)
    rows = (params.data_ptr(), 8, numbers.ctypes.data, 0, 0, 0, 1, 8)
    with pytest.raises(RuntimeError, match="a launch that no device takes"):
        host_cuda.all_pairs(*rows, False, 0, 65_536, parts.ctypes.data, sums.ctypes.data, 0)


def test_many_columns_of_many_sources_are_all_merged(device, monkeypatch, rng):
    """More sources than shared memory holds, and more columns than one block of threads."""
    params = random_params(rng, 4000, 300)
    mixing = sparse.csr_matrix((np.ones(4000, np.float32), (np.arange(4000) % 7, np.arange(4000))), shape=(7, 4000))
    expected = merge(params, mixing)
    with tensors_on(device, monkeypatch):
        torch.testing.assert_close(merge(params, mixing), expected, atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize(
    "compare",
    [
        lambda params, pairs: class_cosine(params, 10, pairs=pairs),
        lambda params, pairs: cosine(params, pairs=pairs),
        lambda params, pairs: cosine(params, params[0].clone(), pairs=pairs),
    ],
)
def test_listed_cosines_are_one_upload(device, monkeypatch, rng, compare):
    params, pairs = random_params(rng, 12, 330), np.array([[0, 5], [3, 11], [5, 0], [7, 7]])
    expected, uploads = compare(params, pairs), []
    upload = on_device.uploaded
    monkeypatch.setattr(on_device, "uploaded", lambda *given: uploads.append(len(given[0])) or upload(*given))
    with tensors_on(device, monkeypatch):
        torch.testing.assert_close(compare(params, pairs), expected, atol=1e-6, rtol=0)
    assert len(uploads) == 1


@pytest.mark.parametrize(
    ("capability", "n", "squared", "way"),
    [
        ((9, 0), 32, False, "doubles"),
        ((9, 0), 31, False, "tiles"),
        ((9, 0), 64, True, "tiles"),  # differences are formed before they are squared
        ((8, 0), 200, False, "doubles"),
        ((8, 9), 200, False, "tiles"),
        ((7, 5), 64, False, "tiles"),
    ],
)
def test_device_multiplies_all_pairs_in_its_fast_precision(monkeypatch, capability, n, squared, way):
    gpu = torch.device("cuda")
    rows = SimpleNamespace(matrix=SimpleNamespace(device=gpu))
    models = SimpleNamespace(rows=rows, numbers=np.arange(n))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(native, "cuda", lambda: "module")
    monkeypatch.setattr(on_device.plain, "all_products", lambda models, squared: "doubles")
    monkeypatch.setattr(on_device, "_products_by_tiles", lambda cuda, models, squared: "tiles")
    assert on_device.all_products(models, squared) == way


def test_the_product_of_doubles_is_symmetric_and_right(rng):
    params = random_params(rng, 70, 999)
    found = plain.all_products(model_rows.models_of(params), squared=False)
    assert torch.equal(found, found.T)
    torch.testing.assert_close(found, params.double() @ params.double().T)
