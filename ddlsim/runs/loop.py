"""What a run has while it is under way: what it was given, and what is made for it on the way.

The end of a run: every file is closed on its own, the summary is made, and what is kept after a failure is told.

A run under way: its objects are made, it runs, and whatever happens, what was computed is kept and summarized.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim.assembly.change import change_at_once
from ddlsim.foundation.errors import DdlsimError, RecordsFailed, ReplayFailed, WorkerLost
from ddlsim.foundation.interrupts import Interrupts
from ddlsim.foundation.own_code import shown_path
from ddlsim.runs import directory as directories
from ddlsim.runs.branch_history import Stage, scenario_digests, write_stages
from ddlsim.runs.callbacks import CallbackFailed, Callbacks, Completed, Evaluation, Progress, Started, StopRun
from ddlsim.runs.checkpoint import Checkpoints, Every, checkpoints_of, remove_checkpoints
from ddlsim.runs.directory import LOCK, RunDirectory, samples_of
from ddlsim.runs.loading import Options
from ddlsim.runs.manifest import finish_manifest, made_with, wall_profile, wave_counts, write_manifest
from ddlsim.runs.models import MODELS, KeptModels, which_models, write_models
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
    """A run under way; the parts with a default are made one after the other.

    Args:
        place: its directory.
        scenario: what is run.
        prepared: its data.
        learner: what computes.
        console: what it says.
        interrupts: signals that have come.
        manifest: what manifest.json says.
        started: wall clock at its start.
        data_s: wall seconds spent on data.
        options: how it is carried out.
        device: what it computes on.
        repetition: of a resumed run, until it is where it was; None: rounds are run for the first time.
        earlier_s: wall seconds that a resumed run had taken before.
        stages: of a branched run, what it still has to follow before `scenario`, see stages.py.
        samples: the lines of samples.jsonl.
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

    def __post_init__(self) -> None:
        self.samples = samples_of(self.prepared) if self.scenario.records.detail == "full" else ""
        self.callbacks = Callbacks(self.options.callbacks)
        self.followed = (*(stage.scenario for stage in self.stages), self.scenario)

    @property
    def path(self) -> Path:
        return self.place.path

    @property
    def every(self) -> Every:
        """How often a checkpoint is made."""
        return self.options.checkpoint_every

    def write_contacts(self, completed: int | None = None) -> None:
        """Writes which messages were sent in the rounds that are completed; None: in all others as well."""
        counted = self.simulation and self.simulation.transport.contacts
        if not counted:
            return
        rows = counted.take(completed)
        if self.contacts is not None:
            self.contacts.add(rows, hold=self.repetition is not None)


def close(life: RunContext, status: str) -> tuple[dict | None, Exception | None]:
    """Ends every file, each on its own, so that one that cannot be written does not take the others along.

    Returns:
        The summary, if it could be made, and the first error.
    """
    from ddlsim.report.summary import summarize

    path = life.path
    errors: list[DdlsimError] = []
    if not life.place.is_there():  # whatever is there now is not ours to write into
        with suppress(RecordsFailed):
            if life.recorder is not None:
                life.recorder.close()
        return None, RecordsFailed(f"{path} has been removed or replaced while the run was writing into it.")
    closing = time.perf_counter()
    traffic = cache(lambda: life.simulation.network.traffic if life.simulation else None)
    for write in _last_records(life, traffic):
        try:
            write()
        except RecordsFailed as error:
            errors.append(error)
    recording_s = time.perf_counter() - closing + (life.recorder.wall_s if life.recorder else 0.0)
    if status == "done" and life.simulation is not None:  # after the records, since it empties the network
        wrong = violations(life.simulation, traffic())
        life.manifest["checks"] = wrong or PASSED
        if wrong:
            errors.append(
                DdlsimError(f"{'; '.join(wrong)}. This is a fault of ddlsim: report it with the scenario and log.txt.")
            )
    status = "failed" if errors and status == "done" else status
    sim_time_s = life.simulation.env.now if life.simulation else 0.0
    finish_manifest(life.manifest, status, life.started - life.earlier_s, sim_time_s)
    life.manifest["files"] = {file.name: file.stat().st_size for file in sorted(path.glob("*.jsonl"))}
    if life.simulation:
        life.manifest["step_times"] = life.simulation.ports.clock.about
    if life.options.profile and life.simulation:
        learner, manifest = life.learner, life.manifest
        manifest["profile"] = wall_profile(learner.jobs.wall_s, life.setup_s, life.data_s, recording_s, manifest)
        manifest["waves"] = wave_counts(learner.jobs.waves)
        manifest["paths"], manifest["detours"] = learner.paths, learner.detours
        manifest["device_seconds"] = {kind: round(seconds, 3) for kind, seconds in learner.device_s.items()}
    if life.learner.backends is not None:
        with suppress(WorkerLost):
            life.manifest["executor"] |= life.learner.backends.about_end()
    summary = None
    try:
        write_manifest(path, life.manifest)
        summary = summarize(path)
        directories.write_json(path / "summary.json", summary)
    except OSError as error:
        where = error.filename or path
        errors.append(RecordsFailed(f"{where} cannot be written: {error.strerror or error}."))
    except DdlsimError as error:
        errors.append(error)
    return summary, errors[0] if errors else None


def _last_records(life: RunContext, traffic: Callable[[], Any]) -> list[Callable[[], None]]:
    """What remains to be written of the records."""
    from ddlsim.runs.recorder import write_communication, write_contents, write_energy, write_links

    writes: list[Callable[[], None]] = [life.recorder.close] if life.recorder else []
    if life.simulation is not None:
        path, simulation, detail = life.path, life.simulation, life.scenario.records.detail
        network = simulation.network
        writes += [
            life.write_contacts,
            lambda: write_communication(path / "communication.jsonl", traffic(), detail),
            lambda: write_links(path / "links.jsonl", network.use(traffic()), detail),
            lambda: write_contents(path / "contents.jsonl", simulation.transport.contents),
        ]
        meter = simulation.meter
        if meter is not None:
            writes.append(lambda: write_energy(path / "energy.jsonl", meter.rows(traffic()), detail))
    if life.models is not None and life.models.held:
        models = life.models
        writes.append(lambda: _write_models(life, models))
    return writes


def _write_models(life: RunContext, models: KeptModels) -> None:
    try:
        write_models(life.path, models, life.learner)
    except OSError as error:
        raise RecordsFailed(f"{life.path / MODELS} cannot be written: {error.strerror or error}.") from error


def what_is_kept(life: RunContext, summary: dict[str, Any] | None) -> str:
    """The sentence on what a run that could not write its records has left.

    Args:
        life: of the run.
        summary: of what it has written; None: there is none.
    """
    if not life.place.is_there():
        return "Nothing of the run is left there."
    reached = 0 if summary is None else min(summary["evaluated_round"] or 0, life.scenario.rounds)
    kept = f"evaluations up to round {reached} are" if reached else "nothing that can be used is"
    instead = how_to_resume(life).strip() or "Run it again; --out names another path."
    return f"The run has failed; {kept} in {shown_path(life.path)}. Make room first. {instead}"


def how_to_resume(life: RunContext) -> str:
    """The sentence on it, if there is a checkpoint."""
    return f" `ddlsim resume {shown_path(life.path)}` continues it." if checkpoints_of(life.path) else ""


def run_in(life: RunContext) -> dict:
    """Runs with the directory locked; whatever happens, what was computed is kept and summarized."""
    status, failure = "failed", None
    try:
        try:
            simulation = _make(life)
            stop = life.callbacks.tell("on_start", _started(life))
            if stop is not None:
                raise StopRun(stop)
            simulation.run()
            if life.repetition is not None:
                raise ReplayFailed(f"it ended before round {life.repetition.state.rounds}.")
            if life.stages:
                raise DdlsimError(f"the run ended before round {life.stages[0].until}, at which it was to change.")
            status = "done"
        except KeyboardInterrupt:
            status = "interrupted"
        except StopRun as stop:
            status = "stopped"
            life.manifest["stopped"] = {"round": life.completed, "reason": str(stop)}
            life.console.message(f"Ended after round {life.completed} by a callback: {stop}")
        except Exception as error:
            # An interrupt in the middle of compiled code may come out of it as another exception.
            failure, status = (None, "interrupted") if life.interrupts.came else (error, "failed")
        life.interrupts.hold()
    except KeyboardInterrupt:  # a second one on the way out of the first
        life.interrupts.hold()
        status = "interrupted" if status == "failed" else status
    if isinstance(failure, WorkerLost):
        failure.run_dir = life.path
    if life.repetition is not None:
        life.repetition.abandon(life.recorder)
        raise failure or KeyboardInterrupt
    if isinstance(failure, WorkerLost):  # what is written since the last checkpoint is taken back, see recovery.py
        with suppress(RecordsFailed):
            if life.recorder is not None:
                life.recorder.close()
        raise failure
    if status == "interrupted":
        life.console.message(f"Interrupted. What has been computed is in {shown_path(life.path)}.{how_to_resume(life)}")
    try:
        summary, unwritten = close(life, status)
    except WorkerLost as lost:  # before the summary was written
        lost.run_dir = life.path
        raise
    failure = failure or unwritten
    if status == "done" and failure is None and life.every.keep is None:
        remove_checkpoints(life.path)
    if isinstance(failure, RecordsFailed):
        failure = RecordsFailed(f"{failure} {what_is_kept(life, summary)}")
    of_callback = None if summary is None else life.callbacks.end(summary)
    failure = failure or of_callback
    if isinstance(failure, CallbackFailed):
        kept = CallbackFailed(f"{failure} What the run had computed is kept in {shown_path(life.path)}.")
        kept.__cause__, failure = failure.__cause__, kept
    if failure is not None:
        failure.run_dir = life.path  # type: ignore[attr-defined]  # where the command line puts the traceback
        raise failure
    assert summary is not None
    return summary


def _make(life: RunContext) -> "Simulation":
    """Writes the first files and makes all objects."""
    from ddlsim.assembly import build_simulation
    from ddlsim.runs.recorder import ContactsFile, Recorder

    scenario = life.scenario
    losses = loss_rows(scenario.learned.judged_by, scenario.learned.records_loss)
    if scenario.records.detail == "full":
        life.contacts = ContactsFile(life.path / "contacts.jsonl")
    if life.repetition is None:
        write_first_files(life)
        recorder = life.recorder = Recorder(life.path / "metrics.jsonl", losses)
        _begin_checkpoints(life, recorder)
    else:
        recorder = life.recorder = Recorder(life.repetition.records, losses)
    which, life.manifest["models"] = which_models(scenario, life.learner)
    life.models = None if which == "none" else KeptModels(which)
    simulation = life.simulation = build_simulation(
        life.stages[0].scenario if life.stages else scenario,
        life.prepared,
        life.learner,
        recorder,
        lambda *ended: _round(life, recorder, *ended),
        _evaluation_teller(life, recorder),
        (lambda *_: None) if life.models is None else life.models.take,
    )
    if scenario.learning != "none":
        life.prepared.release()
    life.setup_s = time.perf_counter() - life.started - life.data_s
    return simulation


def write_first_files(life: RunContext) -> None:
    """Writes what is known before the first round.

    Raises:
        RecordsFailed: if it cannot be written; nothing is left then.
    """
    path, scenario = life.path, life.scenario
    try:
        life.manifest["resolved"] = directories.write_scenario(path, scenario)
        write_stages(path, life.stages)
        life.manifest["scenario_files"] = scenario_digests(path)
        write_manifest(path, life.manifest)
        directories.write_samples(path, life.samples)
    except OSError as error:
        first = directories.OF_A_RUN - {LOCK} | {stage.file for stage in life.stages}
        for name in first:  # half a beginning is of no use to a reader
            with suppress(OSError):
                (path / name).unlink(missing_ok=True)
        raise RecordsFailed(f"{error.filename or path} cannot be written: {error.strerror or error}.") from error


def _begin_checkpoints(life: RunContext, recorder: "Recorder") -> None:
    """From here on checkpoints are made, unless nothing is learned: then to repeat a run is to run it."""
    if life.every.never or life.scenario.learning == "none":
        return
    began = life.repetition.state if life.repetition else None
    life.checkpoints = Checkpoints(
        life.path,
        life.every,
        life.learner,
        recorder,
        life.scenario.rounds,
        made_with(life.followed, life.device),
        lambda: life.earlier_s + time.perf_counter() - life.started,
        life.console.message,
        began.rounds if began else 0,
        began.log_bytes if began else 0,
    )
    life.interrupts.wait_for_round()


def _round(life: RunContext, recorder: "Recorder", completed: int, time_s: float, bytes_sent: int) -> None:
    """All nodes have completed a round."""
    life.place.check()
    stop, is_new, life.completed = None, completed > life.completed, completed  # the last exchange is no new round
    asked_to_end = life.interrupts.came  # a signal that comes while the checkpoint is made waits for the next one
    if life.repetition is not None:
        if life.repetition.round(time_s):
            life.repetition.end(recorder)
            directories.write_samples(life.path, life.samples)  # as those records that were damaged meanwhile
            _begin_checkpoints(life, recorder)
            life.repetition = None
            write_manifest(life.path, life.manifest)
    else:
        if is_new:
            stop = life.callbacks.tell("on_round", Completed(completed, life.scenario.rounds, time_s, bytes_sent))
        if life.checkpoints is not None and life.simulation is not None:
            reached = life.simulation.completed_by_all, life.simulation.furthest
            life.checkpoints.round(time_s, *reached, now=asked_to_end or stop is not None)
    life.write_contacts(completed)
    if asked_to_end or life.checkpoints is None:
        life.interrupts.check()
    _next_stages(life, recorder)
    if life.repetition is None:
        life.console.round(completed, time_s, bytes_sent)
    if stop is not None:
        raise StopRun(stop)


def _next_stages(life: RunContext, recorder: "Recorder") -> None:
    """Goes over to the scenario that follows, if a branched run has come to the end of a stage."""
    while life.stages and life.simulation and life.simulation.completed_by_all >= life.stages[0].until:
        ended, *left = life.stages
        life.stages = tuple(left)
        follows = left[0].scenario if left else life.scenario
        change_at_once(life.simulation, ended.scenario, follows, life.learner, recorder)


def _evaluation_teller(life: RunContext, recorder: "Recorder") -> "Callable[[Evaluated], None]":
    """What is said on each evaluation, and once if training diverges."""
    node_cluster, warned = np.asarray(life.prepared.node_cluster), False

    def tell(outcome: "Evaluated") -> None:
        nonlocal warned
        completed = min(outcome.completed, life.scenario.rounds)  # the last exchange is no round of its own to a reader
        if life.repetition is not None:  # all this has been said
            warned = bool(recorder.diverged)
            return
        life.console.evaluation(
            completed,
            outcome.time_s,
            outcome.bytes_sent,
            float(metrics.over_nodes(outcome.honest)),
            metrics.over_clusters(outcome.honest, node_cluster).tolist(),
            outcome.metric,
        )
        diverged = recorder.diverged
        if diverged and not warned:
            warned = True
            life.console.message(
                f"WARNING: after round {completed} the loss of {_nodes(list(diverged))} is not a finite number: "
                "training has diverged. A smaller training.learning_rate may help. The run goes on."
            )
        life.completed = completed
        stop = life.callbacks.tell(
            "on_evaluation",
            Evaluation(
                outcome.completed,
                outcome.time_s,
                outcome.bytes_sent,
                outcome.metric.name,
                outcome.values,
                node_cluster,
                outcome.attacked,
            ),
        )
        if stop is not None:
            raise StopRun(stop)

    return tell


def _started(life: RunContext) -> Started:
    """What callbacks get to know first."""
    from ddlsim.scenario.model import to_plain

    behind = life.repetition.state.rounds if life.repetition else 0
    node_cluster = np.asarray(life.prepared.node_cluster)
    return Started(life.path, to_plain(life.scenario), life.scenario.rounds, node_cluster, behind)


def _nodes(nodes: list[int]) -> str:
    """At most ten nodes by their numbers."""
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    shown = ", ".join(map(str, sorted(nodes)[:10]))
    return f"{len(nodes)} nodes ({shown}{', ...' if len(nodes) > 10 else ''})"
