"""Runs from Python: ddlsim.run, ddlsim.check, ddlsim.resume, ddlsim.load.

Arguments that are objects, classes, modules or arrays become parts of a scenario.
"""

from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from ddlsim import runs
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.report.reading import read_yaml
from ddlsim.runs.api.arguments import KEYS, changes_of, flat, refuse_other_values, register, scenario_of, sections_of
from ddlsim.runs.api.run import Run
from ddlsim.runs.branch import plan_branch
from ddlsim.runs.options import listed, path_of, shows_options, warn
from ddlsim.scenario import Scenario, from_python, parts
from ddlsim.scenario.load import as_overrides
from ddlsim.tasks import TASKS
from ddlsim.tasks.measured import with_metrics

NAMED = (*KEYS, "seed", "compute_device")
"""Keys whose argument None means unchanged; None for another one is null."""


class Interrupted(KeyboardInterrupt):
    """A run was ended by Ctrl-C, a notebook's stop button or SIGTERM; `run` has its records so far."""

    def __init__(self, run: Run):
        super().__init__(f"the run was interrupted; its records so far are in {run.dir}")
        self.run = run


@shows_options(Scenario)
def run(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    *,
    set: Mapping[str, Any] | None = None,
    seed: int | None = None,
    algorithm: Any = None,
    model: Any = None,
    data: Any = None,
    topology: Any = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    out: str | Path | None = None,
    fallback: bool = True,
    force: bool = False,
    resume: bool = False,
    **options: Any,
) -> Run:
    """Run a scenario to its end, as `ddlsim run` does, and leave a run directory.

    If the directory already holds this finished run, `run` loads it and returns at once, without calling callbacks.

    Args:
        scenario: a file, the name of one (`ddlsim list scenarios`), a mapping with the keys of a file, or a Scenario.
        set: dotted key -> value, as with --set: {"training.learning_rate": 0.1, "rounds": 20}. A mapping replaces the
            whole section, {"training": {...}}; a key has precedence over its section.
        seed: of all random streams, instead of the scenario's.
        algorithm: instead of the scenario's: a name, {"name": ..., key: value}, an object (`Facade(heads=2)`) or a
            class, also one defined in a notebook.
        model: likewise; or a torch.nn.Module, with whose values every node starts; or a class or function that makes
            modules, without arguments or with `image_shape` and `num_classes`.
        data: likewise; or (train, test), each a pair of arrays or tensors (x, y), a torch data set, a pandas.DataFrame
            or a datasets.Dataset; one such set, a part of which becomes the test set; or a mapping, {"train": ...,
            "test": ..., "label": "kind"}, with arguments of `ddlsim.data.Arrays` or keys of `table` or `hf`.
        topology: likewise; or a networkx.Graph or DiGraph (edges lead from sender to receiver) of nodes 0, 1, ..., or
            a list of graphs, one per round and from the first again.
        metrics: name -> function of predictions (a model's outputs, float32 [n, ...]) and targets (labels [n, ...]) of
            all test samples of a node, arrays of NumPy. Every evaluation records the number that it returns.
        out: the run directory; by default runs/<scenario>/<algorithm>-s<seed>-<digest> below the working directory, as
            with the command line.
        fallback: whether the scenario's fallback may replace it if its data is missing.
        force: run again although the directory holds this run; one earlier run of the scenario is kept as
            <out>.earlier-<number>.
        resume: continue the run if the directory holds it and it was stopped.
        callbacks: objects of classes that extend `ddlsim.Callback`.
        track: trackers that follow the run: tensorboard, wandb, mlflow or trackio, with or without a project
            ("wandb:mine"); see docs/trackers.md.
        progress: auto: a bar on a terminal and in a notebook, nothing elsewhere; log: a bar on a terminal, lines on
            standard error elsewhere; plain: lines; none, None or False: nothing; True: auto.
        data_dir: where to look for data first.
        download: whether missing data may be downloaded.
        device: auto, cpu or cuda, in place of the scenario's `compute_device`.
        checkpoint_every: time from one checkpoint to the next: 30s, 10m, 50r (rounds); 0: no checkpoints.
        checkpoint_keep: number of checkpoints to keep, also after the end of the run, such as "5" or "all"; None: two
            until then.
        profile: record where wall time is spent (`profile` in the summary).
        executor: local, this process; ray, workers on this machine; ray:HOST:PORT or ray:auto, workers of a cluster
            (docs/cluster.md); or an Executor with all of its options. Records are the same.
        workers: worker processes, with Ray; None: one per host.
        cpus_per_worker, gpus_per_worker, shards, object_store_gb: of Ray's workers, see `ddlsim run --help`.
        threads: threads of this process; None: the number of usable cores.
        command: for the manifest; None: the program's arguments.
        rounds, partition, churn, training, ...: any other key at the top level of a scenario, with None for null. A
            section or part may be a mapping of the keys to change, {"batch_size": 16}.
    Returns:
        The run; its status is `stopped` if a callback has ended it.
    Raises:
        ScenarioError: with all faults of the scenario; DataMissing, DataDamaged. Nothing was run.
        CallbackFailed: if a callback has raised. RecordsFailed: if records could not be written.
        Interrupted: a KeyboardInterrupt with the run, after its records are written.
    """

    given = sections_of(options)
    given |= {"algorithm": algorithm, "model": model, "data": data, "topology": topology, "seed": seed}
    if "device" in options:
        given["compute_device"] = options.pop("device")
    checked = resolve(scenario, set, metrics, **given)
    directory, summary = runs.run_in_directory(
        checked,
        out=None if out is None else path_of("out", out),
        fallback=fallback,
        force=force,
        resume_torn=resume,
        **options,
    )
    return _finished_run(directory, summary)


def check(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    set: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    **given: Any,
) -> None:
    """Check the arguments of `run`, as `ddlsim check` does: a few nodes try user-defined parts for two rounds.

    Args:
        scenario, set, metrics: see `run`.
        given: keys of the scenario, see `run`.
    Raises:
        ScenarioError: every problem at once, with its place.
    """
    from ddlsim.runs.check import plugin_problems

    found = plugin_problems(resolve(scenario, set, metrics, **given), warn)
    if found:
        raise ScenarioError("\n".join(found))


def resolve(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    set: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    **given: Any,
) -> Scenario:
    """Return the checked Scenario for arguments of `run`.

    Args:
        scenario, set, metrics: see `run`.
        given: keys of the scenario, see `run`.
    Raises:
        ScenarioError: every problem at once.
    """
    if set is not None and not isinstance(set, Mapping):
        raise ScenarioError(f"set: expected a mapping of dotted keys to values, got a {type(set).__name__}.")
    chosen = {key: value for key, value in given.items() if value is not None or key not in NAMED}
    whole = scenario_of(scenario) if isinstance(scenario, Mapping) else scenario
    changes = changes_of({**(set or {}), **dict(pair for each in chosen.items() for pair in flat(*each))})
    checked = from_python(whole, changes)
    if metrics:
        changes["task"] = with_metrics(checked.learned, metrics)
        checked = from_python(whole, changes)
    data = changes.get("data") or (whole.get("data") if isinstance(whole, Mapping) else None)
    augment = getattr(data, "augmentation", None)
    if augment in (None, checked.training.augmentation):
        return checked
    if checked.training.augmentation != "none":
        raise ScenarioError("training.augmentation: the data has an `augment` too. Leave one of them out.")
    return from_python(whole, {**changes, "training.augmentation": augment})


@shows_options()
def resume(
    directory: str | Path,
    *,
    algorithm: Any = None,
    model: Any = None,
    data: Any = None,
    topology: Any = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
    anyway: bool = False,
    from_round: int | None = None,
    set: Mapping[str, Any] | Sequence[str] | None = None,
    out: str | Path | None = None,
    **options: Any,
) -> Run:
    """Continue a run that was killed, interrupted, stopped or has failed, from its last checkpoint; or branch it.

    With any of `from_round`, `set` and `out` the run, finished or not, stays unchanged. The branch is another run, with
    the same rounds up to `from_round` and other values of keys after it, see docs/resume.md.

    Args:
        directory: of the run.
        algorithm, model, data, topology: the class or object that Python code passed to the run, if no file and no
            package names it.
        metrics: the functions of the run, if it has any.
        anyway: continue although code, libraries or device have changed.
        from_round: branch the run when all nodes have completed this round; None: the last one that it completed.
        set: dotted keys and their values from there on, such as {"network.links.uplink_mbps": 10}; or texts of the form
            "key=value", as with --set.
        out: directory of the branch; by default next to the run's.
        callbacks, track, progress, data_dir, download, device, checkpoint_every, checkpoint_keep, profile: see `run`.
        executor, workers, cpus_per_worker, gpus_per_worker, shards, object_store_gb, threads: see `run`; they may
            differ from the earlier ones.
        command: for the manifest of a branch; None: the program's arguments.
    Returns:
        The run; its records equal the records of an uninterrupted run.
    Raises:
        ScenarioError: if there is nothing to resume, or something has changed: nothing was changed.
        Interrupted: see `run`.
    """

    if from_round is not None and not isinstance(from_round, Integral):
        raise ScenarioError(f"from_round: expected a whole number, got {kind_of(from_round)}.")
    until = None if from_round is None else int(from_round)
    held = register({"algorithm": algorithm, "model": model, "data": data, "topology": topology})
    source = place = path_of("directory", directory)
    if metrics:
        held |= register({"task": _measured_task(source, metrics)})
    refuse_other_values(source, held)
    changes = _overrides(set)
    branches = until is not None or bool(changes) or out is not None
    if branches:
        place = path_of("out", out) if out is not None else plan_branch(place, until, changes).default_path
    summary = runs.resume(
        source, anyway=anyway, from_round=until, set=changes, out=place if branches else None, **options
    )
    del held  # which keeps arrays alive until here
    return _finished_run(place, summary)


def _measured_task(directory: Path, metrics: Mapping[str, Callable[..., Any]]) -> Any:
    """Return the task of a run whose metrics come from Python."""
    path = directory / "scenario.yaml"
    task = (read_yaml(path) if path.is_file() else {}).get("task") or {}
    if "of" not in task:
        raise ScenarioError(f"metrics: the run in {directory} has no metrics from Python. Leave the argument out.")
    plain = TASKS[task["of"]]
    keys = {field.name: task[field.name] for field in parts.keys_of(plain) if field.name in task}
    return with_metrics(plain(**keys), metrics)


def _overrides(set: Mapping[str, Any] | Sequence[str] | None) -> list[str]:
    """Return changes as "key=value" texts."""
    if isinstance(set, Mapping):
        return as_overrides(changes_of(set))
    return [] if set is None else listed("set", set, '["rounds=20"], or a mapping, {"rounds": 20}', str)


def load(directory: str | Path, *, trust: bool = False) -> Run:
    """Load the run in a directory, also an unfinished one. Nothing is computed, and no code of the run is imported.

    Args:
        directory: of the run.
        trust: whether `run.model` may import code that the scenario names and that is not part of ddlsim.

    Raises:
        ScenarioError: if it is not a run directory. RecordsDamaged: if its records cannot be read.
    """
    found = Run(path_of("directory", directory), trust)
    found.records  # noqa: B018  # raises errors now
    return found


def _finished_run(directory: Path, summary: dict[str, Any]) -> Run:
    found = Run(directory, trust=True)
    found.__dict__["summary"] = summary  # as the property would read it
    if summary["status"] == "interrupted":
        raise Interrupted(found)
    return found
