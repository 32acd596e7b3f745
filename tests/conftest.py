"""`isa`: a test that asks for it runs on every instruction set that this machine's kernels have.

A shell's background jobs ignore SIGINT, and so would every run that a test interrupts: here it is heard again.
"""

import signal

import pytest

from ddlsim import native


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_generate_tests(metafunc):
    if "isa" in metafunc.fixturenames:
        metafunc.parametrize("isa", native.extension().isas(), indirect=True)


@pytest.fixture
def isa(request):
    before = native.extension().isa()
    native.extension().set_isa(request.param)
    yield request.param
    native.extension().set_isa(before)
