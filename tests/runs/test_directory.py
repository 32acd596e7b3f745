"""The directory of a run, and an earlier run in it."""

import re
import subprocess
import sys

import pytest

from ddlsim.foundation.errors import RecordsFailed, ScenarioError
from ddlsim.runs import directory as directories
from ddlsim.runs.directory import LOCK, DirectoryInUse, Path, run_directory


def test_an_earlier_run_is_moved_aside_and_never_overwritten(tmp_path):
    for number in (1, 2, 3):
        with run_directory(tmp_path / "run") as made:
            (made.path / "manifest.json").write_text(str(number))
    kept = {path.parent.name: path.read_text() for path in tmp_path.glob("*/manifest.json")}
    assert kept == {"run.earlier-1": "1", "run.earlier-2": "2", "run": "3"}


def test_moved_run_is_reported(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    with run_directory(tmp_path / "run", print):
        pass
    assert re.fullmatch(r"\S+run held an earlier run; it is now \S+run\.earlier-1\.\n", capsys.readouterr().out)


def test_an_earlier_run_in_the_current_folder_is_moved_aside(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "manifest.json").write_text("first")
    monkeypatch.chdir(tmp_path / "here")
    with run_directory(Path(".")) as made:
        assert made.path == tmp_path / "here" and [file.name for file in made.path.iterdir()] == [LOCK]
    assert (tmp_path / "here.earlier-1" / "manifest.json").read_text() == "first"


def test_unrelated_folder_is_not_changed(tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    with (
        pytest.raises(ScenarioError, match=r"expected an empty directory or an earlier run, found thesis\.tex"),
        run_directory(tmp_path),
    ):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_files_of_a_run_on_a_full_disk_do_not_block_the_next_run(tmp_path):
    (tmp_path / "run").mkdir()
    for name in ("scenario.yaml", "log.txt"):
        (tmp_path / "run" / name).write_text("")
    with run_directory(tmp_path / "run") as made:
        assert [file.name for file in made.path.iterdir()] == [LOCK]


@pytest.mark.parametrize("path", ["file", "file/below", "/proc/nowhere"])
def test_impossible_path_is_refused_and_named(tmp_path, path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ScenarioError, match=f"--out .*{path}: expected a directory.* Name another path"),
        run_directory(tmp_path / path),
    ):
        pass


def test_unwritable_directory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(directories.os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(ScenarioError, match="got: Permission denied"), run_directory(tmp_path / "run"):
        pass


HOLD = """
import sys, pathlib
from ddlsim.runs.directory import run_directory
with run_directory(pathlib.Path(sys.argv[1])) as made:
    (made.path / "manifest.json").write_text('{"status": "running"}')
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Start a process that writes into tmp_path / "run"."""
    words = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_directory_in_use_is_refused_with_its_process_and_start_time(tmp_path, holder):
    text = rf"writing into it since 20\d\d-.* \(process {holder.pid} on .*\)\. Wait for its end, or name another path"
    with pytest.raises(DirectoryInUse, match=text), run_directory(tmp_path / "run"):
        pass
    assert (tmp_path / "run" / "manifest.json").exists()  # nothing was moved


def test_killed_run_leaves_no_lock(tmp_path, holder):
    holder.kill()
    holder.wait()
    with run_directory(tmp_path / "run") as made:
        assert made.is_there()
    assert not (tmp_path / "run" / LOCK).exists()
    assert (tmp_path / "run.earlier-1" / "manifest.json").exists()


@pytest.mark.parametrize("replaced", [False, True])
def test_removed_or_replaced_directory_is_noticed(tmp_path, replaced):
    with run_directory(tmp_path / "run") as made:
        made.check()
        made.path.rename(tmp_path / "elsewhere")
        if replaced:
            made.path.mkdir()
        with pytest.raises(RecordsFailed, match="has been removed or replaced"):
            made.check()
