"""Ratios, not times: a bench times ddlsim and a named alternative in turns, in the same process and minute."""

import os
import time
from collections.abc import Callable
from importlib import metadata
from statistics import median

import pytest
import torch

from ddlsim.foundation import native
from ddlsim.learning.bank import keep_freed_memory

LIBRARIES_ON_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
"""What keeps the libraries that PyTorch computes with from using more; they ask at their first call."""


def pytest_addoption(parser):
    parser.addoption("--avx2", action="store_true", help="ours and PyTorch as on a machine without AVX-512")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Time benches in one process; the default options distribute tests over all cores."""
    if not config.option.benchmark_disable:
        config.option.numprocesses, config.option.dist = 0, "no"


def pytest_configure(config):
    if config.getoption("--avx2"):
        os.environ.update(LIBRARIES_ON_AVX2)


@pytest.fixture(scope="session", autouse=True)
def instruction_set(request):
    """Use AVX2 on both sides if requested."""
    if request.config.getoption("--avx2"):
        native.extension().set_isa("x86-64-v3")
        assert torch.backends.cpu.get_cpu_capability() == "AVX2"


@pytest.fixture(scope="session", autouse=True)
def memory_as_in_a_run():
    """Use the allocator's setting of a run with learning, for any selection and order of benches."""
    keep_freed_memory()


def pytest_benchmark_update_machine_info(config, machine_info):
    """Add machine properties that ratios depend on to the report."""
    machine_info["instruction_set"] = native.extension().isa()
    machine_info["torch_instruction_set"] = torch.backends.cpu.get_cpu_capability()
    machine_info["versions"] = {name: metadata.version(name) for name in ("torch", "numpy", "scipy", "simpy")}
    machine_info["load"] = round(os.getloadavg()[0], 1)


@pytest.fixture
def ratio(benchmark):
    """Return ratio(ours, theirs, name, rounds, warm, clock), which times both in turns and stores the ratio of medians.

    Under --benchmark-disable ours runs once, so that CI checks the results only. The figures are in the
    report's `extra_info`: alternative, ours_s, theirs_s, ratio. warm False: without an uncounted first round.
    clock: of both, in seconds.
    """

    def measure(
        ours: Callable[[], object],
        theirs: Callable[[], object],
        name: str,
        rounds: int = 7,
        warm: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> float | None:
        if benchmark.disabled:
            benchmark(ours)
            return None
        ours_s, theirs_s = [], []

        def turn() -> None:
            start = clock()
            theirs()
            theirs_s.append(clock() - start)

        def timed() -> None:
            start = clock()
            ours()
            ours_s.append(clock() - start)

        benchmark.pedantic(timed, setup=turn, rounds=rounds, warmup_rounds=int(warm))
        our_s, their_s = (median(times_s[int(warm) :]) for times_s in (ours_s, theirs_s))
        found = our_s / their_s
        benchmark.extra_info.update(
            alternative=name, ours_s=round(our_s, 6), theirs_s=round(their_s, 6), ratio=round(found, 4)
        )
        return found

    return measure
