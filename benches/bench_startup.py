"""How long a user waits before anything happens: `ddlsim --help` and `ddlsim check` never import torch."""

import subprocess
import sys
from pathlib import Path

SMOKE = Path(__file__).parents[1] / "scenarios" / "smoke.yaml"


def python(*arguments: str) -> str:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


def test_help(ratio):
    assert "run" in python("-m", "ddlsim", "--help")
    ratio(lambda: python("-m", "ddlsim", "--help"), lambda: python("-c", "import torch"), "python -c 'import torch'")


def test_check(ratio):
    assert "ok" in python("-m", "ddlsim", "check", str(SMOKE))
    ratio(
        lambda: python("-m", "ddlsim", "check", str(SMOKE)), lambda: python("-c", "import torch"),
        "python -c 'import torch'",
    )  # fmt: skip
