"""Options of a run that change no result, the same in Python, on the command line and in workers of a cluster."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from ddlsim.foundation.errors import ScenarioError, kind_of
from ddlsim.runs.callbacks import Callback, Callbacks, Tracked
from ddlsim.runs.checkpoint import Every, parse_every
from ddlsim.runs.cluster.cluster import Executor, executor_of
from ddlsim.runs.progress import Mode
from ddlsim.scenario.parts import TABLES

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run that change no result.

    Args:
        data_dir: where to look for data first.
        download: whether missing data may be downloaded.
        device: auto, cpu or cuda; None: the scenario's `compute_device`.
        profile: record where wall time is spent (`profile` in the summary).
        progress: see `Progress`; True means auto, False and None mean none.
        checkpoint_every: time from one checkpoint to the next: 30s, 10m, 50r (rounds), 0 for no checkpoints, or an
            `Every`; a run that learns nothing makes no checkpoints.
        checkpoint_keep: number of checkpoints to keep, also after the end of the run, or "all"; None: two until then.
        callbacks: objects of classes that extend `Callback`; not called for a run that is already complete.
        track: trackers that follow the run: tensorboard, wandb, mlflow or trackio, with or without a project
            ("wandb:mine").
        executor: local, ray, ray:HOST:PORT, ray:auto, or an `Executor` with all options of a cluster.
        workers, cpus_per_worker, gpus_per_worker, shards, object_store_gb: see `Executor`.
        threads: of a wave in this process; None: the number of usable cores.
        command: for the manifest; None: the arguments of the process.
    Raises:
        ScenarioError: if a value is invalid. DataMissing: if a tracker's package is not installed.
    """

    data_dir: str | PathLike[str] | None = None
    download: bool = True
    device: str | None = None
    profile: bool = False
    progress: Mode | bool | None = "auto"
    checkpoint_every: str | Every = "10m"
    checkpoint_keep: str | int | None = None
    callbacks: Iterable[Callback] = ()
    track: Sequence[str] = ()
    executor: str | Executor = "local"
    workers: int | None = None
    cpus_per_worker: int | None = None
    gpus_per_worker: int | None = None
    shards: str | None = None
    object_store_gb: float | None = None
    threads: int | None = None
    command: Sequence[str] | None = None

    def __post_init__(self) -> None:
        _ = self.data_path, self.mode, self.every, self.cluster, self.all_callbacks  # raises errors now, not later

    @cached_property
    def data_path(self) -> Path | None:
        """The folder to look for data in first."""
        return None if self.data_dir is None else path_of("data_dir", self.data_dir)

    @cached_property
    def mode(self) -> Mode:
        """Mode of the progress display."""
        mode = self.progress
        if mode is None or isinstance(mode, bool):
            return "auto" if mode else "none"
        if mode not in get_args(Mode):
            raise ScenarioError(f"progress: expected {', '.join(get_args(Mode))}, got {mode!r}.")
        return mode

    @cached_property
    def every(self) -> Every:
        """Frequency of checkpoints."""
        if isinstance(self.checkpoint_every, Every):
            return self.checkpoint_every
        keep = None if self.checkpoint_keep is None else str(self.checkpoint_keep)
        return parse_every(str(self.checkpoint_every), keep)

    @cached_property
    def cluster(self) -> Executor:
        """The executor."""
        chosen = {
            key: value
            for key in ("workers", "cpus_per_worker", "gpus_per_worker", "shards", "object_store_gb")
            if (value := getattr(self, key)) is not None
        }
        if not isinstance(self.executor, Executor):
            return executor_of(self.executor, **chosen)
        if chosen:
            raise ScenarioError(f"{next(iter(chosen))}: the Executor sets it. Leave the argument out.")
        return self.executor

    @cached_property
    def all_callbacks(self) -> Callbacks:
        """Callbacks, including the trackers."""
        found = listed("callbacks", self.callbacks, "[Mine()] with objects of classes that extend ddlsim.Callback")
        if self.track:
            named = [self.track] if isinstance(self.track, str) else self.track
            found.append(Tracked(listed("track", named, '["tensorboard"]', str), warn))
        return Callbacks(found)


def shows_options(scenario: type[BaseModel] | None = None) -> Callable[[Function], Function]:
    """Show the fields of `Options` in the signature of a function that takes them as `**options`.

    Args:
        scenario: the model of scenarios, whose keys the function takes as well; None: it takes none.
    """
    shown: dict[str, tuple[Any, Any]] = {each.name: (each.default, each.type) for each in fields(Options)}
    if scenario is not None:
        hints = {key: Any if key in TABLES else field.annotation for key, field in scenario.model_fields.items()}
        shown |= {key: (..., hint) for key, hint in hints.items()}

    def show(function: Function) -> Function:
        signature = inspect.signature(function)
        named = {key: each for key, each in signature.parameters.items() if each.kind is not each.VAR_KEYWORD}
        for key, (default, hint) in shown.items():
            added = inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            named.setdefault(key, added)
        function.__signature__ = signature.replace(parameters=[*named.values()])  # type: ignore[attr-defined]
        return function

    return show


def path_of(argument: str, value: Any) -> Path:
    """Return the path in an argument, with `~` expanded.

    Raises:
        ScenarioError: if it is not a path.
    """
    try:
        return Path(value).expanduser()
    except (TypeError, RuntimeError) as error:  # another type; an unknown home
        raise ScenarioError(f"{argument}: expected a path (str or os.PathLike), got {value!r}: {error}.") from error


def listed(where: str, values: Any, example: str, kind: Any = object) -> list[Any]:
    """Return the values of an argument that takes several.

    Args:
        where: the argument, for errors.
        values: a list or another iterable; neither a text nor a mapping.
        example: for errors.
        kind: the class or classes of the values.
    Raises:
        ScenarioError: if it is a single value, or one of the values has another type.
    """
    found, expected = None, f"{where}: expected a list, such as {example}"
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping) and not callable(values):
        with suppress(TypeError):  # an array without axes
            found = list(values)
    if found is None:
        raise ScenarioError(f"{expected}, got {kind_of(values)}. Put a single value into brackets.")
    for value in found:
        if not isinstance(value, kind):
            raise ScenarioError(f"{expected}, got {kind_of(value)} in it.")
    return found


def warn(text: str) -> None:
    """Print a line on standard error."""
    with suppress(OSError, ValueError):  # a closed pipe or stream
        print(text, file=sys.stderr)
