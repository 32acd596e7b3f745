"""A run that was stopped goes on from its last checkpoint, and ends with the records of one that never stopped."""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.errors import RecordsDamaged, ScenarioError
from ddlsim.runs import directory as directories
from ddlsim.runs.callbacks import Callback, Callbacks
from ddlsim.runs.checkpoint import DEFAULT, Every, State, checkpoints_of, read_state
from ddlsim.runs.interrupts import interruptible
from ddlsim.runs.life import Life, run_in
from ddlsim.runs.loading import choose_device, load_data, prepare
from ddlsim.runs.manifest import made_with
from ddlsim.runs.progress import Mode, Progress
from ddlsim.runs.repetition import Repetition
from ddlsim.scenario import parts

if TYPE_CHECKING:
    from ddlsim.data import Outline, PreparedData
    from ddlsim.learning.learner import Learner
    from ddlsim.scenario import Scenario


def resume(
    directory: Path,
    *,
    data_dir: Path | None = None,
    download: bool = True,
    device: str | None = None,
    anyway: bool = False,
    profile: bool = False,
    progress: Mode = "none",
    checkpoint_every: Every = DEFAULT,
    callbacks: Sequence[Callback] = (),
) -> dict:
    """Continues the run in a directory.

    The events up to the checkpoint are simulated again, without any training: what was computed is read from a log.

    Args:
        directory: of a run that was killed, interrupted or has failed.
        data_dir: where to look for data first.
        download: whether torchvision may download.
        device: auto, cpu or cuda; by default the scenario's `compute_device`.
        anyway: go on although code, libraries or device are others than those that made the checkpoint.
        profile: keep where wall time went.
        progress: auto, bar, plain or none, see progress.py.
        checkpoint_every: see checkpoint.py.
        callbacks: what is called while it goes on.

    Returns:
        The summary, as in summary.json.

    Raises:
        ScenarioError: if there is nothing to resume, or it was made with something else; nothing was changed.
        RecordsDamaged: if no checkpoint is whole.
        ReplayFailed: if the run does not repeat what it did.
    """
    from ddlsim.scenario import load

    started, told = time.perf_counter(), Callbacks(callbacks)
    finished = directories.complete_summary(directory)
    if finished:
        return finished
    if not (directory / "manifest.json").is_file():
        raise ScenarioError(f"{directory}: expected the directory of a run, found no manifest.json in it.")
    manifest = _read_manifest(directory)
    _need_given_parts(directory, manifest)
    scenario = load(directory / "scenario.yaml")
    console = Progress(scenario.name, scenario.rounds, mode=progress)
    try:
        with interruptible() as interrupts, directories.reopened(directory) as place:
            checkpoint, state = _newest_whole(directory, scenario, console.message)
            computes_on = choose_device(device or scenario.compute_device)
            if not anyway:
                _refuse_others(directory, state.made_with, made_with(scenario, computes_on))
            prepared = _load_same_data(scenario, manifest, data_dir, download)
            data_s = time.perf_counter() - started
            console.message(f"{directory}: repeating {state.rounds} rounds without training, then going on.")
            learner = _build(scenario, prepared, computes_on, console.message)
            try:
                repetition = Repetition(checkpoint, state, learner)
                manifest |= {
                    "status": "running",
                    "stopped": None,
                    "process": {"pid": os.getpid(), "host": socket.gethostname()},
                }
                manifest["resumed_after_rounds"] = [*manifest.get("resumed_after_rounds", []), state.rounds]
                parts = scenario, prepared, learner, console, interrupts, manifest, started, data_s, profile
                return run_in(Life(place, *parts, computes_on, checkpoint_every, repetition, state.wall_s, told))
            finally:
                learner.close()
    finally:
        console.close()


def _read_manifest(directory: Path) -> dict[str, Any]:
    path = directory / "manifest.json"
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(manifest["data"], dict):
            raise TypeError("its data is no mapping")
        return manifest
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordsDamaged(f"{path}: cannot be read: {error}. Run it again with `ddlsim run ... --force`.") from error


def _need_given_parts(directory: Path, manifest: Mapping[str, Any]) -> None:
    """Raises ScenarioError if the run has parts that Python code had given it, and now has not."""
    tables = {parts.table(key).kind: (key, parts.table(key)) for key in parts.TABLES}
    for origin in manifest.get("plugins") or ():
        if "source" not in origin:
            continue
        key, table = tables[origin["kind"]]
        if origin["name"] not in table:
            where = f"{origin['path']}" if origin["path"] else f"its text is in {directory}/manifest.json, at plugins"
            raise ScenarioError(
                f"{directory}: the run was made from Python with {key} {origin['name']} ({where}), which no file and "
                f"no package names. Resume it from Python: ddlsim.resume({str(directory)!r}, {key}={origin['name']})."
            )


def _newest_whole(directory: Path, scenario: "Scenario", tell: Callable[[str], None]) -> tuple[Path, State]:
    """The newest checkpoint that is whole."""
    if scenario.learning == "none":
        raise ScenarioError(
            f"{directory}: nothing is learned in this run, so to repeat it is to run it. Run it again: `ddlsim run`."
        )
    found = checkpoints_of(directory)
    if not found:
        raise ScenarioError(
            f"{directory}: has no checkpoint to go on from (the run ended before its first one, or was run with "
            "--checkpoint-every 0). Run it again: `ddlsim run`."
        )
    damage: list[str] = []
    for checkpoint in found:
        try:
            state = read_state(checkpoint)
        except RecordsDamaged as error:
            damage.append(str(error))
            continue
        for text in damage:
            tell(f"{text} Going on from {checkpoint.name} instead.")
        return checkpoint, state
    raise RecordsDamaged(
        f"{directory}: no checkpoint is whole, so the run cannot go on. {' '.join(damage)} "
        "`ddlsim run ... --force` starts it again."
    )


def _refuse_others(directory: Path, then: Mapping[str, str | None], now: Mapping[str, str | None]) -> None:
    """Raises ScenarioError if what computes now is not what computed then."""
    names = sorted(key for key in {*then, *now} if then.get(key) != now.get(key))
    if names:
        differ = "; ".join(f"{name} was {then.get(name)}, is {now.get(name)}" for name in names)
        raise ScenarioError(
            f"{directory}: the run was made with something else: {differ}. Its end may not be the one that it would "
            "have had; --anyway goes on all the same."
        )


def _load_same_data(
    scenario: "Scenario", manifest: Mapping[str, Any], data_dir: Path | None, download: bool
) -> "PreparedData | Outline":
    """The run's data; never its fallback's, which the scenario of a run on it names as its own."""
    prepared = prepare(load_data(scenario, data_dir, fallback=False, download=download))
    then, now = manifest["data"].get("sha256"), prepared.about.get("sha256")
    if then != now:
        raise ScenarioError(
            f"data: {scenario.data_name} is not what the run was made on: its SHA-256 was {then}, is {now}. "
            "Name the folder with the run's data by --data-dir."
        )
    return prepared


def _build(
    scenario: "Scenario", prepared: "PreparedData | Outline", device: str, tell: Callable[[str], None]
) -> "Learner":
    from ddlsim.build import build_learner
    from ddlsim.learning.learner import Learner

    learner = build_learner(scenario, prepared, device, tell)
    assert isinstance(learner, Learner), "only a run that learns has checkpoints"
    return learner
