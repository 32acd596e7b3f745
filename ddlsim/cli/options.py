"""Options of several commands, each defined once."""

import inspect
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ddlsim.cli.exits import FAILED, INTERRUPTED, say
from ddlsim.cli.report import Live, live_server
from ddlsim.foundation.own_code import shown_path
from ddlsim.foundation.strict_json import table_text

if TYPE_CHECKING:
    from ddlsim.runs.api.run import Run


def complete_scenarios(incomplete: str) -> list[str]:
    """Complete a scenario: a name, a file or a folder."""
    return _files(incomplete, matrices=False)


def complete_matrices(incomplete: str) -> list[str]:
    """Complete a matrix: a name, a file or a folder."""
    return _files(incomplete, matrices=True)


def _files(incomplete: str, matrices: bool) -> list[str]:
    from ddlsim.scenario import by_name

    folder, _, begin = incomplete.rpartition("/")
    paths = sorted(Path(folder or ("/" if incomplete.startswith("/") else ".")).glob(f"{begin}*"))
    files = [f"{path}/" if path.is_dir() else str(path) for path in paths if path.is_dir() or path.suffix == ".yaml"]
    return [name for name in by_name(matrices) if name.startswith(incomplete)] + files


def complete_settings(incomplete: str) -> list[str]:
    """Complete the name after `algorithm=` and similar keys."""
    from ddlsim.scenario import parts

    key, _, value = incomplete.partition("=")
    part = key.removesuffix(".name").rpartition(".")[2]
    if part not in parts.TABLES:
        return []
    return [f"{key}={name}" for name in parts.table(part) if name.startswith(value)]


Overrides = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key; repeatable.", autocompletion=complete_settings),
]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Where to look for data first.")]

Fallback = Annotated[bool, typer.Option("--fallback/--no-fallback", help="Run the fallback if data is missing.")]
Download = Annotated[bool, typer.Option("--download/--no-download", help="Download missing data, where possible.")]
CheckpointEvery = Annotated[
    str, typer.Option(metavar="TIME", help="Time between checkpoints: 30s, 10m, 50r (rounds); 0: no checkpoints.")
]
CheckpointKeep = Annotated[
    str | None,
    typer.Option(metavar="N|all", help="Checkpoints to keep, also after the end; by default two until then."),
]
Track = Annotated[
    list[str], typer.Option(metavar="TOOL[:PROJECT]", help="Follow the run in tensorboard, wandb, mlflow or trackio.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]

Profile = Annotated[bool, typer.Option("--profile", help="Record where wall time is spent.")]


def _show_tracebacks(ctx: typer.Context, wanted: bool) -> bool:
    if wanted and ctx.parent is not None:
        ctx.parent.params["verbose"] = True
    return wanted


Verbose = Annotated[bool, typer.Option("-v", "--verbose", callback=_show_tracebacks, help="All rows, and tracebacks.")]

Jobs = Annotated[int, typer.Option(min=1, help="Number of simultaneous processes, each with its cores.")]


OnDevice = Annotated[Literal["auto", "cpu", "cuda"] | None, typer.Option(help="Instead of the scenario's device.")]
ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="local|ray[:ADDRESS]",
        help="This process, or workers of Ray (ADDRESS: HOST:PORT or auto).",
    ),
]
Workers = Annotated[int | None, typer.Option(help="Processes that compute, with Ray; by default one per host.")]
CpusPerWorker = Annotated[int | None, typer.Option(help="Threads of each worker; by default a fair share of its host.")]
GpusPerWorker = Annotated[
    int | None, typer.Option(help="1: a GPU for each worker; by default workers compute on cores.")
]
Shards = Annotated[
    str | None, typer.Option(metavar="contiguous|clusters|graph", help="Nodes per worker: by number, cluster or graph.")
]
ObjectStoreGb = Annotated[float | None, typer.Option(help="Memory for data between workers of a cluster started here.")]


RUN_OPTIONS: dict[str, tuple[Any, Any]] = {
    "data_dir": (DataDir, None),
    "download": (Download, True),
    "device": (OnDevice, None),
    "checkpoint_every": (CheckpointEvery, "10m"),
    "checkpoint_keep": (CheckpointKeep, None),
    "track": (Track, []),
    "profile": (Profile, False),
    "executor": (ExecutorName, "local"),
    "workers": (Workers, None),
    "cpus_per_worker": (CpusPerWorker, None),
    "gpus_per_worker": (GpusPerWorker, None),
    "shards": (Shards, None),
    "object_store_gb": (ObjectStoreGb, None),
}
"""Fields of ddlsim/runs/options.py: Options on the command line, with their defaults."""

CONSOLE_OPTIONS = {
    "as_json": (AsJson, False),
    "quiet": (Quiet, False),
    "live": (Live, None),
    "verbose": (Verbose, False),
}


def makes_run(command: "Callable[..., Run]") -> Callable[..., None]:
    """Turn a function that runs into a command with all options of a run, which prints the summary.

    Args:
        command: takes, as keyword arguments, its parameters and the options of `ddlsim.run`.
    """

    @wraps(command)
    def wrapped(**words: Any) -> None:
        as_json, quiet, live, verbose = (words.pop(name) for name in CONSOLE_OPTIONS)
        words["progress"] = "none" if quiet else "log"
        if live is not None:
            from ddlsim.runs.callbacks import LiveReport

            words["callbacks"] = [LiveReport(live_server(live))]
        try:
            run = command(**words, command=["ddlsim", *sys.argv[1:]])
        except KeyboardInterrupt as stop:
            if not hasattr(stop, "run"):
                raise
            run = stop.run
        summary = run.summary
        if as_json:
            typer.echo(table_text(summary))
        else:
            from ddlsim.report.summary_table import table

            typer.echo(table(summary, short=not (verbose or "profile" in summary)))
            if not (verbose or quiet):
                say(f"More: ddlsim report {shown_path(run.dir)}")
        if summary["status"] != "done":
            raise typer.Exit(INTERRUPTED if summary["status"] == "interrupted" else FAILED)

    kinds = inspect.signature(command).parameters.values()
    parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in kinds if each.kind is not each.VAR_KEYWORD]
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in (RUN_OPTIONS | CONSOLE_OPTIONS).items()
    ]
    wrapped.__signature__, wrapped.__annotations__ = inspect.Signature(parameters), {}  # type: ignore[attr-defined]
    return wrapped
