"""Runs from Python: ddlsim.run, ddlsim.check, ddlsim.resume, ddlsim.load."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ddlsim.foundation.errors import ScenarioError
from ddlsim.runs.api.given import changes_of, kind_of, listed, path_of, register, scenario_of, tell_other_values
from ddlsim.runs.api.run import Run

if TYPE_CHECKING:
    from ddlsim.runs.callbacks import Callback, Mode
    from ddlsim.runs.checkpoint import Every
    from ddlsim.runs.cluster.cluster import Executor
    from ddlsim.scenario import Scenario


Progress = Literal["auto", "log", "plain", "none"]
_MODES: "dict[str, Mode]" = {"auto": "bar", "log": "auto", "plain": "plain", "none": "none"}
"""What progress is called here -> in ddlsim/runs/callbacks.py."""


class Interrupted(KeyboardInterrupt):
    """A run was ended by Ctrl-C, a notebook's stop button or SIGTERM; what it had computed is in `run`."""

    def __init__(self, run: Run):
        super().__init__(f"the run was interrupted; what it has computed is in {run.dir}")
        self.run = run


def run(
    scenario: "str | Path | Mapping[str, Any] | Scenario",
    *,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    algorithm: Any = None,
    model: Any = None,
    data: Any = None,
    topology: Any = None,
    callbacks: "Sequence[Callback]" = (),
    track: Sequence[str] = (),
    out: str | Path | None = None,
    progress: Progress | bool | None = "auto",
    data_dir: str | Path | None = None,
    fallback: bool = True,
    download: bool = True,
    force: bool = False,
    resume: bool = False,
    checkpoint_every: str = "10m",
    checkpoint_keep: str | None = None,
    profile: bool = False,
    executor: "str | Executor" = "local",
    workers: int | None = None,
    gpus_per_worker: int | None = None,
    command: list[str] | None = None,
) -> Run:
    """Runs a scenario to its end, as `ddlsim run` does, and leaves a run directory.

    A directory that holds this very run already, through, is not run again: it comes back at once, and callbacks are
    not called.

    Args:
        scenario: a file, the name of one (`ddlsim list scenarios`), a mapping with the keys of a file, or a Scenario.
        set: dotted key -> value, as behind --set: {"training.learning_rate": 0.1, "rounds": 20}. A mapping takes the
            place of the whole section, {"training": {...}}, and a key goes before the whole that it stands in.
        seed: of all random streams, instead of the scenario's.
        algorithm: instead of the scenario's: a name, {"name": ..., key: value}, an object (`Facade(heads=2)`) or a
            class; it may be defined in a notebook.
        model: likewise; or a torch.nn.Module, with whose values every node begins; or a class or function that makes
            modules, and takes nothing or, by these names, `image_shape` and `num_classes`.
        data: likewise; or (train, test), each a pair of arrays or tensors (x, y) or a torch data set; or a mapping with
            the arguments of `ddlsim.data.Arrays`.
        topology: likewise.
        callbacks: objects of classes that extend `ddlsim.Callback`.
        track: tools that follow the run: tensorboard, wandb, mlflow or trackio, perhaps with a project ("wandb:mine");
            see docs/trackers.md.
        out: the run directory; by default runs/<scenario>/<algorithm>-s<seed>-<digest> below the working directory, as
            with the command line.
        progress: auto: a bar on a terminal and in a notebook (there with tqdm), nothing elsewhere; log: a bar on a
            terminal, lines on standard error elsewhere; plain: lines; none, None or False: nothing; True is auto.
        data_dir: where to look for data first.
        fallback: whether the scenario's fallback may be run if its data is missing.
        download: whether data that is missing may be downloaded.
        force: run again although the directory holds this run; one earlier run of the scenario is kept beside it, as
            <out>.earlier-<number>.
        resume: continue the run if the directory holds it and it was stopped.
        checkpoint_every: how often the run can be resumed from: 30s, 10m, 50r (rounds); 0: never.
        checkpoint_keep: how many checkpoints are kept, also when the run is done, such as "5" or "all"; None: two until
            then.
        profile: keep where wall time went (`profile` in the summary).
        executor: what computes: local, this process; ray, workers on this machine; ray:HOST:PORT or ray:auto, those of
            a cluster (docs/cluster.md); or an Executor with more options. Records are the same.
        workers: processes that compute, with Ray; None: one per host.
        gpus_per_worker: of each, with Ray.
        command: for the manifest; by default the program's own arguments.
    Returns:
        The run. One that a callback has ended has the status `stopped`.
    Raises:
        ScenarioError: for all that is wrong with the scenario at once; DataMissing, DataDamaged. Nothing was run.
        CallbackFailed: if a callback has raised. RecordsFailed: if records could not be written.
        Interrupted: a KeyboardInterrupt with the run, after what was computed is written.
    """
    from ddlsim import runs

    checked = resolve(scenario, set, seed=seed, algorithm=algorithm, model=model, data=data, topology=topology)
    directory, summary = runs.run_in_directory(
        checked,
        out=None if out is None else path_of("out", out),
        data_dir=None if data_dir is None else path_of("data_dir", data_dir),
        fallback=fallback,
        download=download,
        device=checked.compute_device,
        force=force,
        profile=profile,
        progress=_mode(progress),
        checkpoint_every=_every(checkpoint_every, checkpoint_keep),
        resume_torn=resume,
        command=command,
        callbacks=with_trackers(callbacks, track),
        executor=_executor(executor, workers, gpus_per_worker),
    )
    return _ended(directory, summary)


def check(
    scenario: "str | Path | Mapping[str, Any] | Scenario", set: Mapping[str, Any] | None = None, **given: Any
) -> None:
    """Check the arguments of `run`, as `ddlsim check` does: plug-ins are tried in two rounds of a few nodes.

    Args:
        scenario, set: see `run`.
        given: seed, algorithm, model, data or topology, see `run`.
    Raises:
        ScenarioError: every problem at once, with its place.
    """
    from ddlsim.runs.check import plugin_problems

    found = plugin_problems(resolve(scenario, set, **given), _tell)
    if found:
        raise ScenarioError("\n".join(found))


def resolve(
    scenario: "str | Path | Mapping[str, Any] | Scenario", set: Mapping[str, Any] | None = None, **given: Any
) -> "Scenario":
    """The checked Scenario of what `run` is given.

    Args:
        scenario, set: see `run`.
        given: keys of the scenario, as `run` has them; None: as the scenario says.
    Raises:
        ScenarioError: every problem at once.
    """
    from ddlsim.scenario import from_python

    if set is not None and not isinstance(set, Mapping):
        raise ScenarioError(f"set: expected a mapping of dotted keys to values, got a {type(set).__name__}.")
    chosen = {key: value for key, value in given.items() if value is not None}
    whole = scenario_of(scenario) if isinstance(scenario, Mapping) else scenario
    changes = changes_of({**(set or {}), **chosen})
    checked = from_python(whole, changes)
    data = changes.get("data") or (whole.get("data") if isinstance(whole, Mapping) else None)
    augment = getattr(data, "augmentation", None)
    if augment in (None, checked.training.augmentation):
        return checked
    if checked.training.augmentation != "none":
        raise ScenarioError("training.augmentation: the data has an `augment` of its own. Leave one of them out.")
    return from_python(whole, {**changes, "training.augmentation": augment})


def resume(
    directory: str | Path,
    *,
    algorithm: Any = None,
    model: Any = None,
    data: Any = None,
    topology: Any = None,
    callbacks: "Sequence[Callback]" = (),
    track: Sequence[str] = (),
    progress: Progress | bool | None = "auto",
    data_dir: str | Path | None = None,
    download: bool = True,
    device: str | None = None,
    anyway: bool = False,
    checkpoint_every: str = "10m",
    checkpoint_keep: str | None = None,
    profile: bool = False,
    executor: "str | Executor" = "local",
    workers: int | None = None,
    gpus_per_worker: int | None = None,
    from_round: int | None = None,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    out: str | Path | None = None,
    command: list[str] | None = None,
) -> Run:
    """Continues a run that was killed, interrupted, stopped or has failed, from its last checkpoint; or branches it.

    With any of `from_round`, `set` and `out` the run, finished or not, stays as it is, and another one begins with its
    rounds up to that one and goes on with other values of keys, see docs/resume.md.

    Args:
        directory: of the run.
        from_round: branch the run when all nodes have completed this round; None: the last one that it completed.
        set: dotted keys and their values from there on, such as {"network.links.uplink_mbps": 10}; or the same as texts
            of the form "key=value", as behind --set.
        out: directory of the branch; by default beside the run's.
        algorithm, model, data, topology: what Python code had given the run, if no file and no package names it: the
            class or object again, the same as then.
        callbacks, track, progress, data_dir, download, checkpoint_every, checkpoint_keep, profile: see `run`.
        executor, workers, gpus_per_worker: see `run`; they need not be those of the run so far.
        device: auto, cpu or cuda, instead of the scenario's `compute_device`.
        anyway: go on although code, libraries or device are others than before.
        command: for the manifest of a branch; by default the program's own arguments.
    Returns:
        The run; its records are those of one that was never stopped.
    Raises:
        ScenarioError: if there is nothing to resume, or something is not what it was: nothing was changed.
        Interrupted: as of `run`.
    """
    from ddlsim import runs
    from ddlsim.runs.branch import plan_branch

    if from_round is not None and not isinstance(from_round, Integral):
        raise ScenarioError(f"from_round: expected a whole number, got {kind_of(from_round)}.")
    until = None if from_round is None else int(from_round)
    named = {"algorithm": algorithm, "model": model, "data": data, "topology": topology}
    given = {key: value for key, value in named.items() if value is not None}
    held = register(given)
    source = path_of("directory", directory)
    tell_other_values(source, dict(zip(given, held, strict=True)))
    changes = _overrides(set)
    place = source
    branches = until is not None or bool(changes) or out is not None
    if branches:
        place = path_of("out", out) if out is not None else plan_branch(place, until, changes).default_path
    summary = runs.resume(
        source,
        data_dir=None if data_dir is None else path_of("data_dir", data_dir),
        download=download,
        device=device,
        anyway=anyway,
        profile=profile,
        progress=_mode(progress),
        checkpoint_every=_every(checkpoint_every, checkpoint_keep),
        from_round=until,
        set=changes,
        out=place if branches else None,
        command=command,
        callbacks=with_trackers(callbacks, track),
        executor=_executor(executor, workers, gpus_per_worker),
    )
    del held  # arrays that were given are there until here
    return _ended(place, summary)


def _overrides(set: Mapping[str, Any] | Sequence[str] | None) -> list[str]:
    """What `resume` takes as `set`, as "key=value" texts."""
    from ddlsim.scenario import as_overrides

    if isinstance(set, Mapping):
        return as_overrides(changes_of(set))
    return [] if set is None else listed("set", set, '["rounds=20"], or a mapping, {"rounds": 20}', str)


def load(directory: str | Path, *, trust: bool = False) -> Run:
    """Load the run in a directory, also an unfinished one. Nothing is computed, and no code of the run is imported.

    Args:
        directory: of the run.
        trust: whether `run.model` may import code that the scenario names and that is not part of ddlsim.

    Raises:
        ScenarioError: if it is no run directory. RecordsDamaged: if its records cannot be read.
    """
    found = Run(path_of("directory", directory), trust)
    found.records  # noqa: B018  # what cannot be read is told now
    return found


def with_trackers(callbacks: "Sequence[Callback]", track: Sequence[str]) -> "Sequence[Callback]":
    """Callbacks and those of trackers ("tensorboard", "wandb:my-project").

    Raises:
        ScenarioError: if they are no lists, or there is no tracker of a name. DataMissing: if its package is not
            installed.
    """
    given = listed("callbacks", callbacks, "[Mine()] with objects of classes that extend ddlsim.Callback")
    if not track:
        return given
    from ddlsim.runs.callbacks import Tracked

    names = [track] if isinstance(track, str) else listed("track", track, '["tensorboard"]', str)
    return [*given, Tracked(names, _tell)]


def _tell(text: str) -> None:
    """A line on standard error."""
    with suppress(OSError, ValueError):  # nothing reads it
        print(text, file=sys.stderr)


def _executor(executor: "str | Executor", workers: int | None, gpus_per_worker: int | None) -> "Executor":
    from ddlsim.runs.cluster.cluster import Executor, executor_of

    if isinstance(executor, Executor):
        if workers is not None or gpus_per_worker is not None:
            raise ScenarioError("executor: an Executor says how many workers there are; leave the arguments out.")
        return executor
    return executor_of(executor, workers=workers, gpus_per_worker=gpus_per_worker)


def _every(every: str, keep: str | None) -> "Every":
    """How often there is a checkpoint; numbers are taken as texts, 0 as never."""
    from ddlsim.runs.checkpoint import parse_every

    return parse_every(str(every), None if keep is None else str(keep))


def _mode(progress: str | bool | None) -> "Mode":
    if progress is None or isinstance(progress, bool):
        progress = "auto" if progress else "none"
    if not isinstance(progress, str) or progress not in _MODES:
        raise ScenarioError(f"progress: expected {', '.join(_MODES)}, got {progress!r}.")
    return _MODES[progress]


def _ended(directory: Path, summary: dict[str, Any]) -> Run:
    found = Run(directory, trust=True)
    found.__dict__["summary"] = summary  # it has been read already
    if summary["status"] == "interrupted":
        raise Interrupted(found)
    return found
