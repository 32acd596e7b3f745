"""A run's life: data, directory, start, rounds, end, summary."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ddlsim import metrics
from ddlsim.errors import DdlsimError, RecordsFailed
from ddlsim.runs import directory as directories
from ddlsim.runs.directory import RunDirectory
from ddlsim.runs.interrupts import Interrupts, interruptible
from ddlsim.runs.loading import choose_device, load_data, prepare
from ddlsim.runs.lock import LOCK
from ddlsim.runs.manifest import finish_manifest, start_manifest, write_manifest
from ddlsim.runs.models import MODELS, KeptModels, which_models, write_models
from ddlsim.runs.profile import wall_profile, wave_counts
from ddlsim.runs.progress import Mode, Progress

if TYPE_CHECKING:
    from ddlsim.engine.simulation import Simulation
    from ddlsim.evaluation.evaluator import Evaluated
    from ddlsim.runs.recorder import Recorder
    from ddlsim.scenario import Scenario


def run(
    scenario: "Scenario",
    *,
    out: Path | None = None,
    data_dir: Path | None = None,
    fallback: bool = True,
    download: bool = True,
    device: str | None = None,
    force: bool = False,
    profile: bool = False,
    progress: Mode = "none",
    command: list[str] | None = None,
) -> dict:
    """Runs a scenario and leaves a run directory.

    Ctrl-C, SIGTERM and SIGHUP end it with what has been computed written and summarized (status `interrupted`).

    Args:
        scenario: what to run.
        out: the run directory; by default runs/<scenario>/<algorithm>-s<seed>-<digest>.
        data_dir: where to look for data first.
        fallback: whether the scenario's fallback may be used when its data is missing.
        download: whether torchvision may download.
        device: auto, cpu or cuda; by default the scenario's `compute_device`.
        force: run again although the directory holds a complete run.
        profile: keep where wall time went (`profile` in the summary).
        progress: auto, plain or none.
        command: for the manifest.
    Returns:
        The summary, as in summary.json.
    Raises:
        ScenarioError, DataMissing: see there; nothing was run.
        RecordsFailed: if the directory cannot be written to any more.
    """
    from ddlsim.build import build_learner

    started = time.perf_counter()
    console = Progress(scenario.name, scenario.rounds, mode=progress)
    try:
        with interruptible() as interrupts:
            device = "none" if scenario.learning == "none" else choose_device(device or scenario.compute_device)
            data_started = time.perf_counter()
            loaded = load_data(scenario, data_dir, fallback, download)
            scenario = loaded.scenario
            console.expect(scenario.rounds)
            path = out or directories.default_path(scenario)
            finished = directories.complete_summary(path)
            if finished and not force and directories.same_scenario(path, scenario):
                console.message(f"{path} holds this run already; --force runs it again.")
                return finished
            if loaded.missing:
                console.message(f"{loaded.missing}\nFALLBACK: running on {scenario.data_name} instead.")
            prepared = prepare(loaded)
            scenario.model.check(prepared.image_shape)
            data_s = time.perf_counter() - data_started
            # A model that does not fit leaves no directory behind.
            learner = build_learner(scenario, prepared, device, console.message)
            try:
                with directories.run_directory(path, console.message) as place:
                    manifest = start_manifest(scenario, prepared, device, loaded.missing, command)
                    parts = scenario, prepared, learner, console, interrupts, manifest, started, data_s, profile
                    return _run_in(_Life(place, *parts))
            finally:
                learner.close()
    finally:
        console.close()


@dataclass
class _Life:
    """What a run has while it is under way; the parts below are made one after the other."""

    place: RunDirectory
    scenario: "Scenario"
    prepared: Any
    learner: Any
    console: Progress
    interrupts: Interrupts
    manifest: dict
    started: float
    data_s: float
    profile: bool
    recorder: "Recorder | None" = None
    models: KeptModels | None = None
    simulation: "Simulation | None" = None
    setup_s: float = 0.0

    @property
    def path(self) -> Path:
        return self.place.path


def _run_in(life: _Life) -> dict:
    """Runs with the directory locked; whatever happens, what was computed is kept and summarized."""
    status, failure = "failed", None
    try:
        try:
            _make(life).run()
            status = "done"
        except KeyboardInterrupt:
            status = "interrupted"
        except Exception as error:
            # An interrupt in the middle of compiled code may come out of it as another exception.
            failure, status = (None, "interrupted") if life.interrupts.came else (error, "failed")
        life.interrupts.hold()
    except KeyboardInterrupt:  # a second one on the way out of the first
        life.interrupts.hold()
        status = "interrupted" if status == "failed" else status
    if status == "interrupted":
        life.console.message(f"Interrupted. What has been computed is in {life.path}.")
    summary, unwritten = _close(life, status)
    failure = failure or unwritten
    if isinstance(failure, RecordsFailed):
        failure = RecordsFailed(f"{failure} {_what_is_kept(life)}")
    if failure is not None:
        failure.run_dir = life.path  # type: ignore[attr-defined]  # where the command line puts the traceback
        raise failure
    assert summary is not None
    return summary


def _make(life: _Life) -> "Simulation":
    """Writes the first files and makes all objects."""
    from ddlsim.build import build_simulation
    from ddlsim.runs.recorder import Recorder

    path, scenario = life.path, life.scenario
    try:
        write_manifest(path, life.manifest)
        directories.write_scenario(path, scenario)
        if scenario.records.detail == "full":
            directories.write_samples(path, life.prepared)
    except OSError as error:
        for name in directories.OF_A_RUN - {LOCK}:  # half a beginning is of no use to a reader
            with suppress(OSError):
                (path / name).unlink(missing_ok=True)
        raise RecordsFailed(f"{error.filename or path} cannot be written: {error.strerror or error}.") from error
    recorder = life.recorder = Recorder(path / "metrics.jsonl")

    def on_round(completed: int, time_s: float, bytes_sent: int) -> None:
        life.place.check()
        life.interrupts.check()
        life.console.round(completed, time_s, bytes_sent)

    which, life.manifest["models"] = which_models(scenario, life.learner)
    life.models = None if which == "none" else KeptModels(which)
    simulation = life.simulation = build_simulation(
        scenario,
        life.prepared,
        life.learner,
        recorder,
        on_round,
        _evaluation_teller(life, recorder),
        (lambda *_: None) if life.models is None else life.models.take,
    )
    if scenario.learning != "none":
        life.prepared.release()
    life.setup_s = time.perf_counter() - life.started - life.data_s
    return simulation


def _evaluation_teller(life: _Life, recorder: "Recorder") -> "Callable[[Evaluated], None]":
    """What is said on each evaluation, and once if training diverges."""
    node_cluster, warned = np.asarray(life.prepared.node_cluster), False

    def tell(outcome: "Evaluated") -> None:
        nonlocal warned
        completed = min(outcome.completed, life.scenario.rounds)  # the last exchange is no round of its own to a reader
        life.console.evaluation(
            completed,
            outcome.time_s,
            outcome.bytes_sent,
            float(metrics.over_nodes(outcome.values)),
            metrics.over_clusters(outcome.values, node_cluster).tolist(),
            outcome.metric,
        )
        diverged = recorder.diverged
        if diverged and not warned:
            warned = True
            life.console.message(
                f"WARNING: after round {completed} the loss of {_nodes(list(diverged))} is not a finite number: "
                "training has diverged. A smaller training.learning_rate may help. The run goes on."
            )

    return tell


def _nodes(nodes: list[int]) -> str:
    """At most ten nodes by their numbers."""
    if len(nodes) == 1:
        return f"node {nodes[0]}"
    shown = ", ".join(map(str, sorted(nodes)[:10]))
    return f"{len(nodes)} nodes ({shown}{', ...' if len(nodes) > 10 else ''})"


def _close(life: _Life, status: str) -> tuple[dict | None, Exception | None]:
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
    for write in _last_records(life):
        try:
            write()
        except RecordsFailed as error:
            errors.append(error)
    recording_s = time.perf_counter() - closing + (life.recorder.wall_s if life.recorder else 0.0)
    status = "failed" if errors and status == "done" else status
    sim_time_s = life.simulation.env.now if life.simulation else 0.0
    finish_manifest(life.manifest, status, life.started, sim_time_s)
    life.manifest["files"] = {file.name: file.stat().st_size for file in sorted(path.glob("*.jsonl"))}
    if life.profile and life.simulation:
        learner, manifest = life.learner, life.manifest
        manifest["profile"] = wall_profile(learner.jobs.wall_s, life.setup_s, life.data_s, recording_s, manifest)
        manifest["waves"] = wave_counts(learner.jobs.waves)
        manifest["detours"] = learner.detours
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


def _last_records(life: _Life) -> list[Callable[[], None]]:
    """What remains to be written of the records."""
    from ddlsim.runs.recorder import write_communication, write_contents, write_links

    writes: list[Callable[[], None]] = [life.recorder.close] if life.recorder else []
    if life.simulation is not None:
        path, simulation, detail = life.path, life.simulation, life.scenario.records.detail
        network = simulation.network
        writes += [
            lambda: write_communication(path / "communication.jsonl", network.traffic, detail),
            lambda: write_links(path / "links.jsonl", network.use(), detail),
            lambda: write_contents(path / "contents.jsonl", simulation.transport.contents),
        ]
    if life.models is not None and life.models.held:
        models = life.models
        writes.append(lambda: _write_models(life, models))
    return writes


def _write_models(life: _Life, models: KeptModels) -> None:
    try:
        write_models(life.path, models, life.learner)
    except OSError as error:
        raise RecordsFailed(f"{life.path / MODELS} cannot be written: {error.strerror or error}.") from error


def _what_is_kept(life: _Life) -> str:
    """The sentence on what a run that could not write its records has left."""
    if not life.place.is_there():
        return "Nothing of the run is left there."
    reached = life.simulation.evaluated if life.simulation else 0
    kept = f"evaluations up to round {reached} are" if reached else "nothing that can be used is"
    return f"The run has failed; {kept} in {life.path}. Make room, or name another path by --out, and run it again."
