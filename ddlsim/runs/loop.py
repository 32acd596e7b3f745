"""A run from its first files to its last: objects are made, rounds run, and every record is closed and summarized."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.assembly.change import change_at_once
from ddlsim.foundation.errors import DdlsimError, RecordsFailed, ReplayFailed, WorkerLost
from ddlsim.foundation.interrupts import Interrupts
from ddlsim.foundation.own_code import shown_path
from ddlsim.runs import directory as directories
from ddlsim.runs.branch_history import Stage, scenario_digests, write_stages
from ddlsim.runs.callbacks import CallbackFailed, Completed, Evaluation, Started, StopRun
from ddlsim.runs.checkpoint import Checkpoints
from ddlsim.runs.checkpoint_files import checkpoints_of, remove_checkpoints
from ddlsim.runs.directory import LOCK, RunDirectory, samples_of
from ddlsim.runs.manifest import finish_manifest, made_with, wall_profile, write_manifest
from ddlsim.runs.models import MODELS, KeptModels, which_models, write_models
from ddlsim.runs.options import Options
from ddlsim.runs.progress import Progress
from ddlsim.runs.repetition import ReplayToCheckpoint
from ddlsim.runs.self_check import PASSED, violations
from ddlsim.tasks import metrics
from ddlsim.tasks.base import loss_rows

if TYPE_CHECKING:
    from ddlsim.engine.evaluation.evaluator import Evaluated
    from ddlsim.engine.simulation import Simulation
    from ddlsim.runs.recorder import ContactsFile, Recorder
    from ddlsim.scenario import Scenario


@dataclass
class RunContext:
    """The objects of a run; `execute` makes those without a description.

    Args:
        place: its directory.
        scenario: of the run.
        prepared: its data.
        learner: trains and evaluates.
        console: its progress.
        interrupts: signals received.
        manifest: content of manifest.json.
        started: wall clock at its start.
        data_s: wall seconds spent on data.
        options: how it is carried out.
        device: see `computes_on`.
        repetition: of a resumed run, until it reaches its checkpoint; then None.
        earlier_s: wall seconds of a resumed run before.
        stages: of a branched run, the scenarios to follow before `scenario`.
    """

    place: RunDirectory
    scenario: "Scenario"
    prepared: Any
    learner: Any
    console: Progress
    interrupts: Interrupts
    manifest: dict
    started: float
    data_s: float
    options: Options
    device: str
    repetition: ReplayToCheckpoint | None = None
    earlier_s: float = 0.0
    stages: tuple[Stage, ...] = ()
    recorder: "Recorder | None" = None
    models: KeptModels | None = None
    simulation: "Simulation | None" = None
    checkpoints: Checkpoints | None = None
    contacts: "ContactsFile | None" = None
    setup_s: float = 0.0
    completed: int = 0
    warned: bool = False

    def __post_init__(self) -> None:
        self.samples = samples_of(self.prepared) if self.scenario.records.detail == "full" else ""
        self.callbacks = self.options.all_callbacks
        self.followed = (*(stage.scenario for stage in self.stages), self.scenario)
        self.node_cluster = np.asarray(self.prepared.node_cluster)

    @property
    def path(self) -> Path:
        """The run directory."""
        return self.place.path

    def write_contacts(self, completed: int | None = None) -> None:
        """Write the messages per pair in the completed rounds; None: in all other rounds as well."""
        counted = self.simulation and self.simulation.transport.contacts
        if counted:
            rows = counted.take(completed)
            if self.contacts is not None:
                self.contacts.add(rows, hold=self.repetition is not None)


def execute(context: RunContext) -> dict:
    """Run with the directory locked, and return the summary; records so far are kept and summarized in any case."""
    status, failure = "failed", None
    try:
        try:
            simulation = _make(context)
            _stop_if(context.callbacks.call("on_start", _started(context)))
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
            failure, status = (None, "interrupted") if context.interrupts.came else (error, "failed")
        context.interrupts.hold()
    except KeyboardInterrupt:  # a second one while the first is handled
        context.interrupts.hold()
        status = "interrupted" if status == "failed" else status
    if isinstance(failure, WorkerLost):
        failure.run_dir = context.path
    if context.repetition is not None:
        context.repetition.abandon(context.recorder)
        raise failure or KeyboardInterrupt
    if isinstance(failure, WorkerLost):  # until_done continues from the last checkpoint
        with suppress(RecordsFailed):
            if context.recorder is not None:
                context.recorder.close()
        raise failure
    if status == "interrupted":
        where = f"{shown_path(context.path)}.{_how_to_resume(context)}"
        context.console.message(f"Interrupted. What has been computed is in {where}")
    return _end(context, status, failure)


def _end(context: RunContext, status: str, failure: Exception | None) -> dict:
    """Close and summarize a run, and tell callbacks; raise its first failure."""
    try:
        summary, unwritten = _close(context, status)
    except WorkerLost as lost:  # before the summary was written
        lost.run_dir = context.path
        raise
    failure = failure or unwritten
    if status == "done" and failure is None and context.options.every.keep is None:
        remove_checkpoints(context.path)
    if isinstance(failure, RecordsFailed):
        failure = RecordsFailed(f"{failure} {_failure_note(context, summary)}")
    of_callback = None if summary is None else context.callbacks.end(summary)
    failure = failure or of_callback
    if isinstance(failure, CallbackFailed):
        cause, failure = (
            failure.__cause__,
            CallbackFailed(f"{failure} Its records are kept in {shown_path(context.path)}."),
        )
        failure.__cause__ = cause
    if failure is not None:
        failure.run_dir = context.path  # type: ignore[attr-defined]  # where the command line puts the traceback
        raise failure
    assert summary is not None
    return summary


def _close(context: RunContext, status: str) -> tuple[dict | None, Exception | None]:
    """Close each file separately, so that one failure leaves the others intact; return the summary and first error."""
    from ddlsim.report.summary import summarize

    path, manifest, simulation = context.path, context.manifest, context.simulation
    errors: list[DdlsimError] = []
    if not context.place.is_there():  # another directory may have its path now
        with suppress(RecordsFailed):
            if context.recorder is not None:
                context.recorder.close()
        return None, RecordsFailed(f"{path} has been removed or replaced during the run.")
    closing = time.perf_counter()
    traffic = cache(lambda: simulation.network.traffic if simulation else None)
    for write in _last_records(context, traffic):
        try:
            write()
        except RecordsFailed as error:
            errors.append(error)
    recording_s = time.perf_counter() - closing + (context.recorder.wall_s if context.recorder else 0.0)
    if status == "done" and simulation is not None:  # after the records, since it empties the network
        wrong = violations(simulation, traffic())
        manifest["checks"] = wrong or PASSED
        if wrong:
            errors.append(
                DdlsimError(f"{'; '.join(wrong)}. This is a fault of ddlsim: report it with the scenario and log.txt.")
            )
    status = "failed" if errors and status == "done" else status
    finish_manifest(manifest, status, context.started - context.earlier_s, simulation.env.now if simulation else 0.0)
    manifest["files"] = {file.name: file.stat().st_size for file in sorted(path.glob("*.jsonl"))}
    if simulation:
        manifest["step_times"] = simulation.ports.clock.about
        if context.options.profile:
            _add_profile(context, recording_s)
    if context.learner.backends is not None:
        with suppress(WorkerLost):
            manifest["executor"] |= context.learner.backends.about_end()
    summary = None
    try:
        write_manifest(path, manifest)
        summary = summarize(path)
        directories.write_json(path / "summary.json", summary)
    except OSError as error:
        errors.append(_unwritten(error, path))
    except DdlsimError as error:
        errors.append(error)
    return summary, errors[0] if errors else None


def _add_profile(context: RunContext, recording_s: float) -> None:
    learner, manifest = context.learner, context.manifest
    manifest["profile"] = wall_profile(learner.jobs.wall_s, context.setup_s, context.data_s, recording_s, manifest)
    manifest["waves"] = {kind: {"waves": len(jobs), "jobs": sum(jobs)} for kind, jobs in learner.jobs.waves.items()}
    manifest["paths"], manifest["detours"] = learner.paths, learner.detours
    manifest["device_seconds"] = {kind: round(seconds, 3) for kind, seconds in learner.device_s.items()}


def _last_records(context: RunContext, traffic: Callable[[], Any]) -> list[Callable[[], None]]:
    """Return the functions that write the last records."""
    from ddlsim.runs.recorder import write_communication, write_contents, write_energy, write_links

    writes: list[Callable[[], None]] = [context.recorder.close] if context.recorder else []
    if context.simulation is not None:
        path, simulation, detail = context.path, context.simulation, context.scenario.records.detail
        network = simulation.network
        writes += [
            context.write_contacts,
            lambda: write_communication(path / "communication.jsonl", traffic(), detail),
            lambda: write_links(path / "links.jsonl", network.use(traffic()), detail),
            lambda: write_contents(path / "contents.jsonl", simulation.transport.contents),
        ]
        meter = simulation.meter
        if meter is not None:
            writes.append(lambda: write_energy(path / "energy.jsonl", meter.rows(traffic()), detail))
    if context.models is not None and context.models.held:
        writes.append(partial(_write_models, context, context.models))
    return writes


def _write_models(context: RunContext, models: KeptModels) -> None:
    try:
        write_models(context.path, models, context.learner)
    except OSError as error:
        raise _unwritten(error, context.path / MODELS) from error


def _unwritten(error: OSError, path: Path) -> RecordsFailed:
    return RecordsFailed(f"{error.filename or path} cannot be written: {error.strerror or error}.")


def _failure_note(context: RunContext, summary: dict[str, Any] | None) -> str:
    """Describe the records of a run that could not write all of them.

    Args:
        context: of the run.
        summary: of its records; None if it has none.
    """
    if not context.place.is_there():
        return "Nothing of the run is left there."
    reached = 0 if summary is None else min(summary["evaluated_round"] or 0, context.scenario.rounds)
    kept = f"evaluations up to round {reached} are" if reached else "nothing that can be used is"
    cure = _how_to_resume(context).strip() or "Run it again; --out names another path."
    return f"The run has failed; {kept} in {shown_path(context.path)}. Make room first. {cure}"


def _how_to_resume(context: RunContext) -> str:
    return f" `ddlsim resume {shown_path(context.path)}` continues it." if checkpoints_of(context.path) else ""


def _stop_if(reason: str | None) -> None:
    if reason is not None:
        raise StopRun(reason)


def _make(context: RunContext) -> "Simulation":
    """Write the first files and make all objects."""
    from ddlsim.assembly import build_simulation
    from ddlsim.runs.recorder import ContactsFile, Recorder

    scenario = context.scenario
    losses = loss_rows(scenario.learned.judged_by, scenario.learned.records_loss)
    if scenario.records.detail == "full":
        context.contacts = ContactsFile(context.path / "contacts.jsonl")
    if context.repetition is None:
        write_first_files(context)
        recorder = context.recorder = Recorder(context.path / "metrics.jsonl", losses)
        _start_checkpoints(context, recorder)
    else:
        recorder = context.recorder = Recorder(context.repetition.records, losses)
    which, context.manifest["models"] = which_models(scenario, context.learner)
    context.models = None if which == "none" else KeptModels(which)
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
        write_manifest(path, manifest)
        directories.write_samples(path, context.samples)
    except OSError as error:
        for name in directories.FIRST_FILES - {LOCK} | {stage.file for stage in context.stages}:
            with suppress(OSError):
                (path / name).unlink(missing_ok=True)
        raise _unwritten(error, path) from error


def _start_checkpoints(context: RunContext, recorder: "Recorder") -> None:
    """Make checkpoints from now on, unless nothing is learned: repeating such a run costs as much as running it."""
    if context.options.every.never or context.scenario.learning == "none":
        return
    start = context.repetition.state if context.repetition else None
    context.checkpoints = Checkpoints(
        context.path,
        context.options.every,
        context.learner,
        recorder,
        context.scenario.rounds,
        made_with(context.followed, context.device),
        lambda: context.earlier_s + time.perf_counter() - context.started,
        context.console.message,
        start.rounds if start else 0,
        start.log_bytes if start else 0,
    )
    context.interrupts.wait_for_round()


def _round(context: RunContext, recorder: "Recorder", completed: int, time_s: float, bytes_sent: int) -> None:
    """Handle a round that all nodes have completed."""
    context.place.check()
    stop, is_new = None, completed > context.completed  # the last exchange is not a new round
    context.completed = completed
    asked_to_end = context.interrupts.came  # a signal during the checkpoint waits for the next one
    if context.repetition is not None:
        if context.repetition.round(time_s):
            context.repetition.end(recorder)
            directories.write_samples(context.path, context.samples)  # they may have been damaged meanwhile
            _start_checkpoints(context, recorder)
            context.repetition = None
            write_manifest(context.path, context.manifest)
    else:
        if is_new:
            event = Completed(completed, context.scenario.rounds, time_s, bytes_sent)
            stop = context.callbacks.call("on_round", event)
        if context.checkpoints is not None and context.simulation is not None:
            reached = context.simulation.completed_by_all, context.simulation.furthest
            context.checkpoints.round(time_s, *reached, now=asked_to_end or stop is not None)
    context.write_contacts(completed)
    if asked_to_end or context.checkpoints is None:
        context.interrupts.check()
    _next_stages(context, recorder)
    if context.repetition is None:
        context.console.round(completed, time_s, bytes_sent)
    _stop_if(stop)


def _next_stages(context: RunContext, recorder: "Recorder") -> None:
    """Change to the next scenario, if a branched run has completed a stage."""
    while context.stages and context.simulation and context.simulation.completed_by_all >= context.stages[0].until:
        ended, *left = context.stages
        context.stages = tuple(left)
        follows = left[0].scenario if left else context.scenario
        change_at_once(context.simulation, ended.scenario, follows, context.learner, recorder)


def _evaluation(context: RunContext, recorder: "Recorder", outcome: "Evaluated") -> None:
    """Handle an evaluation; print a warning at the first one that finds diverged models."""
    diverged = sorted(recorder.diverged)
    if context.repetition is not None:
        context.warned = bool(diverged)
        return
    completed = min(outcome.completed, context.scenario.rounds)  # readers do not count the last exchange as a round
    clusters = metrics.over_clusters(outcome.honest, context.node_cluster).tolist()
    mean = float(metrics.over_nodes(outcome.honest))
    context.console.evaluation(completed, outcome.time_s, outcome.bytes_sent, mean, clusters, outcome.metric)
    if diverged and not context.warned:
        context.warned = True
        context.console.message(
            f"WARNING: after round {completed} the loss of {_nodes(diverged)} is not a finite number: "
            "training has diverged. A smaller training.learning_rate may help. The run goes on."
        )
    context.completed = completed
    event = Evaluation(
        outcome.completed,
        outcome.time_s,
        outcome.bytes_sent,
        outcome.metric.name,
        outcome.values,
        context.node_cluster,
        outcome.attacked,
    )
    _stop_if(context.callbacks.call("on_evaluation", event))


def _started(context: RunContext) -> Started:
    """Describe the run for callbacks."""
    from ddlsim.scenario.model import to_plain

    after = context.repetition.state.rounds if context.repetition else 0
    return Started(context.path, to_plain(context.scenario), context.scenario.rounds, context.node_cluster, after)


def _nodes(nodes: list[int]) -> str:
    """List at most ten nodes by their numbers."""
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    return f"{len(nodes)} nodes ({', '.join(map(str, nodes[:10]))}{', ...' if len(nodes) > 10 else ''})"
