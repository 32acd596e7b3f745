"""Several Python threads, changing thread counts and a fork give the same bits."""

import os
import shutil
import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from ddlsim.kernels import aligned_rows, cosine, inverse_l2, merge, merge_rows, project_simplex

CSRC = Path(__file__).parents[2] / "csrc"


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


RAISING = """
#include <cstdio>
#include <new>
#include "threads.h"
int main() {
    for (int round = 0; round < 200; ++round) {
        bool caught = false;
        try {
            ddlsim::parallel_for(100, 4, [](int64_t item) { if (item % 7 == 3) throw std::bad_alloc(); });
        } catch (const std::bad_alloc&) {
            caught = true;
        }
        if (!caught) return 1;
    }
    int64_t items[50] = {};
    ddlsim::parallel_for(50, 4, [&](int64_t item) { items[item] += 1; });
    for (int64_t times : items) if (times != 1) return 2;
}
"""


@pytest.mark.full
@pytest.mark.skipif(not (CSRC / "threads.cpp").exists() or not shutil.which("g++"), reason="no sources or compiler")
@pytest.mark.parametrize("pool", [[], ["-Wl,--no-as-needed", "-lgomp"]], ids=["plain threads", "OpenMP"])
def test_exceptions_of_threads_reach_the_caller(tmp_path, pool):
    (tmp_path / "raising.cpp").write_text(RAISING)
    command = ["g++", "-std=c++20", "-pthread", f"-I{CSRC}", "raising.cpp", CSRC / "threads.cpp", "-ldl", *pool]
    subprocess.run([*command, "-o", "raising"], cwd=tmp_path, check=True)
    assert subprocess.run([tmp_path / "raising"], check=False).returncode == 0
