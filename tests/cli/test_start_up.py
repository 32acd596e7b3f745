"""Looking and checking must not wait for torch."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["run", "--help"],
        ["--version"],
        ["check", "smoke"],
        ["list", "algorithms"],
        ["list", "models"],
        ["list", "metrics"],
        ["schema"],
    ],
    ids=" ".join,
)
def test_command_does_not_import_torch(words):
    code = (
        "import sys; from ddlsim.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "sys.exit('torch' in sys.modules or 'torchvision' in sys.modules)"
    )
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_module_is_the_command(tmp_path):
    command = [sys.executable, "-m", "ddlsim", "check", "nix.yaml"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("nix.yaml: no such file")
