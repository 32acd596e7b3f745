"""Runs in separate processes: a failed or killed run does not end the others."""

import subprocess

import pytest
from typer.testing import CliRunner

from ddlsim.cli import app
from ddlsim.runs.reproduce import matrix
from ddlsim.runs.reproduce.matrix import read_matrix, reproduce, runs_of
from ddlsim.runs.sweeps import pool

pytestmark = pytest.mark.usefixtures("forked_runs")


@pytest.fixture
def one_round(write):
    return read_matrix(write(), ["rounds=1"])


@pytest.mark.full
def test_killed_run_is_reported_and_the_next_one_starts(one_round, tmp_path, monkeypatch):
    start, started = pool.start, []

    def start_and_kill_the_first(job, cores):
        found = start(job, cores)
        if not started:
            found.process.kill()
        started.append(job)
        return found

    monkeypatch.setattr(pool, "start", start_and_kill_the_first)
    runs = runs_of(one_round, tmp_path, seeds=1, patterns=["*/*"])
    outcome = reproduce(runs)
    assert outcome.failures == (("slow/ring seed 1", "killed by SIGKILL, perhaps out of memory"),)
    assert not outcome.interrupted
    assert [run.summary() is not None for run in runs] == [False, True]


@pytest.mark.full
def test_a_command_with_failed_runs_lists_them_and_ends_with_code_5(write, tmp_path):
    name = write(("{algorithm: {name: el}}", "{algorithm: {name: el}, rounds: 1, model: {name: linear}}"))
    (tmp_path / "out" / "alone" / "seed-7").mkdir(parents=True)
    (tmp_path / "out" / "alone" / "seed-7" / "letter.txt").write_text("not a run")
    done = CliRunner().invoke(
        app, ["reproduce", name, "--out", "out", "--cells", "al*", "--cells", "f*", "--seeds", "1"]
    )
    assert done.exit_code == 5, done.output
    assert "1 of 2 runs failed:\n  alone seed 7: --out" in done.stderr
    assert "fast/complete" in done.stdout and "1/2" in done.stdout


@pytest.mark.full
def test_interrupted_table_continues(one_round, tmp_path):
    def interrupt(line):
        raise KeyboardInterrupt

    runs = runs_of(one_round, tmp_path, seeds=1, patterns=["*/*"])
    assert reproduce(runs, notify=interrupt).interrupted
    assert [run.summary() is not None for run in runs] == [True, False]
    lines: list[str] = []
    assert not reproduce(runs, notify=lines.append).interrupted
    assert lines[0] == "1 of 2 runs exist already." and lines[1].startswith("[1/1] fast/complete seed 1")


def test_commit_is_of_the_repository_of_the_sources(tmp_path, monkeypatch):
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "other")):
        subprocess.run([*git, *words], check=True)
    installed = tmp_path / "site-packages" / "ddlsim" / "reproduce" / "matrix.py"
    monkeypatch.setattr(matrix, "__file__", str(installed))
    assert matrix.source_commit() is None
