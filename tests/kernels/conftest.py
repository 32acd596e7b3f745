import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng()  # fresh numbers in every run


@pytest.fixture
def params(rng):
    return rng.standard_normal((5, 40), dtype=np.float32)
