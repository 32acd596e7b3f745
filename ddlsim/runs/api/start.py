"""Runs from Python: ddlsim.run, ddlsim.check, ddlsim.resume, ddlsim.load.

Arguments that are objects, classes, modules or arrays become parts of a scenario.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from numbers import Integral
from pathlib import Path
from typing import Any

from ddlsim.data import Arrays
from ddlsim.data.hugging_face import arrays_of
from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.foundation.registry import Part
from ddlsim.report.reading import read_yaml
from ddlsim.runs.api.run import Run
from ddlsim.runs.branch import plan_branch
from ddlsim.runs.options import Options, listed, path_of, shows_options, warn
from ddlsim.scenario import Scenario, from_python, parts
from ddlsim.scenario.load import as_overrides
from ddlsim.scenario.synonyms import suggestion
from ddlsim.tasks import TASKS
from ddlsim.tasks.measured import with_metrics

KEYS = ("algorithm", "model", "data", "topology")
"""Parts with a separate argument."""
NAMED = (*KEYS, "seed", "compute_device")
"""Keys whose argument None means unchanged; None for another one is null."""


def part_of(key: str, value: Any) -> Any:
    """Return the value of a scenario key for an argument.

    Args:
        key: such as model.
        value: a name; a mapping with a name; a part or its class; for a model also a torch.nn.Module, or a class or
            function that makes modules; for data also a set or pair of sets, see `run`.
    Raises:
        ScenarioError: if the type is unsupported.
    """
    if isinstance(value, str | Part) or _is_part_class(value) or _is_mapping(value):
        return value
    if key == "topology":
        found = value if isinstance(value, list | tuple) else [value]
        if found and all(hasattr(graph, "is_multigraph") for graph in found):  # networkx takes time to import
            from ddlsim.topologies.files import edges_of

            return edges_of(value)
    if key == "model" and callable(value):
        from ddlsim.models.from_python import model_from_python

        return model_from_python(value)
    if key == "data" and isinstance(value, tuple) and len(value) == 2:
        return _arrays(dict(zip(("train", "test"), value, strict=True)))
    if key == "data" and hasattr(value, "__getitem__"):
        return _arrays(value if isinstance(value, Mapping) else {"train": value})
    also = {
        "model": ", a function that makes a torch.nn.Module",
        "data": ", ((x, y), (x_test, y_test))",
        "topology": ", a networkx graph or a list of them, one per round",
    }.get(key, "")
    raise ScenarioError(
        f"{key}: expected a name, a mapping with a name, a part or its class{also}, got {kind_of(value)}."
    )


def _arrays(arguments: Mapping[Any, Any]) -> Any:
    """Return the data set of arrays with these arguments, or of data frames and the like with keys of their readers."""
    splits = {key: arguments[key] for key in ("train", "test", "validation") if arguments.get(key) is not None}
    try:
        found = (
            arrays_of(splits, {k: v for k, v in arguments.items() if k not in splits}) if "train" in splits else None
        )
        if found is not None:
            return found
        inspect.signature(Arrays).bind(**arguments)
    except TypeError as error:
        raise ScenarioError(
            f"data: expected arguments of ddlsim.data.Arrays, or keys of table or hf: {error}."
        ) from error
    return Arrays(**arguments)


def changes_of(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes by dotted key, with parts in place of arguments."""
    return {key: part_of(key, value) if key in KEYS else value for key, value in changes.items()}


def sections_of(options: dict[str, Any]) -> dict[str, Any]:
    """Take the keys of a scenario out of the arguments of a call.

    Raises:
        TypeError: if an argument is neither a key nor an option of a run.
    """
    known = [*Scenario.model_fields, *(field.name for field in fields(Options))]
    for name in options.keys() - known:
        raise TypeError(f"unexpected keyword argument {name!r}.{suggestion(name, known)}")
    return {key: options.pop(key) for key in Scenario.model_fields if key in options}


def flat(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys and values of an argument: a mapping without a name changes only the keys that it has."""
    if not isinstance(value, Mapping) or not value or {"name", "train", "test"} & value.keys():
        yield key, value
        return
    for inner, child in value.items():
        yield from flat(f"{key}.{inner}", child)


def scenario_of(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario mapping with parts in place of arguments.

    As in a file, a mapping without a name has keys of the part of the extended scenario, unless it has arrays.
    """
    own = {
        key: value
        for key, value in mapping.items()
        if not (isinstance(value, Mapping) and not {"name", "train", "test"} & value.keys())
    }
    return {**mapping, **changes_of(own)}


def register(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Register classes under the names that the resumed run has for them.

    Args:
        arguments: key -> as for `part_of`; None: not passed.
    Returns:
        The parts, by key; arrays exist as long as their part.
    """
    found = {key: part_of(key, value) for key, value in arguments.items() if value is not None}
    for key, part in found.items():
        if not isinstance(part, str) and not _is_mapping(part):
            parts.table(key).register_class(part if isinstance(part, type) else type(part))
    return found


def refuse_other_values(directory: Path, arguments: Mapping[str, Any]) -> None:
    """Raise ScenarioError if a part has other values than in the run in a directory.

    Args:
        directory: of the run; without a scenario.yaml nothing is compared.
        arguments: key -> the part; classes and mappings with a name have no values.
    """
    path = directory / "scenario.yaml"
    resolved = read_yaml(path) if arguments and path.is_file() else {}
    for key, part in arguments.items():
        if isinstance(part, Part) and parts.to_plain(key, part) != resolved.get(key):
            raise ScenarioError(
                f"{key}: expected the {type(part).__name__} of the run in {directory}, got one with other values or "
                f'samples. Pass the same one or its class; a branch can change values: set={{"{key}.KEY": ...}}.'
            )


def _is_mapping(value: Any) -> bool:
    name = value.get("name") if isinstance(value, Mapping) else None
    return isinstance(name, str) or _is_part_class(name)


def _is_part_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Part)


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
    from ddlsim import runs

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
    from ddlsim import runs

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
