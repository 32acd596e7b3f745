"""The rounds of a run: its objects, and the callbacks, checkpoints and branches after each round."""

import time
from contextlib import suppress
from functools import partial

from ddlsim.assembly import build_simulation
from ddlsim.assembly.simulation import change_at_once
from ddlsim.engine.evaluator import Evaluated
from ddlsim.engine.simulation import Simulation
from ddlsim.foundation.errors import DdlsimError, ReplayFailed, WorkerLost, listing
from ddlsim.foundation.own_code import shown_path
from ddlsim.runs import directory as directories
from ddlsim.runs.branch_history import scenario_digests, write_stages
from ddlsim.runs.callbacks import Completed, Evaluation, Started, StopRun
from ddlsim.runs.checkpoint import Checkpoints
from ddlsim.runs.directory import LOCK
from ddlsim.runs.finalize import RunContext, finalize, how_to_resume
from ddlsim.runs.manifest import made_with
from ddlsim.runs.models import StoredModels, which_models
from ddlsim.runs.recorder import AppendedFile, Recorder, unwritten
from ddlsim.scenario.model import to_plain
from ddlsim.tasks.base import loss_rows


def execute(context: RunContext) -> dict:
    """Run with the directory locked, and return the summary; records so far are kept and summarized in any case."""
    status, failure = "failed", None
    try:
        try:
            simulation = _make(context)
            _stop_if(context.callbacks.call("on_start", _description(context)))
            simulation.run()
            if context.repetition is not None:
                raise ReplayFailed(f"it ended before round {context.repetition.state.rounds}.")
            if context.stages:
                raise DdlsimError(f"the run ended before round {context.stages[0].until}, at which it was to change.")
            status = "done"
        except KeyboardInterrupt:
            status = "interrupted"
        except StopRun as stop:
            status = "stopped"
            context.manifest["stopped"] = {"round": context.completed, "reason": str(stop)}
            context.console.message(f"Ended after round {context.completed} by a callback: {stop}")
        except Exception as error:
            # An interrupt in the middle of compiled code may be raised as another exception.
            failure, status = (None, "interrupted") if context.interrupts.signaled else (error, "failed")
        context.interrupts.hold()
    except KeyboardInterrupt:  # a second one while the first is handled
        context.interrupts.hold()
        status = "interrupted" if status == "failed" else status
    if isinstance(failure, WorkerLost):
        failure.run_dir = context.path
    if context.repetition is not None:
        context.close_records()
        context.repetition.abandon()
        raise failure or KeyboardInterrupt
    if isinstance(failure, WorkerLost):  # until_done continues from the last checkpoint
        context.close_records()
        raise failure
    if status == "interrupted":
        where = f"{shown_path(context.path)}.{how_to_resume(context)}"
        context.console.message(f"Interrupted. The records so far are in {where}")
    return finalize(context, status, failure)


def _stop_if(reason: str | None) -> None:
    if reason is not None:
        raise StopRun(reason)


def _make(context: RunContext) -> Simulation:
    """Write the first files and make all objects."""
    scenario = context.scenario
    losses = loss_rows(scenario.learned.judged_by, scenario.learned.records_loss)
    if scenario.records.detail == "full":
        context.contacts = AppendedFile(context.path / "contacts.jsonl")
    if scenario.learning != "none":
        context.training = AppendedFile(context.path / "training.jsonl")
    if context.repetition is None:
        write_first_files(context)
        recorder = context.recorder = Recorder(context.path / "metrics.jsonl", losses)
        _start_checkpoints(context, recorder)
    else:
        recorder = context.recorder = Recorder(context.repetition.records, losses)
    which, context.manifest["models"] = which_models(scenario, context.learner)
    context.models = None if which == "none" else StoredModels(which)
    simulation = context.simulation = build_simulation(
        context.followed[0],
        context.prepared,
        context.learner,
        recorder,
        partial(_round, context, recorder),
        partial(_evaluation, context, recorder),
        (lambda *_: None) if context.models is None else context.models.take,
    )
    if scenario.learning != "none":
        context.prepared.release()
    context.setup_s = time.perf_counter() - context.started - context.data_s
    return simulation


def write_first_files(context: RunContext) -> None:
    """Write the files that are known before the first round.

    Raises:
        RecordsFailed: if they cannot be written; all of them are removed then.
    """
    path, manifest = context.path, context.manifest
    try:
        manifest["resolved"] = directories.write_scenario(path, context.scenario)
        write_stages(path, context.stages)
        manifest["scenario_files"] = scenario_digests(path)
        directories.write_json(path / "manifest.json", manifest)
        directories.write_samples(path, context.samples)
    except OSError as error:
        for name in directories.FIRST_FILES - {LOCK} | {stage.file for stage in context.stages}:
            with suppress(OSError):
                (path / name).unlink(missing_ok=True)
        raise unwritten(error, path) from error


def _start_checkpoints(context: RunContext, recorder: Recorder) -> None:
    """Make checkpoints from now on, unless nothing is learned: repeating such a run costs as much as running it."""
    if context.options.every.never or context.scenario.learning == "none":
        return
    context.checkpoints = Checkpoints(
        context.path,
        context.options.every,
        context.learner,
        recorder,
        context.scenario.rounds,
        made_with(context.followed, context.device),
        lambda: context.earlier_s + time.perf_counter() - context.started,
        context.console.message,
        context.repetition,
    )
    context.interrupts.wait_for_round()


def _round(context: RunContext, recorder: Recorder, completed: int, time_s: float, bytes_sent: int) -> None:
    """Handle a round that all nodes have completed."""
    context.place.check()
    stop, is_new = None, completed > context.completed  # the last exchange is not a new round
    context.completed = completed
    asked_to_end = context.interrupts.signaled  # a signal during the checkpoint waits for the next one
    if context.repetition is not None:
        if context.repetition.round(time_s):
            _end_repetition(context, recorder)
    else:
        if is_new:
            event = Completed(completed, context.scenario.rounds, time_s, bytes_sent)
            stop = context.callbacks.call("on_round", event)
        if context.checkpoints is not None and context.simulation is not None:
            reached = context.simulation.completed_by_all, context.simulation.furthest
            context.checkpoints.round(time_s, *reached, now=asked_to_end or stop is not None)
    context.write_contacts(completed)
    context.write_training()
    if asked_to_end or context.checkpoints is None:
        context.interrupts.check()
    _next_stages(context, recorder)
    if context.repetition is None:
        context.console.round(completed, time_s, bytes_sent)
    _stop_if(stop)


def _end_repetition(context: RunContext, recorder: Recorder) -> None:
    """Continue the run from its checkpoint, which the repetition has reached."""
    assert context.repetition is not None
    context.repetition.end(recorder)
    directories.write_samples(context.path, context.samples)  # they may have been damaged meanwhile
    _start_checkpoints(context, recorder)
    context.repetition = None
    directories.write_json(context.path / "manifest.json", context.manifest)


def _next_stages(context: RunContext, recorder: Recorder) -> None:
    """Change to the next scenario, if a branched run has completed a stage."""
    while context.stages and context.simulation and context.simulation.completed_by_all >= context.stages[0].until:
        ended, *left = context.stages
        context.stages = tuple(left)
        follows = left[0].scenario if left else context.scenario
        change_at_once(context.simulation, ended.scenario, follows, context.learner, recorder)


def _evaluation(context: RunContext, recorder: Recorder, outcome: Evaluated) -> None:
    """Handle an evaluation; print a warning at the first one that finds diverged models."""
    diverged = sorted(recorder.diverged)
    asked_to_end = context.interrupts.signaled
    if context.repetition is not None:
        context.warned = bool(diverged)
        if context.repetition.evaluated():
            _end_repetition(context, recorder)
        return
    completed = min(outcome.round, context.scenario.rounds)  # readers do not count the last exchange as a round
    event = Evaluation(**vars(outcome), node_cluster=context.node_cluster)
    quality = event.mean, event.clusters.tolist(), event.judged_by
    context.console.evaluation(completed, event.time_s, event.bytes_sent, *quality)
    if diverged and not context.warned:
        context.warned = True
        nodes = f"node{'s' * (len(diverged) > 1)} {listing(diverged, 10)}"
        context.console.message(
            f"WARNING: after round {completed} the loss of {nodes} is not a finite number: "
            "training has diverged. A smaller training.learning_rate may help. The run continues."
        )
    context.completed = completed
    stop = context.callbacks.call("on_evaluation", event)
    if context.checkpoints is not None and context.simulation is not None:
        reached = context.simulation.completed_by_all, context.simulation.furthest
        context.checkpoints.evaluated(outcome.time_s, *reached, asked_to_end or stop is not None)
    if asked_to_end:
        context.interrupts.check()
    _stop_if(stop)


def _description(context: RunContext) -> Started:
    """Describe the run for callbacks."""
    after = context.repetition.state.rounds if context.repetition else 0
    return Started(context.path, to_plain(context.scenario), context.scenario.rounds, context.node_cluster, after)
