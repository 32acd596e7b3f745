"""The fixture `name`: a test with it runs for every algorithm."""

import pytest

from ddlsim.algorithms import ALGORITHMS

LIKE_OTHERS = (
    *("fedavgm", "fedadagrad", "fedyogi", "fednova", "feddyn", "fedasync", "ditto", "fedper", "fedrep"),
    *("fedprox", "fedclassavg", "hierfavg", "dfedavgm", "qgm", "exact_diffusion", "extra", "random", "oracle"),
    *("panm", "deprl", "d2", "local", "ifca", "fedsim"),
    *("data_parallel", "local_sgd", "noloco", "sparseloco", "sparta", "streaming_diloco"),
    *("async_diloco", "demo", "halos"),
)
"""Algorithms that inherit or repeat the hooks of others; only the complete suite runs with them."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.full) if name in LIKE_OTHERS else name for name in sorted(ALGORITHMS)],
)
def name(request) -> str:
    return request.param
