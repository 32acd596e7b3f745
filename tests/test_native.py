"""Loading of the compiled module: its search, stale modules and missing modules."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddlsim.foundation import native

NEEDED = ("__init__.py", "foundation/__init__.py", "foundation/native.py", "foundation/errors.py")


@pytest.fixture
def tree(tmp_path):
    """Return a source tree without compiled modules."""
    package = tmp_path / "tree" / "ddlsim"
    package.mkdir(parents=True)
    for name in NEEDED:
        (package / name).parent.mkdir(exist_ok=True)
        shutil.copy(native.PACKAGE_DIR / name, package / name)
    return package.parent


@pytest.fixture
def site(tmp_path):
    """Return a folder of installed packages with ddlsim's compiled module."""
    package = tmp_path / "site" / "ddlsim"
    package.mkdir(parents=True)
    shutil.copy(native.extension().__file__, package)
    info = package.parent / "ddlsim-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ddlsim\nVersion: 0.1.0\n")
    return package.parent


def run(*path: Path, **environment: str) -> subprocess.CompletedProcess:
    """Load the module in a Python that sees only these folders."""
    code = "from ddlsim.foundation import native; print(native.extension().__file__); import ddlsim._native"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **environment}
    command = [sys.executable, "-S", "-c", code]
    return subprocess.run(command, cwd=path[0], env=environment, capture_output=True, text=True)


def write_sources(tree: Path, text: str) -> None:
    (tree / "csrc").mkdir()
    (tree / "csrc" / "module.cpp").write_text(text)


def test_missing_module_is_reported_with_the_build_command(tree):
    failed = run(tree)
    assert failed.returncode != 0
    assert "DataMissing" in failed.stderr
    assert "pip install ." in failed.stderr


def test_installed_module_is_found_from_a_source_tree(tree, site):
    done = run(tree, site)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(site))


def test_a_module_older_than_its_sources_is_refused(tree, site):
    write_sources(tree, "// newer")
    failed = run(tree, site)
    assert "DataMissing" in failed.stderr
    assert "built from other sources" in failed.stderr
    assert "pip install ." in failed.stderr


def test_stale_module_can_be_allowed(tree, site):
    write_sources(tree, "// newer")
    done = run(tree, site, DDLSIM_ALLOW_STALE="1")
    assert done.returncode == 0, done.stderr
    assert "built from other sources" in done.stderr


def test_the_stamp_follows_every_source_file(tree):
    write_sources(tree, "// one")
    first = native.source_stamp(tree / "csrc")
    (tree / "csrc" / "other.cu").write_text("")
    second = native.source_stamp(tree / "csrc")
    (tree / "csrc" / "notes.txt").write_text("not a source")
    assert first != second == native.source_stamp(tree / "csrc")


def test_stamp_of_the_build_equals_the_sources():
    csrc = native.PACKAGE_DIR.parent / "csrc"
    if not csrc.is_dir():
        pytest.skip("no C++ sources beside the package")
    assert native.extension().source_stamp == native.source_stamp(csrc)
