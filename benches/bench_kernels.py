"""The kernels on parameter matrices against torch, numpy and scipy, and against limits of the machine.

Each bench checks its answer, then times ddlsim and every alternative in turns in one process: on one thread by the
processor time of that thread, which other load disturbs less, on two by the clock. helpers/turns.py
describes the report. The floor is the longer time of reading or copying as many bytes and of as many multiply-adds,
in pure loops at the same size (helpers/machine_limits.py; absent
without a C++ compiler). Alternatives read rows that start on cache lines, like the kernels.

Page faults can be two thirds of an alternative's time, so names state the source of memory. No word: it
writes into existing tensors, except small ones. "Memory kept": it makes tensors at each call, but memory that it
frees stays in the process at any size; the kernel is timed the same way. "New memory": user code, whose tensors
come from the system at each call, as blocks over 32 MiB do in every process with glibc; timed where the matrix is
larger, on one thread.

    OPENBLAS_NUM_THREADS=1 pytest benches/bench_kernels.py    numpy on one thread, like the kernels; small networks
    pytest benches/bench_kernels.py -m slow                   52 x 11.2 million: 12 GB of memory, minutes; without scipy
                                                              and torch's CSR, which take seconds for a merge
"""

import functools
import os

import freed_memory
import numpy as np
import pytest
import reference_kernels as reference
import torch
from mixing import PEERS, regular_mixing
from scipy.spatial.distance import pdist
from torch.nn import functional as F
from turns import compare

from ddlsim.foundation import native
from ddlsim.kernels import aligned_rows, class_cosine, cosine, inverse_l2, merge, project_simplex

AVX2 = "x86-64-v3"
HUGE = 10**8  # floats: only slow sizes are larger
SMALL = [(32, 89_834), (100, 62_006), (100, 120_000), (1000, 62_006)]
SIZES = [*SMALL, pytest.param((52, 11_200_000), marks=pytest.mark.slow)]


@pytest.fixture(params=[1, 2], ids=["1_thread", "2_threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def params(request, benchmark):
    if benchmark.disabled and request.param[0] > 100:
        pytest.skip("not timed, and 100 models have the same results")
    return similar_models(*request.param)


@pytest.fixture
def with_avx2():
    if native.extension().isas()[0] != "x86-64-v4":
        pytest.skip(
            f"this machine's own instruction set is {native.extension().isas()[0]}, so the other benches are on it"
        )
    before = torch.get_num_threads(), native.extension().isa()
    torch.set_num_threads(1)
    native.extension().set_isa(AVX2)
    yield
    torch.set_num_threads(before[0])
    native.extension().set_isa(before[1])


@functools.cache
def similar_models(n: int, p: int) -> torch.Tensor:
    """Return models close to one model, for all benches of a size, read-only."""
    start = torch.randn(p)
    params = aligned_rows(n, p)
    for row in params:
        torch.add(start, torch.randn(p), alpha=0.1, out=row)
    return params


def named_kept(name: str) -> str:
    """Return the name of an alternative that makes new tensors while freed memory stays in the process."""
    return f"{name}, memory kept" if freed_memory.differs() else name


def in_new_memory(written: dict, params: torch.Tensor) -> dict:
    """Return alternatives in user code, by name: none if memory from the system makes no difference, on two threads,
    because the second one does not change it, or for gigabytes, because all would need them at once."""
    timed = torch.get_num_threads() == 1 and freed_memory.differs(params.nbytes) and params.numel() < HUGE
    return {f"{name}, new memory": call for name, call in written.items() if timed}


def normalized_mm(vectors: torch.Tensor) -> torch.Tensor:
    """Return the cosines of all pairs in plain code, with a new tensor per step."""
    unit = F.normalize(vectors)
    return unit @ unit.T


class TorchCosine:
    """Cosines of all pairs with torch, in preallocated memory."""

    def __init__(self, params: torch.Tensor):
        self.unit = aligned_rows(*params.shape)
        self.gram = torch.empty(len(params), len(params))

    def divided(self, vectors: torch.Tensor) -> torch.Tensor:
        torch.mm(vectors, vectors.T, out=self.gram)
        norms = self.gram.diagonal().sqrt()
        return self.gram.div_(norms[:, None]).div_(norms)

    def normalized(self, vectors: torch.Tensor) -> torch.Tensor:
        torch.div(vectors, vectors.norm(dim=1, keepdim=True), out=self.unit)
        return torch.mm(self.unit, self.unit.T, out=self.gram)


def all_pairs_work(params: torch.Tensor) -> dict:
    """Return the work of pairing each row with itself and all later rows."""
    n, p = params.shape
    return {"multiply_adds": n * (n + 1) // 2 * p, "read": n * p}


def test_cosine_of_all_pairs(benchmark, params, threads):
    few = slice(0, 8)
    torch.testing.assert_close(cosine(params[few]).double(), reference.cosine(params[few]), atol=2e-7, rtol=0)
    torchs = TorchCosine(params)
    theirs = {"torch mm": lambda: torchs.divided(params), "torch normalize, mm": lambda: torchs.normalized(params)}
    if threads == 1 and os.environ.get("OPENBLAS_NUM_THREADS") == "1":  # otherwise numpy would use every core
        gram = np.empty((len(params), len(params)), np.float32)
        theirs["numpy matmul"] = lambda: np.matmul(params.numpy(), params.numpy().T, out=gram)
    written = {"torch normalize, mm": lambda: normalized_mm(params)}
    compare(benchmark, lambda: cosine(params), theirs, in_new_memory(written, params), **all_pairs_work(params))


@pytest.mark.parametrize("size", [(100, 120_000)], ids=["100x120000"])
def test_cosine_of_all_pairs_with_avx2(benchmark, size, with_avx2):
    params, few = similar_models(*size), slice(0, 8)
    torch.testing.assert_close(cosine(params[few]).double(), reference.cosine(params[few]), atol=2e-7, rtol=0)
    torchs = TorchCosine(params)
    theirs = {"torch mm": lambda: torchs.divided(params)}
    compare(benchmark, lambda: cosine(params), theirs, instruction_set=AVX2, **all_pairs_work(params))


def test_inverse_l2_of_all_pairs(benchmark, params, threads):
    few = params[:8]
    torch.testing.assert_close(inverse_l2(few).double(), reference.inverse_l2(few), rtol=1e-6, atol=0)
    cdist = lambda: torch.cdist(params, params)  # noqa: E731
    keep = params.numel() < HUGE
    theirs = {named_kept("torch cdist") if keep else "torch cdist, new memory": cdist}
    if threads == 1 and params.numel() < 2 * 10**7:
        theirs[named_kept("scipy pdist")] = lambda: pdist(params.numpy())
    fresh = in_new_memory({"torch cdist": cdist}, params)
    compare(benchmark, lambda: inverse_l2(params), theirs, fresh, keep=keep, **all_pairs_work(params))


def test_cosine_of_listed_pairs(benchmark, params, threads):
    mixing = regular_mixing(len(params)).tocoo()
    pairs = np.stack([mixing.row, mixing.col], axis=1)[mixing.row != mixing.col]
    some = pairs[: 4 * PEERS]
    expected = torch.stack([reference.cosine(params[row])[0, 1] for row in some])
    torch.testing.assert_close(cosine(params, pairs=pairs)[: len(some)].double(), expected, atol=2e-7, rtol=0)
    listed = pairs.tolist()

    def dot_loop():
        norms = params.norm(dim=1)
        return [torch.dot(params[i], params[j]) / (norms[i] * norms[j]) for i, j in listed]

    def cosine_loop():
        return [F.cosine_similarity(params[i], params[j], dim=0) for i, j in listed]

    n, p = params.shape
    theirs = {"torch dot loop": dot_loop, named_kept("torch cosine_similarity loop"): cosine_loop}
    # At 248 MB the kernel is limited by memory shared with other guests of the host: 0.17 to 0.23 of the dot loop.
    benchmark.extra_info["gated"] = params.nbytes < 2**27
    compare(benchmark, lambda: cosine(params, pairs=pairs), theirs, multiply_adds=(n + len(pairs)) * p, read=n * p)


def test_mean_cosine_of_class_rows(benchmark, threads):
    params = aligned_rows(100, 10 * 512).normal_()
    expected = reference.class_cosine(params, 10)
    torch.testing.assert_close(class_cosine(params, 10).double(), expected, atol=3e-7, rtol=0)

    classes, unit = params.unflatten(1, (10, 512)), torch.empty(100, 10, 512)

    def batched():
        torch.div(classes, classes.norm(dim=2, keepdim=True), out=unit)
        of_class = unit.transpose(0, 1)
        return torch.bmm(of_class, of_class.transpose(1, 2)).mean(dim=0)

    compare(benchmark, lambda: class_cosine(params, 10), {"torch bmm": batched}, **all_pairs_work(params))


@pytest.mark.parametrize("where", ["buffered", "in_place"])
def test_sparse_merge(benchmark, params, threads, where):
    n, p = params.shape
    mixing = regular_mixing(n)
    few = params[:, :1000].clone()
    torch.testing.assert_close(
        merge(few, mixing).double(), reference.merge(few, torch.from_numpy(mixing.toarray())), atol=1e-6, rtol=0
    )
    out, other = aligned_rows(n, p), aligned_rows(n, p)
    source = out.copy_(params) if where == "in_place" else params
    as_torch = torch.sparse_csr_tensor(mixing.indptr, mixing.indices, mixing.data, size=(n, n))
    rows = [slice(*mixing.indptr[i : i + 2]) for i in range(n)]
    entries = [list(zip(mixing.indices[row].tolist(), mixing.data[row].tolist(), strict=True)) for row in rows]

    def axpy_loop():
        for target, row in zip(other, entries, strict=True):
            torch.mul(params[row[0][0]], row[0][1], out=target)
            for source, weight in row[1:]:
                target.add_(params[source], alpha=weight)

    theirs = {"torch copy_": lambda: other.copy_(params), "torch add_ loop": axpy_loop}
    fresh = {}
    if n * p < HUGE:  # torch allocates a matrix even with an output matrix
        theirs[named_kept("torch CSR mm")] = lambda: torch.mm(as_torch, params, out=other)
        theirs[named_kept("scipy CSR")] = lambda: mixing @ params.numpy()
        if where == "buffered":
            written = {"torch CSR mm": lambda: as_torch @ params, "scipy CSR": lambda: mixing @ params.numpy()}
            fresh = in_new_memory(written, params)
    work = {"rewritten" if where == "in_place" else "copied": n * p, "multiply_adds": mixing.nnz * p}
    compare(benchmark, lambda: merge(source, mixing, out=out), theirs, fresh, **work)


@pytest.mark.parametrize("size", SMALL[:3], ids=lambda size: f"{size[0]}x{size[1]}")
def test_dense_merge(benchmark, size, threads):
    n, p = size
    params, mixing = aligned_rows(n, p).normal_(), torch.rand(n, n)
    out, other = aligned_rows(n, p), aligned_rows(n, p)
    torch.testing.assert_close(merge(params, mixing).double(), reference.merge(params, mixing), atol=1e-4, rtol=0)
    theirs = {"torch mm": lambda: torch.mm(mixing, params, out=other)}
    compare(benchmark, lambda: merge(params, mixing, out=out), theirs, multiply_adds=n * n * p, copied=n * p)


@pytest.mark.parametrize("num_columns", [10, 100, 1000])
def test_simplex_projection(benchmark, num_columns, threads):
    rows = torch.rand(500_000 // num_columns, num_columns)
    rows = rows / rows.sum(dim=1, keepdim=True) + torch.randn_like(rows) * 0.1 / num_columns
    out = torch.empty_like(rows)
    torch.testing.assert_close(project_simplex(rows).double(), reference.project_simplex(rows), atol=3e-7, rtol=0)
    counts = torch.arange(1, num_columns + 1)

    ordered, order, sums = torch.empty_like(rows), torch.empty(rows.shape, dtype=torch.long), torch.empty_like(rows)

    def torch_sort():
        torch.sort(rows, dim=1, descending=True, out=(ordered, order))
        torch.cumsum(ordered, dim=1, out=sums).sub_(1)
        support = (ordered.mul_(counts) > sums).sum(dim=1, keepdim=True)
        return torch.sub(rows, sums.gather(1, support - 1) / support, out=sums).clamp_min_(0)

    def numpy_sort():
        sums = (ordered := np.sort(rows.numpy(), axis=1)[:, ::-1]).cumsum(axis=1) - 1
        support = (ordered * counts.numpy() > sums).sum(axis=1)
        thresholds = sums[np.arange(len(sums)), support - 1] / support
        return np.maximum(rows.numpy() - thresholds[:, None], 0)

    theirs = {"torch sort": torch_sort, named_kept("numpy sort"): numpy_sort}
    compare(benchmark, lambda: project_simplex(rows, out=out), theirs, copied=rows.numel())
