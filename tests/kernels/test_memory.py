"""Kernels form differences inside and read sources in place: they allocate nothing as large as the models."""

import subprocess
import sys

import pytest

MEASURE = """
import torch
from ddlsim import kernels
torch.set_num_threads(2)
params = kernels.aligned_rows(100, 200_000)  # 80 MB
params.normal_()
start, rows = torch.randn(200_000), list(range(50))
pairs = [[i, j] for i in range(0, 100, 10) for j in range(100)]
kernels.cosine(params[:, :4096])
kernels.merge_rows(params, [0, 1], [99], [1.0], [98], columns=(0, 9))


def peak_kb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))


calls = [
    lambda: kernels.cosine(params, start),
    lambda: kernels.inverse_l2(params, start),
    lambda: kernels.cosine(params, start, pairs=pairs),
    lambda: kernels.cosine(params, rows=rows[::2], reference_rows=rows[1::2]),
    lambda: kernels.class_cosine(params, 10, pairs=pairs),
    lambda: kernels.merge_rows(params, range(0, 501, 10), [50 + i % 50 for i in range(500)], [0.1] * 500, rows),
    lambda: kernels.merge_rows(params, range(0, 501, 10), [i % 100 for i in range(500)], [0.1] * 500, rows),
    lambda: kernels.merge(params, torch.rand(100, 100), out=params),
]
for call in calls:
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts again from here
    before = peak_kb()
    call()
    print(peak_kb() - before)
"""


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_copy_of_the_models_is_made():
    done = subprocess.run([sys.executable, "-c", MEASURE], capture_output=True, text=True, check=True)
    more_kb = [int(line) for line in done.stdout.split()]
    assert len(more_kb) == 8 and max(more_kb) < 20_000, "where half of the models are 40,000 kB"
