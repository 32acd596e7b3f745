"""Differences are formed inside the kernel, sources are read where they lie: nothing as large as the models is made."""

import subprocess
import sys

import pytest

MEASURE = """
import resource, sys, torch
from ddlsim import kernels
torch.set_num_threads(2)
params = kernels.aligned_rows(100, 200_000)  # 80 MB
params.normal_()
start, rows = torch.randn(200_000), list(range(50))
pairs = [[i, j] for i in range(0, 100, 10) for j in range(100)]
kernels.cosine(params[:, :4096])
kernels.merge_rows(params, [0, 1], [99], [1.0], [98], columns=(0, 9))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{call}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kB on Linux")
@pytest.mark.parametrize(
    "call",
    [
        "kernels.cosine(params, start)",
        "kernels.inverse_l2(params, start)",
        "kernels.cosine(params, start, pairs=pairs)",
        "kernels.update_cosine(params[:50], start, params[50:], 0.5)",
        "kernels.cosine(params, rows=rows[::2], reference_rows=rows[1::2])",
        "kernels.class_cosine(params, 10, pairs=pairs)",
        "kernels.merge_rows(params, list(range(0, 501, 10)), [50 + i % 50 for i in range(500)], [0.1] * 500, rows)",
        "kernels.merge_rows(params, list(range(0, 501, 10)), [i % 100 for i in range(500)], [0.1] * 500, rows)",
        "kernels.merge(params, torch.rand(100, 100), out=params)",
    ],
)
def test_no_copy_of_the_models_is_made(call):
    done = subprocess.run([sys.executable, "-c", MEASURE.format(call=call)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 20_000, "kB more, where half of the models are 40,000"
