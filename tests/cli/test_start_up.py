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


@pytest.mark.parametrize("imported", [False, True])
def test_python_searches_for_cycles_at_its_end_only_if_triton_would_miss_it(imported):
    code = (
        "import atexit, gc, sys, types; atexit.register(lambda: print('frozen', gc.get_freeze_count() > 0)); "
        f"sys.modules.update({{'triton': types.ModuleType('triton')}} if {imported} else {{}}); "
        "sys.argv = ['ddlsim', '--version']; from ddlsim.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert f"frozen {not imported}" in done.stdout
