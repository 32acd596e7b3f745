"""Each worker of pytest-xdist computes on one thread, so that workers do not compete for cores.

`isa`: a test that asks for it runs on every instruction set that this machine's kernels have.

Objects that exist before a test file are frozen: each run ends with a search for cyclic garbage, which otherwise takes
0.3 s in a process that holds the whole test suite.

A shell's background jobs ignore SIGINT, and so would every run that a test interrupts: here it is heard again.

Tests of random examples (hypothesis) try the same 150 each time; `pytest --hypothesis-profile=ci` tries 250 new ones.
The profiles are named here since the option is read before the conftest.py of folders below.
"""

import gc
import os
import signal

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported; child processes inherit it

import fixed_costs
import forked_commands
import pytest
from hypothesis import settings

from ddlsim.foundation import native

settings.register_profile("default", max_examples=150, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=250, deadline=None)
settings.load_profile("default")


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def existing_objects_are_frozen():
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def fixed_costs_are_paid_once():
    fixed_costs.pay_once()


def pytest_generate_tests(metafunc):
    if "isa" in metafunc.fixturenames:
        metafunc.parametrize("isa", native.extension().isas(), indirect=True)


@pytest.fixture
def isa(request):
    before = native.extension().isa()
    native.extension().set_isa(request.param)
    yield request.param
    native.extension().set_isa(before)


@pytest.fixture
def forked_runs(monkeypatch):
    """Fork the processes of sweeps from one that has imported PyTorch; tests/sweeps/test_pool.py starts real ones."""
    from ddlsim.runs.sweeps import pool

    monkeypatch.setattr(pool, "start", forked_commands.start)
