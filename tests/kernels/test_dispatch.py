"""Which instruction set is used: the best by default, another one on demand, and what doctor says of it."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ddlsim import native
from ddlsim.cli import app
from ddlsim.kernels import isa, isas, merge, set_isa

ORDER = ["x86-64-v4", "x86-64-v3", "x86-64-v2", "baseline"]


@pytest.fixture(autouse=True)
def restored():
    before = isa()
    yield
    set_isa(before)


def test_the_best_that_runs_here_is_the_default():
    assert isa() == isas()[0]
    assert isas() == [name for name in ORDER if name in isas()]


def test_flags_of_the_processor_decide():
    try:
        with open("/proc/cpuinfo") as file:
            flags = next(set(line.split(":")[1].split()) for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        pytest.skip("no flags to read")
    assert ("x86-64-v4" in isas()) == ({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags)
    assert ("x86-64-v3" in isas()) == ({"avx2", "fma", "bmi1", "bmi2"} <= flags)


@pytest.mark.parametrize("name", ["avx512", "", "x86-64-v5", "X86-64-V3"])
def test_an_instruction_set_that_is_not_there_is_refused(name):
    before = isa()
    with pytest.raises(ValueError, match=r"no instruction set .* here; see isas\(\)"):
        set_isa(name)
    assert isa() == before


def test_the_choice_is_what_runs(isa):
    """The oldest level has no fused multiply-add: 1 + eps of a product is rounded away, which shows who computed."""
    a = np.float32(1 + 2**-12)
    merged = merge(torch.tensor([[-1 - 2**-11], [float(a)]]), np.array([[1.0, a]]))[0, 0].item()
    assert native.extension().isa() == isa
    assert merged == (0.0 if isa == "x86-64-v2" else 2**-24)


def test_doctor_shows_the_choice(isa):
    found = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)["findings"]
    (kernels,) = (finding for finding in found if finding["what"] == "compiled kernels")
    assert kernels["state"] == "ok"
    assert kernels["detail"].startswith(f"instruction set {isa} (of {', '.join(isas())})")
