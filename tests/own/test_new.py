"""Files written by `ddlsim new` work unchanged."""

from pathlib import Path

import pytest
from forked_commands import Commands
from typer.testing import CliRunner

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
def test_new_files_pass_check_and_tests(here):
    commands = Commands()
    for kind in KINDS:
        write_and_check(kind)
        tested = commands.run("pytest -q test_my_own.py", here)
        assert tested.returncode == 0, tested.stdout
        for file in here.glob("*my_own.*"):
            file.unlink()
    commands.close()


@pytest.mark.parametrize("name", ["My", "a-b", "../x", "test_x", "", "json", "numpy", "class", "model_settings"])
def test_invalid_or_taken_names_are_refused(here, name):
    result = CliRunner().invoke(app, ["new", "model", name])
    assert result.exit_code == 2 and "NAME: " in result.stderr and list(here.iterdir()) == []


def test_nothing_is_overwritten(here):
    (here / "mine.yaml").write_text("kept")
    result = CliRunner().invoke(app, ["new", "model", "mine"])
    assert result.exit_code == 2 and "mine.yaml: exists already" in result.stderr
    assert [file.name for file in here.iterdir()] == ["mine.yaml"]
