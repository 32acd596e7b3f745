"""The end of a run: every file is closed on its own, the summary is made, and what is kept after a failure is told."""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from ddlsim.errors import DdlsimError, RecordsFailed, WorkerLost
from ddlsim.own_code import shown_path
from ddlsim.runs import directory as directories
from ddlsim.runs.checkpoint import checkpoints_of
from ddlsim.runs.life import Life
from ddlsim.runs.manifest import finish_manifest, write_manifest
from ddlsim.runs.models import MODELS, KeptModels, write_models
from ddlsim.runs.profile import wall_profile, wave_counts
from ddlsim.runs.self_check import PASSED, violations


def close(life: Life, status: str) -> tuple[dict | None, Exception | None]:
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


def _last_records(life: Life, traffic: Callable[[], Any]) -> list[Callable[[], None]]:
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


def _write_models(life: Life, models: KeptModels) -> None:
    try:
        write_models(life.path, models, life.learner)
    except OSError as error:
        raise RecordsFailed(f"{life.path / MODELS} cannot be written: {error.strerror or error}.") from error


def what_is_kept(life: Life, summary: dict[str, Any] | None) -> str:
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


def how_to_resume(life: Life) -> str:
    """The sentence on it, if there is a checkpoint."""
    return f" `ddlsim resume {shown_path(life.path)}` continues it." if checkpoints_of(life.path) else ""
