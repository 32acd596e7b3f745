"""Parallel processes; `python -m ddlsim` is replaced by short Python programs."""

import os
import signal
import sys

import pytest

from ddlsim.runs.sweeps import pool
from ddlsim.runs.sweeps.pool import Job, run_jobs


@pytest.fixture(autouse=True)
def python(monkeypatch):
    """Let a job's arguments be a Python program."""
    real = pool.subprocess.Popen
    monkeypatch.setattr(
        pool.subprocess, "Popen", lambda words, **options: real([sys.executable, "-c", words[3]], **options)
    )


def ended(*programs, at_once=1):
    return {one.name: one for one in run_jobs([Job(str(i), (text,)) for i, text in enumerate(programs)], at_once)}


def test_failing_job_does_not_stop_the_others():
    found = ended("import sys; print('first', file=sys.stderr); sys.exit('no data')", "pass", at_once=2)
    assert (found["0"].code, found["0"].cause) == (1, "no data")
    assert (found["1"].code, found["1"].cause) == (0, "")


def test_killed_job_is_reported_with_its_signal():
    found = ended("import os; os.kill(os.getpid(), 9)", "pass")
    assert (found["0"].code, found["0"].cause) == (-9, "killed by SIGKILL, perhaps out of memory")
    assert found["1"].code == 0


def test_jobs_share_the_cores_up_to_the_requested_number(tmp_path):
    program = (
        "import os, time, pathlib; p = pathlib.Path({path!r}); p.mkdir(exist_ok=True); time.sleep(0.3);"
        "own = p / str(os.getpid()); own.touch(); n = len(list(p.iterdir())); time.sleep(0.3); own.unlink();"
        "raise SystemExit(f'{{n}} {{len(os.sched_getaffinity(0))}}')"
    ).format(path=str(tmp_path / "here"))
    causes = [one.cause.split() for one in ended(program, program, program, at_once=2).values()]
    assert max(int(together) for together, _ in causes) <= 2
    assert {int(cores) for _, cores in causes} == {max(1, len(os.sched_getaffinity(0)) // 2)}


def test_interrupt_ends_the_processes_first(tmp_path):
    mark = tmp_path / "interrupted"
    program = (
        "import pathlib, time, os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        f"try:\n  os.kill({os.getpid()}, signal.SIGUSR1); time.sleep(60)\n"
        f"except KeyboardInterrupt:\n  pathlib.Path({str(mark)!r}).touch()"
    )

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(run_jobs([Job("only", (program,)), Job("never", (program,))]))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert mark.exists()
