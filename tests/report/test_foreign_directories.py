"""Reading a foreign run directory is bounded, stays inside the directory and executes no code of the run."""

import json
import os
from pathlib import Path

import pytest

import ddlsim
from ddlsim.foundation.errors import RecordsDamaged, ScenarioError
from ddlsim.report.html.page import Page, write
from ddlsim.report.reading import read, read_yaml

PLUGIN = """\
from dataclasses import dataclass
from pathlib import Path

from ddlsim.models.cnn import MLP

Path({mark!r}).touch()


@dataclass(frozen=True, kw_only=True)
class Mine(MLP):
    \"\"\"A model of the user.\"\"\"
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> tuple[Path, Path]:
    """Return a run whose model file writes a marker when imported, and the marker."""
    folder = tmp_path_factory.mktemp("foreign")
    mark = folder / "mark"
    (folder / "mine.py").write_text(PLUGIN.format(mark=str(mark)))
    changes = {"rounds": 1, "evaluation.every": 1, "model": {"name": f"{folder}/mine.py:Mine"}}
    return ddlsim.run("smoke", set=changes, out=folder / "run", progress="none").dir, mark


@pytest.fixture
def run_dir(finished, tmp_path) -> Path:
    copy = tmp_path / "run"
    copy.mkdir()
    for file in finished[0].iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    return copy


def test_code_of_a_run_is_imported_only_with_trust(finished, monkeypatch):
    from ddlsim.cli.report import page_of
    from ddlsim.foundation import own_code

    directory, mark = finished
    monkeypatch.setattr(own_code, "_loaded", {})
    mark.unlink(missing_ok=True)
    run = ddlsim.load(directory)
    assert run.state_dict(0) and page_of(directory).sections and str(ddlsim.compare(directory))
    with pytest.raises(ScenarioError, match=r"mine\.py:Mine.*--trust"):
        run.model(0)
    assert not mark.exists()
    ddlsim.load(directory, trust=True).model(0)
    assert mark.exists()


def test_scenario_is_read_from_the_manifest_unless_the_file_was_edited(run_dir, monkeypatch):
    expected = read_yaml(run_dir / "scenario.yaml")
    with monkeypatch.context() as context:
        context.setattr("ddlsim.report.reading.read_yaml", None)
        assert read(run_dir).scenario == expected
    file = run_dir / "scenario.yaml"
    file.write_text(file.read_text().replace("\nseed: 0\n", "\nseed: 3\n"))
    assert read(run_dir).scenario == {**expected, "seed": 3}


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_records_must_be_regular_files(run_dir, kind):
    (run_dir / "metrics.jsonl").unlink()
    {"link": lambda path: path.symlink_to("/etc/passwd"), "pipe": os.mkfifo, "folder": lambda path: path.mkdir()}[kind](
        run_dir / "metrics.jsonl"
    )
    with pytest.raises(RecordsDamaged, match=rf"metrics\.jsonl: expected a regular file, found a .*{kind}"):
        read(run_dir)


def test_aliases_in_a_scenario_of_a_run_are_refused(run_dir):
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60))
    (run_dir / "scenario.yaml").write_text(bomb)
    with pytest.raises(RecordsDamaged, match="found an alias"):
        read(run_dir)


@pytest.mark.parametrize("name", ["head", "pulled_from"])
def test_giant_number_in_a_row_is_refused(run_dir, name):
    row = {"time_s": 1.0, "node": 0, "round": 1, "name": name, "value": 10**18}
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    with pytest.raises(RecordsDamaged, match=f"{name}: expected numbers below"):
        read(run_dir)


def test_unwritable_report_does_not_change_the_earlier_one(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("earlier")
    monkeypatch.setattr(Path, "write_bytes", lambda self, *_, **__: self.touch() or os.truncate("/nowhere/full", 0))
    with pytest.raises(ScenarioError):
        write(Page("title", "", (), ()), path)
    monkeypatch.undo()
    assert path.read_text() == "earlier" and list(tmp_path.iterdir()) == [path]
