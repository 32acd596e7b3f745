"""Runs for which one process computes: the bytes of separate runs, one stack on a GPU, and failures of single runs."""

import multiprocessing
import os
import signal
from functools import partial
from multiprocessing.connection import Pipe

import numpy as np
import pytest
from remote_settings import settings_of
from safetensors.numpy import load_file
from torn_runs import SMOKE, outcome, run_whole

from ddlsim import runs
from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.learning import learner
from ddlsim.learning.backends.stacked import make_backends
from ddlsim.learning.backends.stacked_training import StackedTraining
from ddlsim.learning.backends.threads import NativeBackend
from ddlsim.learning.remote.joined import JoinedRuns
from ddlsim.runs.checkpoint import Every
from ddlsim.runs.cluster.cluster import Executor, executor_of
from ddlsim.runs.cluster.together import Run, compute
from ddlsim.runs.progress import Progress
from ddlsim.scenario import load

NODES = 8
EARLY = "validation={source: train, fraction: 0.2}", "training.early_stopping={patience: 2}"
fork = multiprocessing.get_context("fork")


def settings(algorithm, seed):
    return settings_of(algorithm), f"seed={seed}", "rounds=2", "evaluation.every=1"


def simulate(out, chosen, connection, others):
    for other in others:
        other.close()
    executor = Executor(name="together", address=str(os.dup(connection.fileno())))
    connection.close()
    status = runs.run(load(SMOKE, chosen), out=out, executor=executor, checkpoint_every=Every())["status"]
    os._exit(0 if status == "done" else 3)


def run_together(folder, chosen):
    """Run scenarios in processes for which this one computes; return their exit codes."""
    pairs = [Pipe() for _ in chosen]
    processes = []
    for number, (own, (_, theirs)) in enumerate(zip(chosen, pairs, strict=True)):
        others = [end for pair in pairs for end in pair if end is not theirs]
        processes.append(fork.Process(target=simulate, args=(folder / str(number), own, theirs, others)))
        processes[-1].start()
    for _, theirs in pairs:
        theirs.close()
    compute([Run(mine) for mine, _ in pairs])
    for process in processes:
        process.join()
    return [process.exitcode for process in processes]


@pytest.fixture
def wave_sizes(monkeypatch):
    """Number of runs of each joined wave."""
    found, run = [], JoinedRuns.run

    def recorded(self, waves):
        found.append(len(waves))
        return run(self, waves)

    monkeypatch.setattr(JoinedRuns, "run", recorded)
    return found


@pytest.mark.parametrize(
    ("algorithm", "validation"), [("facade", "train"), pytest.param("el", "node", marks=pytest.mark.full)]
)
def test_joined_runs_write_the_bytes_of_separate_runs(tmp_path, wave_sizes, algorithm, validation):
    chosen = [(*settings(algorithm, seed), *EARLY, f"validation.source={validation}") for seed in range(3)]
    assert run_together(tmp_path, chosen) == [0, 0, 0]
    for number, own in enumerate(chosen):
        assert outcome(tmp_path / str(number)) == run_whole(tmp_path / f"alone-{number}", own)
    assert set(wave_sizes) == {3}


def test_runs_with_other_training_settings_compute_separately(tmp_path, wave_sizes):
    chosen = [settings("el", 0), (*settings("el", 0), "training.learning_rate=0.1")]
    assert run_together(tmp_path, chosen) == [0, 0]
    assert outcome(tmp_path / "1") == run_whole(tmp_path / "alone", chosen[1])
    assert set(wave_sizes) == {1}


@pytest.mark.full
def test_stacked_waves_hold_the_nodes_of_all_runs(tmp_path, monkeypatch):
    stacks, train = [], StackedTraining.train

    def recorded(self, models, jobs):
        stacks.append(len(jobs))
        train(self, models, jobs)

    monkeypatch.setattr(StackedTraining, "train", recorded)
    monkeypatch.setattr(learner, "make_backends", partial(make_backends, stacked=True))
    chosen = [(*settings("facade", seed), *EARLY) for seed in range(2)]
    for folder in ("first", "again"):
        assert run_together(tmp_path / folder, chosen) == [0, 0]
    assert set(stacks) == {2 * NODES}
    for number, own in enumerate(chosen):
        assert outcome(tmp_path / "first" / str(number)) == outcome(tmp_path / "again" / str(number))
        run_whole(tmp_path / f"alone-{number}", own)
        folders = tmp_path / "first" / str(number), tmp_path / f"alone-{number}"
        models = [load_file(folder / "models-0.safetensors") for folder in folders]
        for name, values in models[0].items():
            assert np.allclose(values, models[1][name], atol=1e-5)


@pytest.mark.full
def test_failed_run_leaves_the_others_unchanged(tmp_path, monkeypatch):
    broken, train = [], NativeBackend._train

    def breaks(self, workspace_of, job):
        if job.node == NODES + 2:  # of the second run, in a joined wave
            broken.append(job.batches)
        if any(job.batches is one for one in broken):
            raise ScenarioError("a node of the second run breaks")
        train(self, workspace_of, job)

    monkeypatch.setattr(NativeBackend, "_train", breaks)
    chosen = [settings("facade", seed) for seed in range(3)]
    assert run_together(tmp_path, chosen) == [0, 1, 0]
    monkeypatch.undo()
    assert len(broken) == 1
    for number in (0, 2):
        assert outcome(tmp_path / str(number)) == run_whole(tmp_path / f"alone-{number}", chosen[number])


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.full)])
def test_stopped_run_leaves_the_others_unchanged(tmp_path, monkeypatch, number):
    report_round = Progress.round

    def stop(self, completed, *rest):
        report_round(self, completed, *rest)
        if completed == 1 and multiprocessing.current_process().name.endswith("stopped"):
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Progress, "round", stop)
    chosen = [settings("el", seed) for seed in range(2)]
    made = fork.Process

    def named(**arguments):
        own = arguments["args"][0].name
        return made(name="stopped" if own == "1" else "other", **arguments)

    monkeypatch.setattr(fork, "Process", named)
    assert run_together(tmp_path, chosen) == [0, 3 if number == signal.SIGINT else -signal.SIGKILL]
    assert outcome(tmp_path / "0") == run_whole(tmp_path / "alone", chosen[0])


def test_lost_computing_process_is_reported(tmp_path):
    mine, theirs = Pipe()
    mine.close()
    executor = Executor(name="together", address=str(os.dup(theirs.fileno())))
    theirs.close()
    with pytest.raises(DdlsimError, match="Run fewer --together"):
        runs.run(load(SMOKE, settings("el", 0)), out=tmp_path / "run", executor=executor)


@pytest.mark.parametrize("text", ["together", "together:", "together:here"])
def test_executor_together_needs_a_socket(text):
    with pytest.raises(ScenarioError, match="expected local, ray"):
        executor_of(text)
