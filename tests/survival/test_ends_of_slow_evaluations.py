"""A signal ends a run in the middle of an evaluation, without loss of earlier rounds."""

import itertools
import signal
import threading
import time

from torn_runs import SMOKE, outcome, run_whole

from ddlsim import runs
from ddlsim.foundation import interrupts
from ddlsim.learning.backends import threads
from ddlsim.learning.bank import architecture_of
from ddlsim.runs import checkpoint
from ddlsim.runs.checkpoint_files import whole_checkpoints
from ddlsim.scenario import load

SETTINGS = ("algorithm=el", "rounds=5", "evaluation.every=2", "evaluation.samples=50")


def test_sigterm_in_a_slow_evaluation_ends_the_run_and_loses_no_round(tmp_path, monkeypatch):
    real, numbers, sent_s = threads.predictions_of, itertools.count(), []

    def slow(job, workspace_of, data, chunk):
        """Take twenty seconds of short passes in the second evaluation, of round 4, whose first test sends a signal."""
        number = next(numbers)
        for step in range(2000 if number >= 8 else 0):
            workspace_of(architecture_of(job.models[0]))
            if (number, step) == (8, 0):
                sent_s.append(time.monotonic())
                signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)
            time.sleep(0.01)
        return real(job, workspace_of, data, chunk)

    with monkeypatch.context() as patched:
        patched.setattr(interrupts, "GRACE_S", 0.6)
        patched.setattr(checkpoint, "GRACE_S", 0.0)  # every step counts as slow, so every round has a checkpoint
        patched.setattr(checkpoint, "WRITING", 1e9)
        patched.setattr(threads, "predictions_of", slow)
        summary = runs.run(load(SMOKE, SETTINGS), out=tmp_path / "run")
    assert 0.6 <= time.monotonic() - sent_s[0] < 5 and summary["status"] == "interrupted"
    assert [state.completed for _, state in whole_checkpoints(tmp_path / "run")] == [4, 3]
    runs.resume(tmp_path / "run")
    assert outcome(tmp_path / "run") == run_whole(tmp_path / "whole", SETTINGS)
