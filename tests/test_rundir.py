"""Where a run's directory may be made, and what becomes of an earlier run in it."""

import pytest

from ddlsim import rundir
from ddlsim.errors import ScenarioError


def test_an_earlier_run_is_moved_aside_and_never_overwritten(tmp_path):
    for number in (1, 2, 3):
        made = rundir.prepare(tmp_path / "run")
        (made / "manifest.json").write_text(str(number))
    kept = {path.parent.name: path.read_text() for path in tmp_path.glob("*/manifest.json")}
    assert kept == {"run.earlier-1": "1", "run.earlier-2": "2", "run": "3"}


def test_an_earlier_run_in_the_current_folder_is_moved_aside(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "manifest.json").write_text("first")
    monkeypatch.chdir(tmp_path / "here")
    made = rundir.prepare(rundir.Path("."))
    assert made == tmp_path / "here" and not any(made.iterdir())
    assert (tmp_path / "here.earlier-1" / "manifest.json").read_text() == "first"


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    with pytest.raises(ScenarioError, match=r"expected an empty directory or an earlier run, found thesis\.tex"):
        rundir.prepare(tmp_path)


@pytest.mark.parametrize("path", ["file", "file/below", "/proc/nowhere"])
def test_a_path_where_no_directory_can_be_is_refused_and_named(tmp_path, path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ScenarioError, match=f"--out .*{path}: expected a directory.* Name another path"):
        rundir.prepare(tmp_path / path)


def test_a_directory_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(rundir.os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(ScenarioError, match="got: Permission denied"):
        rundir.prepare(tmp_path / "run")
