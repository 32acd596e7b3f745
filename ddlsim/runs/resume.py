"""A run that was stopped goes on from its last checkpoint, and ends with the records of one that never stopped."""

import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.errors import RecordsDamaged, ScenarioError
from ddlsim.interrupts import interruptible
from ddlsim.learning.size_learner import SizeLearner
from ddlsim.runs import directory as directories
from ddlsim.runs.branch import branch, plan_branch
from ddlsim.runs.checkpoint import State, checkpoints_of, read_state
from ddlsim.runs.computing import about_executor, computes_on, make_learner
from ddlsim.runs.earlier import load_same_data, need_given_parts, read_manifest, refuse_edited, refuse_others
from ddlsim.runs.life import Life
from ddlsim.runs.manifest import made_with
from ddlsim.runs.options import Options
from ddlsim.runs.progress import Progress
from ddlsim.runs.recovery import until_done
from ddlsim.runs.repetition import Repetition
from ddlsim.runs.stages import read_stages
from ddlsim.runs.under_way import run_in

if TYPE_CHECKING:
    from ddlsim.scenario import Scenario


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
                repetition = Repetition(checkpoint, state, learner)
                manifest |= {
                    "status": "running",
                    "stopped": None,
                    "process": {"pid": os.getpid(), "host": socket.gethostname()},
                    "executor": about_executor(learner),
                }
                manifest["resumed_after_rounds"] = [*manifest.get("resumed_after_rounds", []), state.rounds]
                parts = scenario, prepared, learner, console, interrupts, manifest, started, data_s
                return run_in(Life(place, *parts, options, device, repetition, state.wall_s, stages))
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
