"""The choice of the instruction set, and its report by doctor."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ddlsim.cli import app
from ddlsim.foundation import native
from ddlsim.kernels import grouped_conv, merge

extension = native.extension()
ORDER = ["x86-64-v4", "x86-64-v3", "x86-64-v2", "baseline"]


@pytest.fixture(autouse=True)
def restored():
    before = extension.isa()
    yield
    extension.set_isa(before)


def test_best_supported_instruction_set_is_the_default():
    assert extension.isa() == extension.isas()[0]
    assert extension.isas() == [name for name in ORDER if name in extension.isas()]


def test_processor_flags_select_the_instruction_set():
    try:
        with open("/proc/cpuinfo") as file:
            flags = next(set(line.split(":")[1].split()) for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        pytest.skip("no flags to read")
    assert ("x86-64-v4" in extension.isas()) == ({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"} <= flags)
    assert ("x86-64-v3" in extension.isas()) == ({"avx2", "fma", "bmi1", "bmi2"} <= flags)


@pytest.mark.parametrize("name", ["avx512", "", "x86-64-v5", "X86-64-V3"])
def test_absent_instruction_set_is_refused(name):
    before = extension.isa()
    with pytest.raises(ValueError, match=r"no instruction set .* here; see isas\(\)"):
        extension.set_isa(name)
    assert extension.isa() == before


def test_chosen_instruction_set_computes(isa):
    """The oldest level has no fused multiply-add: 1 + eps of a product is rounded away, which identifies the level."""
    a = np.float32(1 + 2**-12)
    merged = merge(torch.tensor([[-1 - 2**-11], [float(a)]]), np.array([[1.0, a]]))[0, 0].item()
    assert native.extension().isa() == isa
    assert merged == (0.0 if isa == "x86-64-v2" else 2**-24)


def test_doctor_shows_the_choice(isa):
    (kernels,) = (finding for finding in _doctors_findings() if finding["what"] == "compiled kernels")
    assert kernels["state"] == "ok"
    assert kernels["detail"].startswith(f"instruction set {isa} (of {', '.join(extension.isas())})")


@pytest.mark.parametrize(
    ("why", "cure"),
    [
        ("they are not built", "DDLSIM_CUDA=ON"),
        ("the driver is too old: it is for CUDA 12.2, the kernels are built with 13.0", "that fits the driver"),
        ("the kernels are not built for compute capability 6.1 (no kernel image)", "CUDAARCHS=native"),
    ],
)
def test_doctor_reports_why_gpu_kernels_are_unused(monkeypatch, why, cure):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "an old GPU")
    monkeypatch.setattr(native, "why_no_cuda", lambda: why)
    monkeypatch.setattr(grouped_conv, "why_no_kernels", lambda device: "")
    (kernels,) = (one for one in _doctors_findings() if one["what"] == "CUDA kernels")
    assert kernels["state"] == "note" and why in kernels["detail"] and cure in kernels["cure"]


@pytest.mark.parametrize("why", ["", "RuntimeError: Failed to find C compiler."])
def test_doctor_names_the_convolutions_on_a_gpu(monkeypatch, why):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: "a GPU")
    monkeypatch.setattr(grouped_conv, "why_no_kernels", lambda device: why)
    (found,) = (one for one in _doctors_findings() if one["what"] == "convolutions")
    assert found["state"] == ("note" if why else "ok") and why in found["detail"]


@pytest.mark.parametrize(
    ("version", "reason"), [(None, "torch is installed without CUDA"), ("13.0", "no device, or its driver is too old")]
)
def test_doctor_reports_why_torch_has_no_device(monkeypatch, version, reason):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", version)
    (cuda,) = (one for one in _doctors_findings() if one["what"] == "CUDA")
    assert cuda["state"] == "note" and reason in cuda["detail"]


def _doctors_findings():
    return json.loads(CliRunner().invoke(app, ["doctor", "--json"]).stdout)["findings"]
