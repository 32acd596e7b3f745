"""Files written by `ddlsim new` work unchanged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ddlsim
from ddlsim.cli import app

KINDS = ("algorithm", "model", "dataset", "task", "topology")


def write_and_check(kind):
    result = CliRunner().invoke(app, ["new", kind, "my_own"])
    assert result.exit_code == 0 and result.stdout.split() == ["my_own.py", "my_own.yaml", "test_my_own.py"]
    assert "class MyOwn(" in Path("my_own.py").read_text()
    checked = CliRunner().invoke(app, ["check", "my_own.yaml"])
    assert checked.exit_code == 0 and "my_own.yaml: ok." in checked.stdout


def test_files_of_every_kind_pass_the_check(here):
    for kind in KINDS:
        write_and_check(kind)
        for file in here.iterdir():
            file.unlink()


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_new_files_pass_check_and_tests(here, kind):
    write_and_check(kind)
    path = os.pathsep.join([str(Path(ddlsim.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_own.py"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout


@pytest.mark.parametrize("name", ["My", "a-b", "../x", "test_x", "", "json", "numpy", "class", "model_settings"])
def test_invalid_or_taken_names_are_refused(here, name):
    result = CliRunner().invoke(app, ["new", "model", name])
    assert result.exit_code == 2 and "NAME: " in result.stderr and list(here.iterdir()) == []


def test_nothing_is_overwritten(here):
    (here / "mine.yaml").write_text("kept")
    result = CliRunner().invoke(app, ["new", "model", "mine"])
    assert result.exit_code == 2 and "mine.yaml: exists already" in result.stderr
    assert [file.name for file in here.iterdir()] == ["mine.yaml"]
