"""The fixture `name`: a test with it runs for every algorithm, by default for one per set of hooks."""

import pytest

from ddlsim.algorithms import ALGORITHMS

WITH_OTHER_MESSAGES = (
    *("fedasync", "ditto", "fedclassavg", "hierfavg", "ifca", "fedsim", "panm", "deprl", "d2"),
    *("noloco", "sparseloco", "sparta", "streaming_diloco", "async_diloco", "demo", "halos"),
)
"""Algorithms that vary the hooks of others; the default tests do not run with them."""
WITH_OTHER_UPDATES = (
    *("fedavgm", "fedadagrad", "fedyogi", "fednova", "feddyn", "fedprox", "fedper", "fedrep", "dfedavgm", "qgm"),
    *("exact_diffusion", "extra", "random", "oracle", "local", "data_parallel", "local_sgd"),
)
"""Algorithms with the messages of others; only slow tests run with them, and digests."""


def _marks(name: str) -> tuple:
    if name in WITH_OTHER_UPDATES:
        return (pytest.mark.slow,)
    return (pytest.mark.full,) if name in WITH_OTHER_MESSAGES else ()


@pytest.fixture(scope="module", params=[pytest.param(name, marks=_marks(name)) for name in sorted(ALGORITHMS)])
def name(request) -> str:
    return request.param
