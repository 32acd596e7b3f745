"""Each worker of pytest-xdist computes on one thread, so that workers do not compete for cores.

`isa`: a test that asks for it runs on every instruction set that this machine's kernels have.

The embedded data set is decompressed once per process and the digest of the source files computed once: that takes
80 ms, more than half of a small run. Objects that exist before a test file are frozen: each run ends with a search for
cyclic garbage, which otherwise takes 0.3 s in a process that holds the whole test suite.

A shell's background jobs ignore SIGINT, and so would every run that a test interrupts: here it is heard again.

Tests of random examples (hypothesis) try the same 150 each time; `pytest --hypothesis-profile=ci` tries 500 new ones.
The profiles are named here since the option is read before the conftest.py of folders below.
"""

import gc
import os
import signal
from functools import cache

if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported; child processes inherit it

import pytest
from hypothesis import settings

from ddlsim.data import torchvision_sets
from ddlsim.foundation import native

settings.register_profile("default", max_examples=150, deadline=None, derandomize=True)
settings.register_profile("ci", max_examples=500, deadline=None)
settings.load_profile("default")


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def existing_objects_are_frozen():
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def fixed_cost_of_a_run_is_paid_once():
    from ddlsim.runs.cluster import cluster

    read = cache(torchvision_sets.read_keras_npz)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cluster, "_code_on_disk", cache(cluster._code_on_disk))
        patched.setattr(cluster, "version_of", cache(cluster.version_of))
        copies = lambda path: {split: (x.copy(), y.copy()) for split, (x, y) in read(path).items()}  # noqa: E731
        patched.setattr(torchvision_sets, "read_keras_npz", copies)
        yield


def pytest_generate_tests(metafunc):
    if "isa" in metafunc.fixturenames:
        metafunc.parametrize("isa", native.extension().isas(), indirect=True)


@pytest.fixture
def isa(request):
    before = native.extension().isa()
    native.extension().set_isa(request.param)
    yield request.param
    native.extension().set_isa(before)
