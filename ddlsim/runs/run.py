"""A run from data to summary: from the start, from its last checkpoint, or again from there if a worker is lost.

A resumed run ends with the records of an uninterrupted run.
"""

import ctypes
import gc
import os
import shutil
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ddlsim.foundation.errors import DdlsimError, RecordsDamaged, ScenarioError, WorkerLost
from ddlsim.foundation.interrupts import interruptible
from ddlsim.learning.size_learner import SizeLearner
from ddlsim.runs import directory as directories
from ddlsim.runs import manifest as manifests
from ddlsim.runs.branch import branch, plan_branch
from ddlsim.runs.branch_history import read_stages
from ddlsim.runs.calibrate import with_earlier_steps, with_measured_steps
from ddlsim.runs.checkpoint import ReplayToCheckpoint
from ddlsim.runs.checkpoint_files import State, checkpoints_of, whole_checkpoints
from ddlsim.runs.cluster.cluster import disconnecting
from ddlsim.runs.directory import LOCK
from ddlsim.runs.finalize import RunContext
from ddlsim.runs.loading import about_executor, computes_on, load_data, load_same_data, make_learner, prepare
from ddlsim.runs.loop import execute
from ddlsim.runs.options import Options
from ddlsim.runs.progress import Progress
from ddlsim.scenario import Scenario, load
from ddlsim.scenario.unused_keys import unused_key_notes

Outcome = TypeVar("Outcome")

MOST_LOSSES = 5
"""Losses of workers in a row, without a new checkpoint, that end the run."""
PAUSE_S = 2.0
"""Pause after a loss, in which the cluster notices a lost host."""


def until_done(
    start: Callable[[bool], Outcome],
    proceed: Callable[[Path, bool], Outcome],
    options: Options,
    warn: Callable[[str], None],
) -> Outcome:
    """Run to the end, again from the last checkpoint whenever a worker is lost.

    Args:
        start: runs from the start; its argument says whether fewer workers than wanted will do.
        proceed: continues the run in a directory; likewise.
        options: of the run.
        warn: prints a sentence on each loss.
    Raises:
        DdlsimError: if no worker is left, or workers are lost again and again.
    """
    attempt = partial(start, False)
    losses, newest, place = 0, None, None
    with disconnecting(options.cluster):
        while True:
            try:
                return attempt()
            except WorkerLost as lost:
                place = lost.run_dir or place
                if place is None:
                    raise
                found = next(iter(checkpoints_of(place)), None)
                losses, newest = losses + 1 if found == newest else 1, found
                if losses >= MOST_LOSSES:
                    again = f"Continue it with `ddlsim resume {place}`" if found else "Run it again"
                    raise DdlsimError(
                        f"{lost} The run ends after {losses} losses without a new checkpoint. Ray ends workers that "
                        f"need more memory than their host has. {again}, with more or larger hosts."
                    ) from lost
                where = f"returns to {found.name}" if found else "starts again"
                warn(f"WARNING: {lost} The run {where}, on the remaining workers.")
                if found is None:
                    _remove_files(place)
                attempt = partial(proceed, place, True) if found else partial(start, True)
                time.sleep(PAUSE_S)
            finally:
                _return_memory()


def _return_memory() -> None:
    """Return freed memory to the system; glibc keeps it for the process otherwise, more with every run."""
    gc.collect()  # simulation, nodes and processes refer to each other
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _remove_files(directory: Path) -> None:
    """Remove all files of a run except its lock."""
    for path in directory.iterdir() if directory.is_dir() else ():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink(missing_ok=True)


def resume(
    directory: Path,
    *,
    anyway: bool = False,
    from_round: int | None = None,
    set: Sequence[str] = (),
    out: Path | None = None,
    **options: Any,
) -> dict:
    """Continue the run in a directory; or, with any of `from_round`, `set` and `out`, branch it into another one.

    The events up to the checkpoint are simulated again without training: a log has the computed values.

    Args:
        directory: of a run that was killed, interrupted or has failed; for a branch, of any run.
        anyway: continue although code, libraries or device differ from the checkpoint's.
        from_round: branch the run when all nodes have completed this round; None: the last one that it completed.
        set: "dotted.key=value" texts with the changes of the branch.
        out: directory of the branch; None: next to the run's.
        options: see Options; the manifest keeps the command that started the run.
    Returns:
        The summary, as in summary.json.

    Raises:
        ScenarioError: if there is nothing to resume, or something differs; nothing was changed.
        RecordsDamaged: if all checkpoints are damaged.
        ReplayFailed: if the run does not repeat itself.
    """
    chosen = Options(**options)

    def proceed(path: Path, fewer: bool) -> dict:
        return continue_run(path, chosen, anyway, fewer)

    start = partial(proceed, directory)
    if from_round is not None or set or out is not None:
        start = partial(branch, plan_branch(directory, from_round, set), out, anyway, chosen)
    return until_done(start, proceed, chosen, lambda text: Progress("", 0, "none").message(text))


def continue_run(directory: Path, options: Options, anyway: bool = False, fewer: bool = False) -> dict:
    """Continue a run from its last checkpoint, see `resume`, to its end or until it loses a worker.

    Raises:
        WorkerLost: then.
    """
    started = time.perf_counter()
    finished = directories.complete_summary(directory)
    if finished:
        return finished
    manifest = manifests.read_manifest(directory)
    manifests.refuse_edited(directory, manifest)
    manifests.require_python_parts(directory, manifest)
    scenario, stages = load(directory / "scenario.yaml"), read_stages(directory)
    followed = (*(stage.scenario for stage in stages), scenario)
    with (
        Progress(scenario.name, scenario.rounds, options.mode) as console,
        interruptible() as interrupts,
        directories.reopened(directory) as place,
    ):
        checkpoint, state = _newest_whole(directory, console.message)
        device = computes_on(scenario, options)
        if not anyway:
            manifests.refuse_other_environment(directory, state.made_with, manifests.made_with(followed, device))
        prepared = load_same_data(scenario, manifest, options.data_path, options.download, stages)
        data_s = time.perf_counter() - started
        console.message(f"{directory}: repeating {state.rounds} rounds without training, then continuing.")
        with closing(make_learner(followed[0], prepared, device, options, console.message, fewer)) as learner:
            assert not isinstance(learner, SizeLearner), "only a run that learns has checkpoints"
            repetition = ReplayToCheckpoint(checkpoint, state, learner)
            manifest |= {
                "status": "running",
                "stopped": None,
                "process": {"pid": os.getpid(), "host": socket.gethostname()},
                "executor": about_executor(learner),
                "resumed_after_rounds": [*manifest.get("resumed_after_rounds", []), state.rounds],
            }
            parts = scenario, prepared, learner, console, interrupts, manifest, started, data_s
            return execute(RunContext(place, *parts, options, device, repetition, state.wall_s, stages))


def _newest_whole(directory: Path, warn: Callable[[str], None]) -> tuple[Path, State]:
    """Return the newest undamaged checkpoint."""
    if not checkpoints_of(directory):
        raise ScenarioError(f"{directory}: has no checkpoint to continue from. Run it again: `ddlsim run`.")
    damage: list[str] = []
    for found in whole_checkpoints(directory, damage.append):
        for text in damage:
            warn(text)
        return found
    raise RecordsDamaged(f"{directory}: all checkpoints are damaged. {damage[0]} Start the run again with --force.")


def run(scenario: Scenario, **arguments: Any) -> dict:
    """Run a scenario, see `run_in_directory`; return the summary."""
    return run_in_directory(scenario, **arguments)[1]


def run_in_directory(
    scenario: Scenario,
    *,
    out: Path | None = None,
    fallback: bool = True,
    force: bool = False,
    resume_torn: bool = False,
    **options: Any,
) -> tuple[Path, dict]:
    """Run a scenario and leave a run directory.

    Ctrl-C, SIGTERM and SIGHUP end the run after its round, with a checkpoint, complete records and a summary (status
    `interrupted`). After some seconds, or a second signal, the run does not wait for the round. A lost worker of a
    cluster costs the rounds since the last checkpoint.

    Args:
        scenario: of the run.
        out: the run directory; by default runs/<scenario>/<algorithm>-s<seed>-<digest>.
        fallback: whether the scenario's fallback may replace it if its data is missing.
        force: run again although the directory holds this run, complete or not. The earlier run is moved to
            <out>.earlier-<number>, and replaces runs of the same scenario that were moved there before.
        resume_torn: continue this run if the directory holds it incomplete, with a checkpoint; otherwise that is an
            error, unless `force` moves it aside.
        options: see Options.
    Returns:
        The run directory, and the summary, as in summary.json; if the directory holds this run already, its summary.
    Raises:
        ScenarioError: if the scenario does not fit its data, or `out` holds files that do not belong to a run, this run
            incomplete, or this run with other inputs; nothing was run.
        DataMissing, DataDamaged: if data is missing (and there is no fallback), or damaged; nothing was run.
        RecordsFailed: if the directory can no longer be written to.
        DdlsimError: if the run cannot continue (nodes that wait forever, models that do not fit each other, ...);
            records so far are kept.
    """
    chosen = Options(**options)
    with Progress(scenario.name, scenario.rounds, chosen.mode) as console:
        return until_done(
            partial(_start, scenario, out, fallback, force, resume_torn, chosen, console),
            lambda path, fewer: (path, continue_run(path, chosen, True, fewer)),  # the same process, so the same code
            chosen,
            console.message,
        )


def _start(
    scenario: Scenario,
    out: Path | None,
    fallback: bool,
    force: bool,
    resume_torn: bool,
    options: Options,
    console: Progress,
    fewer: bool,
) -> tuple[Path, dict]:
    """Run from the start, see `run_in_directory`."""
    started = time.perf_counter()
    with interruptible() as interrupts:
        device = computes_on(scenario, options)
        data_started = time.perf_counter()
        loaded = load_data(scenario, options.data_path, fallback, options.download)
        scenario, missing = loaded.scenario, loaded.missing
        console.expect(scenario.rounds)
        path = out or directories.default_path(scenario)
        scenario = scenario if force else with_earlier_steps(scenario, path)
        is_same = not force and directories.same_scenario(path, scenario)
        finished = directories.complete_summary(path)
        if finished and is_same:
            manifests.refuse_other_inputs(path, scenario, prepare(loaded))
            console.message(f"{path} holds this run already; --force (force=True in Python) runs it again.")
            return path, finished
        torn = is_same and bool(checkpoints_of(path))
        if torn and resume_torn:
            console.close()
            return path, continue_run(path, options)
        if missing:
            console.message(f"{missing}\nFALLBACK: running on {scenario.data_name} instead.")
        for note in unused_key_notes(scenario):
            console.message(note)
        prepared = prepare(loaded)
        for note in prepared.about.get("notes", ()):
            console.message(f"NOTE: {note}.")
        del loaded  # nodes and clusters hold what they need of it
        scenario.model.check(prepared.image_shape)
        scenario = with_measured_steps(scenario, prepared)
        data_s = time.perf_counter() - data_started
        # Before the directory is made: a model that does not fit leaves none behind.
        with (
            closing(make_learner(scenario, prepared, device, options, console.message, fewer)) as learner,
            directories.run_directory(path, console.message, _refuse_unfinished if torn else lambda _: None) as place,
        ):
            if force:
                directories.remove_earlier(place.path, scenario)
            manifest = manifests.start_manifest(scenario, prepared, device, missing, options.command)
            manifest["executor"] = about_executor(learner)
            parts = scenario, prepared, learner, console, interrupts, manifest, started, data_s
            summary = execute(RunContext(place, *parts, options, device))
            return path if path.absolute() == place.path else place.path, summary


def _refuse_unfinished(path: Path) -> None:
    raise ScenarioError(f"{path} holds this run, unfinished. `ddlsim resume {path}` continues it; --force restarts it.")
