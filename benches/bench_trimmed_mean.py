"""Coordinate-wise trimmed means and medians of models, against torch's sort and median of the same rows."""

import numpy as np
import pytest
import reference_kernels as reference
import torch

from ddlsim import kernels

PARAMETERS = 90_000  # of a small convolutional network


@pytest.mark.parametrize("rows", [5, 10, 20, 50])
@pytest.mark.parametrize("rule", ["trimmed_mean", "median"])
@pytest.mark.parametrize("how", ["native", "torch"])
def test_trimmed_mean(benchmark, rows, rule, how):
    benchmark.group = f"{rule} of {rows} rows"
    params = torch.randn(rows, PARAMETERS, generator=torch.Generator().manual_seed(0))
    cut = 1 if rule == "trimmed_mean" else (rows - 1) // 2
    if how == "native":
        out = torch.empty(1, params.shape[1])
        benchmark(kernels.trimmed_mean_rows, params, [0, rows], np.arange(rows), [cut], out, [0])
        found = out[0]
    elif rule == "median" and rows % 2:
        found = benchmark(lambda: params.median(dim=0).values)
    else:
        found = benchmark(lambda: params.sort(dim=0).values[cut : rows - cut].mean(dim=0))
    torch.testing.assert_close(found.double(), reference.trimmed_mean(params, cut), atol=1e-6, rtol=1e-6)
