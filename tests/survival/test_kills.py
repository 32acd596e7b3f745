"""Processes killed many times at random moments write the bytes of an uninterrupted process."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest
from torn_runs import go, outcome, run_whole

from ddlsim.algorithms import ALGORITHMS
from ddlsim.runs.checkpoint import Every

FAMILIES = {
    "smoke": (),
    "async": (
        "mode=async",
        "devices={name: lognormal, median_step_time_s: 0.05}",
        "network.drop_probability=0.1",
        "network.on_drop=drop",
    ),
    "churn": (
        "churn={name: schedule, offline: [{node: 2, start_s: 0.35, end_s: 1.5}, {node: 7, start_s: 0.9, end_s: 1.4}]}",
    ),
    "kept": ("training.optimizer=adam", "training.optimizer_state=kept", "network.compression={name: top_k}"),
    "best": ("validation={source: node, fraction: 0.2}", "training.early_stopping={patience: 6}"),
}
KEYS = {"mapl": ", warmup_rounds: 1, projection_units: 64", "pens": ", stage1_rounds: 3", "panm": ", stage1_rounds: 3"}
for name in ("pens", "panm", "dac"):
    KEYS[name] = KEYS.get(name, "") + ", loss_batches: local_steps, sampled_peers: 2"


@pytest.fixture(scope="module")
def processes():
    """Return processes with all imports done, so that kills hit the run."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["torch", "torchvision", "ddlsim.assembly", "ddlsim.runs", "ddlsim.learning.learner"]
    )
    return context


def kill_and_go_on(processes, draw: random.Random, out: Path, settings: tuple[str, ...], kills: int) -> int:
    """Kill the run so many times at random moments, then let it end.

    Returns:
        Number of kills before its end.
    """
    every = draw.choice([Every(rounds=1), Every(rounds=3), Every(wall_s=0.1)])
    killed = 0
    for _ in range(kills):
        process = processes.Process(target=go, args=(out, settings, every))
        process.start()
        while not out.exists() and process.is_alive():
            time.sleep(0.005)
        process.join(draw.uniform(0, 1.5))
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        if process.exitcode == 0:
            return killed
        assert process.exitcode == -signal.SIGKILL
        killed += 1
    process = processes.Process(target=go, args=(out, settings, every))
    process.start()
    process.join()
    assert process.exitcode == 0
    return killed


def settings_of(algorithm: str, family: str, rounds: int) -> tuple[str, ...]:
    return f"algorithm={{name: {algorithm}{KEYS.get(algorithm, '')}}}", f"rounds={rounds}", *FAMILIES[family]


@pytest.mark.full
@pytest.mark.parametrize(("algorithm", "family"), [("el", "async"), ("dac", "churn")])
def test_killed_run_is_resumed(processes, tmp_path, algorithm, family):
    settings = settings_of(algorithm, family, 20)
    kill_and_go_on(processes, random.Random(algorithm), tmp_path / "killed", settings, kills=3)
    assert outcome(tmp_path / "killed") == run_whole(tmp_path / "whole", settings)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_runs_of_every_algorithm_survive_many_kills(processes, tmp_path, algorithm, family, record_property):
    settings = settings_of(algorithm, family, 40)
    draw = random.Random(f"{algorithm} {family}")
    killed = kill_and_go_on(processes, draw, tmp_path / "killed", settings, kills=6)
    record_property("kills", killed)
    print(f"{algorithm} {family}: killed {killed} times")
    assert outcome(tmp_path / "killed") == run_whole(tmp_path / "whole", settings)
