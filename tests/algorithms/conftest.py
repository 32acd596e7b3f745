"""`name`: a test that asks for it runs with every algorithm."""

import pytest

from ddlsim.algorithms import ALGORITHMS


@pytest.fixture(scope="module", params=sorted(ALGORITHMS))
def name(request) -> str:
    return request.param
