"""Start-up time: `ddlsim --help` and `ddlsim check` never import torch.

Each is a new process. Imports are compared with `import torch`, which every run with learning needs.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SMOKE = Path(__file__).parents[1] / "scenarios" / "smoke.yaml"
ALTERNATIVE = "python -c 'import torch'"
HELP_S = 0.3


def python(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


def import_torch() -> str:
    return python("-c", "import torch")


def test_help(ratio, benchmark):
    assert "run" in python("-m", "ddlsim", "--help")
    ratio(lambda: python("-m", "ddlsim", "--help"), import_torch, ALTERNATIVE)
    assert benchmark.disabled or benchmark.stats.stats.min < HELP_S


def test_check(ratio):
    assert "ok" in python("-m", "ddlsim", "check", str(SMOKE))
    ratio(lambda: python("-m", "ddlsim", "check", str(SMOKE)), import_torch, ALTERNATIVE)


@pytest.mark.parametrize(
    ("module", "needs_torch"),
    [
        ("ddlsim", False),
        ("ddlsim.cli", False),
        ("ddlsim.scenario", False),
        ("ddlsim.assembly", False),
        ("ddlsim.runs", False),
        ("ddlsim.kernels", True),
        ("ddlsim.learning.learner", True),
    ],
)
def test_import(ratio, module, needs_torch):
    found = python("-c", f"import sys, {module}; print('torch' in sys.modules)")
    assert found.strip() == str(needs_torch)
    ratio(lambda: python("-c", f"import {module}"), import_torch, ALTERNATIVE)
