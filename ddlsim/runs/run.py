"""A run's life: data, directory, start, rounds, end, summary."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlsim.errors import ScenarioError
from ddlsim.interrupts import interruptible
from ddlsim.runs import directory as directories
from ddlsim.runs.calibrate import with_earlier_steps, with_measured_steps
from ddlsim.runs.checkpoint import checkpoints_of
from ddlsim.runs.computing import about_executor, computes_on, make_learner
from ddlsim.runs.earlier import refuse_other_inputs
from ddlsim.runs.life import Life
from ddlsim.runs.loading import load_data, prepare
from ddlsim.runs.manifest import start_manifest
from ddlsim.runs.options import Options
from ddlsim.runs.progress import Progress
from ddlsim.runs.recovery import until_done
from ddlsim.runs.resume import go_on
from ddlsim.runs.under_way import run_in
from ddlsim.scenario.idle_keys import idle_notes

if TYPE_CHECKING:
    from ddlsim.scenario import Scenario


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
        return path, go_on(path, options)

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
                summary = run_in(Life(place, *parts, options, device))
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
