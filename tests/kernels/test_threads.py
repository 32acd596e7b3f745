"""Several Python threads, changing thread counts and a fork give the same bits."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from ddlsim.kernels import aligned_rows, cosine, inverse_l2, merge, merge_rows, project_simplex


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def kernels(rng):
    """Call every kernel with enough work for two threads."""
    params, start = rng.standard_normal((60, 9000), dtype=np.float32), rng.standard_normal(9000, dtype=np.float32)
    mixing, pairs = rng.random((60, 60), dtype=np.float32), rng.integers(0, 60, (300, 2))

    def call():
        moved = torch.from_numpy(params.copy())
        merge_rows(moved, [0, 2, 4], [3, 4, 4, 3], [0.5, 0.5, 0.25, 0.75], [3, 4])
        return [
            cosine(params),
            cosine(params, start),
            cosine(params, pairs=pairs),
            inverse_l2(params),
            merge(params, mixing),
            merge(moved, mixing, out=moved).numpy(),
            project_simplex(params),
        ]

    return call


def same(found, expected):
    return all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_several_python_threads_may_call_kernels(kernels):
    expected = kernels()
    with ThreadPoolExecutor(4) as pool:
        assert all(same(found, expected) for found in pool.map(lambda _: kernels(), range(8)))


def test_thread_count_may_change_during_calls(kernels):
    expected, done = kernels(), threading.Event()

    def change():
        count = 0
        while not done.is_set():
            count += 1
            torch.set_num_threads(1 + count % 3)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        assert all(same(kernels(), expected) for _ in range(5))
    finally:
        done.set()
        changing.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_kernels_work_in_a_fork_after_use(kernels):
    expected = kernels()
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # a kernel that waits for missing threads never returns
        os._exit(0 if same(kernels(), expected) else 3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_rows_merged_by_other_threads_stay_separate(rng):
    matrix = aligned_rows(40, 20_000)
    matrix.copy_(torch.from_numpy(rng.standard_normal((40, 20_000), dtype=np.float32)))
    before = matrix.clone()

    def merge_into(target):
        for _ in range(5):
            merge_rows(matrix, [0, 2], [target + 20, (target + 1) % 20 + 20], [0.5, 0.5], [target])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(merge_into, range(20)))
    expected = 0.5 * before[20:] + 0.5 * before[20:].roll(-1, 0)
    torch.testing.assert_close(matrix[:20], expected)
    assert torch.equal(matrix[20:], before[20:])
