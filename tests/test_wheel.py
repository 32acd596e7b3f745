"""`make wheel` builds a wheel that auditwheel accepts, and it runs without a compiler."""

import re
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.full
def test_wheel_installs_without_a_compiler_and_runs_smoke(tmp_path):
    tool = ["make", f"{sys.prefix}/bin/auditwheel", f"VENV={sys.prefix}"]
    if subprocess.run(tool, cwd=ROOT, capture_output=True).returncode:
        pytest.skip("auditwheel cannot be installed here")
    built = subprocess.run(
        ["make", "wheel", f"VENV={sys.prefix}", f"WHEELS={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert re.search(r"manylinux_2_\d+_x86_64|manylinux_2_\d+_aarch64", wheel.name), built.stderr
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    packages = next((environment / "lib").glob("python*")) / "site-packages"
    for step in (
        [sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install", "--no-deps", wheel],
        [environment / "bin" / "ddlsim", "run", "smoke", "--out", tmp_path / "run"],
    ):
        subprocess.run(step, cwd=tmp_path, env={"PATH": str(environment / "bin")}, check=True, capture_output=True)
        # PyTorch and the other dependencies come from this environment.
        (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    assert (tmp_path / "run" / "summary.json").is_file()
