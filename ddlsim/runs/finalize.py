"""The end of a run: it checks its invariants, closes every file separately, and writes its manifest and summary."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ddlsim.engine.simulation import Simulation
from ddlsim.foundation.errors import DdlsimError, RecordsFailed, WorkerLost
from ddlsim.foundation.interrupts import Interrupts
from ddlsim.foundation.own_code import shown_path
from ddlsim.foundation.units import FLOAT32_BYTES
from ddlsim.network.link_use import Traffic
from ddlsim.network.messages.message import HEADER
from ddlsim.report.summary import summarize
from ddlsim.runs import directory as directories
from ddlsim.runs import recorder as recorders
from ddlsim.runs.branch_history import Stage
from ddlsim.runs.callbacks import CallbackFailed
from ddlsim.runs.checkpoint import Checkpoints, ReplayToCheckpoint
from ddlsim.runs.checkpoint_files import checkpoints_of, remove_checkpoints
from ddlsim.runs.directory import RunDirectory, samples_of
from ddlsim.runs.manifest import finish_manifest, wall_profile
from ddlsim.runs.models import MODELS, StoredModels, write_models
from ddlsim.runs.options import Options
from ddlsim.runs.progress import Progress
from ddlsim.scenario import Scenario


@dataclass
class RunContext:
    """The objects of a run; `execute` creates the ones without a description.

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
        options: see Options.
        device: see `computes_on`.
        repetition: of a resumed run, until it reaches its checkpoint; then None.
        earlier_s: wall seconds of a resumed run before.
        stages: of a branched run, the scenarios to follow before `scenario`.
    """

    place: RunDirectory
    scenario: Scenario
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
    recorder: recorders.Recorder | None = None
    models: StoredModels | None = None
    simulation: Simulation | None = None
    checkpoints: Checkpoints | None = None
    contacts: recorders.AppendedFile | None = None
    training: recorders.AppendedFile | None = None
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

    def close_records(self) -> None:
        """Close metrics.jsonl of a run that goes no further here; rows that cannot be written are lost."""
        with suppress(RecordsFailed):
            if self.recorder is not None:
                self.recorder.close()

    def write_contacts(self, completed: int | None = None) -> None:
        """Write the messages per pair in the completed rounds; None: in all other rounds as well."""
        counted = self.simulation and self.simulation.transport.contacts
        if counted:
            rows = counted.take(completed)
            if self.contacts is not None:
                self.contacts.add(rows, hold=self.repetition is not None)

    def write_training(self) -> None:
        """Write the training losses and consensus distances that are known."""
        if self.recorder is not None and self.training is not None:
            rows, self.recorder.training_rows = self.recorder.training_rows, []
            self.training.add(rows, hold=self.repetition is not None)


PASSED = "all passed (bytes, clock, messages, parameters)"


def finalize(context: RunContext, status: str, failure: Exception | None) -> dict:
    """Close and summarize a run, and notify callbacks; raise its first failure."""
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
        cause = failure.__cause__
        failure = CallbackFailed(f"{failure} Its records are kept in {shown_path(context.path)}.")
        failure.__cause__ = cause
    if failure is not None:
        failure.run_dir = context.path  # type: ignore[attr-defined]  # where the command line puts the traceback
        raise failure
    assert summary is not None
    return summary


def _close(context: RunContext, status: str) -> tuple[dict | None, Exception | None]:
    """Close each file separately, so that one failure leaves the others intact; return the summary and first error."""
    path, manifest, simulation = context.path, context.manifest, context.simulation
    errors: list[DdlsimError] = []
    if not context.place.is_there():  # another directory may have its path now
        context.close_records()
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
        directories.write_json(path / "manifest.json", manifest)
        summary = summarize(path)
        directories.write_json(path / "summary.json", summary)
    except OSError as error:
        errors.append(recorders.unwritten(error, path))
    except DdlsimError as error:
        errors.append(error)
    return summary, errors[0] if errors else None


def _add_profile(context: RunContext, recording_s: float) -> None:
    learner, manifest = context.learner, context.manifest
    manifest["profile"] = wall_profile(learner.jobs.wall_s, context.setup_s, context.data_s, recording_s, manifest)
    manifest["waves"] = {kind: {"waves": len(jobs), "jobs": sum(jobs)} for kind, jobs in learner.jobs.waves.items()}
    manifest["paths"], manifest["fallback_counts"] = learner.paths, learner.fallback_counts
    manifest["device_seconds"] = {kind: round(seconds, 3) for kind, seconds in learner.device_s.items()}


def _last_records(context: RunContext, traffic: Callable[[], Any]) -> list[Callable[[], None]]:
    """Return the functions that write the last records."""
    writes: list[Callable[[], None]] = [context.recorder.close] if context.recorder else []
    if context.simulation is not None:
        path, simulation, detail = context.path, context.simulation, context.scenario.records.detail
        network = simulation.network
        writes += [
            context.write_contacts,
            context.write_training,
            lambda: recorders.write_records(path / "communication.jsonl", traffic(), detail),
            lambda: recorders.write_records(path / "links.jsonl", network.use(traffic()), detail),
            lambda: recorders.write_rows(path / "contents.jsonl", simulation.transport.contents.rows()),
            lambda: recorders.write_time_use(path, simulation.transport.times, detail),
        ]
        meter = simulation.meter
        if meter is not None:
            writes.append(lambda: recorders.write_energy(path / "energy.jsonl", meter.rows(traffic()), detail))
    if context.models is not None and context.models.by_node:
        writes.append(partial(_write_models, context, context.models))
    return writes


def _write_models(context: RunContext, models: StoredModels) -> None:
    try:
        write_models(context.path, models, context.learner)
    except OSError as error:
        raise recorders.unwritten(error, context.path / MODELS) from error


def _failure_note(context: RunContext, summary: dict[str, Any] | None) -> str:
    """Describe the records of a run that could not write all of them.

    Args:
        context: of the run.
        summary: of its records; None if it has none.
    """
    if not context.place.is_there():
        return "Nothing of the run is left there."
    reached = 0 if summary is None else min(summary["evaluated_round"] or 0, context.scenario.rounds)
    kept = f"evaluations up to round {reached} are" if reached else "no usable records are"
    cure = how_to_resume(context).strip() or "Run it again; --out names another path."
    return f"The run has failed; {kept} in {shown_path(context.path)}. Make room first. {cure}"


def how_to_resume(context: RunContext) -> str:
    return f" `ddlsim resume {shown_path(context.path)}` continues it." if checkpoints_of(context.path) else ""


def violations(simulation: Simulation, traffic: Traffic | None) -> list[str]:
    """Compare what the engine, the links and the payloads have counted independently of each other.

    Args:
        simulation: at its end.
        traffic: current traffic; None: this function counts it.
    """
    network, contents = simulation.network, list(simulation.transport.contents.rows())
    traffic = network.traffic if traffic is None else traffic
    use = network.use(traffic)
    on_wire, sent = int(traffic.on_the_wire.sum()), network.all_bytes_sent()
    carried = int((use.push_bytes + use.request_bytes + use.response_bytes + use.unused_bytes).sum())
    of_others = int((use.ack_bytes + use.aborted_bytes + use.lost_bytes + use.in_flight_bytes).sum())
    handed = sum(row["bytes"] for row in contents)
    messages = sum(row["messages"] for row in contents if row["content"] == HEADER)
    arrived = int(use.messages_received.sum())
    found = []
    if not sent == on_wire == carried + of_others:
        found.append(f"nodes sent {sent} bytes, pairs {on_wire}, and the causes sum to {carried + of_others}")
    if simulation.clock_errors:
        found.append(f"the clock went back {simulation.clock_errors} times")
    ended = arrived + network.num_failed
    if messages != ended and messages != (ended := ended + network.abort_all()):
        found.append(f"{messages} messages were sent, and {ended} arrived, failed or are on their way")
    if carried > handed or (messages == arrived and carried != handed):
        found.append(f"messages hold {handed} bytes of payloads and headers, and {carried} bytes of messages arrived")
    found += [
        f"a message with {count} parameters in {content} was counted as {num_bytes} bytes"
        for content, num_bytes, count in simulation.transport.contents.parameters()
        if num_bytes != count * FLOAT32_BYTES
    ]
    return found
