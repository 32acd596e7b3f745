"""A run's life: data, directory, start, rounds, end, summary.

A run that loses a worker goes back to its last checkpoint by itself, and goes on with those that are left.

A run that was stopped goes on from its last checkpoint, and ends with the records of one that never stopped.
"""

import ctypes
import gc
import os
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ddlsim.foundation.errors import DdlsimError, RecordsDamaged, ScenarioError, WorkerLost
from ddlsim.foundation.interrupts import interruptible
from ddlsim.learning.size_learner import SizeLearner
from ddlsim.runs import directory as directories
from ddlsim.runs.branch import branch, plan_branch
from ddlsim.runs.branch_history import read_stages
from ddlsim.runs.calibrate import with_earlier_steps, with_measured_steps
from ddlsim.runs.callbacks import Progress
from ddlsim.runs.checkpoint import State, checkpoints_of, read_state
from ddlsim.runs.cluster.cluster import disconnecting
from ddlsim.runs.computing import about_executor, computes_on, make_learner
from ddlsim.runs.directory import LOCK
from ddlsim.runs.loading import Options, load_data, prepare
from ddlsim.runs.loop import RunContext, run_in
from ddlsim.runs.manifest import (
    load_same_data,
    made_with,
    need_given_parts,
    read_manifest,
    refuse_edited,
    refuse_other_inputs,
    refuse_others,
    start_manifest,
)
from ddlsim.runs.repetition import ReplayToCheckpoint
from ddlsim.scenario.idle_keys import idle_notes

if TYPE_CHECKING:
    from ddlsim.scenario import Scenario


Outcome = TypeVar("Outcome")

MOST_LOSSES = 5
"""Losses in a row without a new checkpoint in between, after which the run is given up."""
PAUSE_S = 2.0
"""Before the run goes on: the cluster takes notice of a lost host."""


def until_done(
    begin: Callable[[Options], Outcome],
    go_on: Callable[[Path, Options], Outcome],
    options: Options,
    tell: Callable[[str], None],
) -> Outcome:
    """What a run comes to, however many workers it loses.

    Args:
        begin: runs it from the start.
        go_on: continues it in its directory.
        options: how it is carried out.
        tell: takes a sentence on each loss.
    Raises:
        DdlsimError: if no worker is left, or workers are lost again and again.
    """
    attempt: Callable[[Options], Outcome] = begin
    losses, newest, place = 0, None, None
    with disconnecting(options.executor):
        while True:
            try:
                return attempt(options)
            except WorkerLost as lost:
                place = lost.run_dir or place
                if place is None:
                    raise
                found = next(iter(checkpoints_of(place)), None)
                losses, newest = losses + 1 if found == newest else 1, found
                if losses >= MOST_LOSSES:
                    raise _given_up(lost, losses, place, found) from lost
                behind = f"The run goes back to {found.name}" if found else "The run begins again"
                tell(f"WARNING: {lost} {behind}, on the workers that there are.")
                if found is None:
                    _clear(place)
                attempt = partial(go_on, place) if found else begin
                options = replace(options, fewer_workers=True)
                time.sleep(PAUSE_S)
            finally:
                _return_memory()


def _return_memory() -> None:
    """Return freed memory to the system; glibc keeps it for the process otherwise, more with every run."""
    gc.collect()  # simulation, nodes and processes refer to each other
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _given_up(lost: WorkerLost, losses: int, place: Path, newest: Path | None) -> DdlsimError:
    again = f"`ddlsim resume {place}` continues it" if newest else "Run it again"
    return DdlsimError(
        f"{lost} {losses} losses without a checkpoint in between: the run is given up. Workers that need more memory "
        f"than their host has are ended by Ray; {again}, with more or larger hosts."
    )


def _clear(directory: Path) -> None:
    """Removes what a run has written that begins again."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.name == LOCK:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def resume(
    directory: Path,
    *,
    anyway: bool = False,
    from_round: int | None = None,
    set: Sequence[str] = (),
    out: Path | None = None,
    **further: Any,
) -> dict:
    """Continues the run in a directory; or, with any of `from_round`, `set` and `out`, branches it into another one.

    The events up to the checkpoint are simulated again, without any training: what was computed is read from a log.

    Args:
        directory: of a run that was killed, interrupted or has failed; or of any that is to be branched.
        anyway: go on although code, libraries or device are others than those that made the checkpoint.
        from_round: branch the run when all nodes have completed this round; None: the last one that it completed.
        set: "dotted.key=value" texts; what is other from there on.
        out: directory of the branch; by default beside the run's.
        further: how it is carried out, see options.py; the manifest keeps the command that began the run.
    Returns:
        The summary, as in summary.json.

    Raises:
        ScenarioError: if there is nothing to resume, or it was made with something else; nothing was changed.
        RecordsDamaged: if no checkpoint is whole.
        ReplayFailed: if the run does not repeat what it did.
    """
    options, continued = Options(**further), partial(go_on, anyway=anyway)
    begin = partial(continued, directory)
    if from_round is not None or set or out is not None:
        begin = partial(branch, plan_branch(directory, from_round, set), out, anyway)
    return until_done(begin, continued, options, partial(_say, options))


def _say(options: Options, text: str) -> None:
    """A sentence beside a run's progress."""
    console = Progress("", 0, mode=options.progress)
    console.message(text)
    console.close()


def go_on(directory: Path, options: Options, anyway: bool = False) -> dict:
    """A run from its last checkpoint to its end, see `resume`, or until it loses a worker.

    Raises:
        WorkerLost: then.
    """
    from ddlsim.scenario import load

    started = time.perf_counter()
    finished = directories.complete_summary(directory)
    if finished:
        return finished
    manifest = read_manifest(directory)
    refuse_edited(directory, manifest)
    need_given_parts(directory, manifest)
    scenario = load(directory / "scenario.yaml")
    stages = read_stages(directory)
    followed = (*(stage.scenario for stage in stages), scenario)
    console = Progress(scenario.name, scenario.rounds, mode=options.progress)
    try:
        with interruptible() as interrupts, directories.reopened(directory) as place:
            checkpoint, state = _newest_whole(directory, scenario, console.message)
            device = computes_on(scenario, options)
            if not anyway:
                refuse_others(directory, state.made_with, made_with(followed, device))
            prepared = load_same_data(scenario, manifest, options.data_dir, options.download, stages)
            data_s = time.perf_counter() - started
            console.message(f"{directory}: repeating {state.rounds} rounds without training, then going on.")
            learner = make_learner(followed[0], prepared, device, options, console.message)
            assert not isinstance(learner, SizeLearner), "only a run that learns has checkpoints"
            try:
                repetition = ReplayToCheckpoint(checkpoint, state, learner)
                manifest |= {
                    "status": "running",
                    "stopped": None,
                    "process": {"pid": os.getpid(), "host": socket.gethostname()},
                    "executor": about_executor(learner),
                }
                manifest["resumed_after_rounds"] = [*manifest.get("resumed_after_rounds", []), state.rounds]
                parts = scenario, prepared, learner, console, interrupts, manifest, started, data_s
                return run_in(RunContext(place, *parts, options, device, repetition, state.wall_s, stages))
            finally:
                learner.close()
    finally:
        console.close()


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


def run(scenario: "Scenario", **options: Any) -> dict:
    """The summary of `run_in_directory`, whose arguments it takes."""
    return run_in_directory(scenario, **options)[1]


def run_in_directory(
    scenario: "Scenario",
    *,
    out: Path | None = None,
    fallback: bool = True,
    force: bool = False,
    resume_torn: bool = False,
    **further: Any,
) -> tuple[Path, dict]:
    """Runs a scenario and leaves a run directory.

    Ctrl-C, SIGTERM and SIGHUP end it after the round, with a checkpoint, and with what has been computed written and
    summarized (status `interrupted`). A second signal does not wait for the round.

    A worker of a cluster that is lost costs the rounds since the last checkpoint, see recovery.py.

    Args:
        scenario: what to run.
        out: the run directory; by default runs/<scenario>/<algorithm>-s<seed>-<digest>.
        fallback: whether the scenario's fallback may be used when its data is missing.
        force: start afresh although the directory holds this run, complete or torn. The run that is there is moved to
            <out>.earlier-<number>, and replaces runs of the same scenario that were moved there before.
        resume_torn: continue this very run if the directory holds it, torn, with a checkpoint; otherwise that is an
            error, unless `force` moves it aside.
        further: how it is carried out, see options.py.
    Returns:
        The run directory, and the summary, as in summary.json; of a run that the directory holds already, that of the
        earlier run.
    Raises:
        ScenarioError: the scenario does not fit its data, or `out` holds something that is no run, or this run torn, or
            made on other inputs; nothing was run.
        DataMissing, DataDamaged: data that is not there (and no fallback), or not what it should be; nothing was run.
        RecordsFailed: if the directory cannot be written to any more.
        DdlsimError: the run cannot go on (nodes that wait for ever, models that do not fit each other, ...); what was
            computed is written.
    """
    options = Options(**further)
    console = Progress(scenario.name, scenario.rounds, mode=options.progress)

    def begin(options: Options) -> tuple[Path, dict]:
        return _begin(scenario, out, fallback, force, resume_torn, options, console)

    def continued(path: Path, options: Options) -> tuple[Path, dict]:
        return path, go_on(path, options, anyway=True)  # the same process, so the same code

    try:
        return until_done(begin, continued, options, console.message)
    finally:
        console.close()


def _begin(
    scenario: "Scenario",
    out: Path | None,
    fallback: bool,
    force: bool,
    resume_torn: bool,
    options: Options,
    console: Progress,
) -> tuple[Path, dict]:
    """A run from its start, see `run_in_directory`."""
    started = time.perf_counter()
    with interruptible() as interrupts:
        device = computes_on(scenario, options)
        data_started = time.perf_counter()
        loaded = load_data(scenario, options.data_dir, fallback, options.download)
        scenario = loaded.scenario
        console.expect(scenario.rounds)
        path = out or directories.default_path(scenario)
        scenario = scenario if force else with_earlier_steps(scenario, path)
        finished = directories.complete_summary(path)
        if finished and not force and directories.same_scenario(path, scenario):
            refuse_other_inputs(path, scenario, prepare(loaded))
            console.message(f"{path} holds this run already; --force (force=True in Python) runs it again.")
            return path, finished
        torn = not force and _is_torn(path, scenario)
        if torn and resume_torn:
            console.close()
            return path, go_on(path, options)
        if loaded.missing:
            console.message(f"{loaded.missing}\nFALLBACK: running on {scenario.data_name} instead.")
        for note in idle_notes(scenario):
            console.message(note)
        prepared, missing = prepare(loaded), loaded.missing
        for note in prepared.about.get("notes", ()):
            console.message(f"NOTE: {note}.")
        del loaded  # nodes and clusters hold what they need of it
        scenario.model.check(prepared.image_shape)
        scenario = with_measured_steps(scenario, prepared)
        data_s = time.perf_counter() - data_started
        # A model that does not fit leaves no directory behind.
        learner = make_learner(scenario, prepared, device, options, console.message)
        try:
            with directories.run_directory(path, console.message, _refuse_torn if torn else _move) as place:
                if force:
                    directories.remove_earlier(place.path, scenario)
                manifest = start_manifest(scenario, prepared, device, missing, options.command)
                manifest["executor"] = about_executor(learner)
                parts = scenario, prepared, learner, console, interrupts, manifest, started, data_s
                summary = run_in(RunContext(place, *parts, options, device))
                return path if path.absolute() == place.path else place.path, summary
        finally:
            learner.close()


def _is_torn(path: Path, scenario: "Scenario") -> bool:
    """Whether the directory holds this very run, not through, and can go on from a checkpoint."""
    return bool(checkpoints_of(path)) and directories.same_scenario(path, scenario)


def _refuse_torn(path: Path) -> None:
    raise ScenarioError(
        f"{path} holds this run, which did not come to its end. `ddlsim resume {path}` continues it from its last "
        "checkpoint; --force starts it again and keeps what is there beside it."
    )


def _move(path: Path) -> None:
    """Nothing stands against moving it aside."""
