"""The kernels' inner loops compile for other processors and compilers, if one is installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIMD = ROOT / "csrc" / "simd"
FLAGS = [
    "-std=c++20",
    "-O1",
    "-c",
    "-ffp-contract=off",
    "-Wno-narrowing",
    f"-I{ROOT / 'csrc'}",
    "-DDDLSIM_SIMD_TABLE=simd_baseline",
    '-DDDLSIM_SIMD_NAME="baseline"',
]


def first_of(*names: str) -> list[str] | None:
    return next(([path] for name in names if (path := shutil.which(name))), None)


def compiler_for_neon() -> list[str] | None:
    """Return $DDLSIM_NEON_CXX or an installed cross compiler."""
    given = os.environ.get("DDLSIM_NEON_CXX", "").split()
    cross = first_of("aarch64-linux-gnu-g++", *(f"aarch64-linux-gnu-g++-{version}" for version in range(20, 11, -1)))
    zig = first_of("zig")
    return given or cross or ([*zig, "c++", "-target", "aarch64-linux-gnu"] if zig else None)


@pytest.mark.skipif(not SIMD.is_dir(), reason="no C++ sources beside the package")
@pytest.mark.parametrize("source", ["kernels.cpp", "dispatch.cpp"])
@pytest.mark.parametrize(
    "command", [pytest.param(compiler_for_neon(), id="NEON"), pytest.param(first_of("clang++"), id="clang")]
)
def test_inner_loops_compile(tmp_path, command, source):
    if command is None:
        pytest.skip("no such compiler here: apt-get install g++-aarch64-linux-gnu clang")
    done = subprocess.run([*command, *FLAGS, SIMD / source, "-o", tmp_path / "out.o"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.o").stat().st_size > 0
