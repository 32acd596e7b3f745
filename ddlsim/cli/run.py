"""ddlsim run."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ddlsim.cli import completion
from ddlsim.cli.exits import FAILED, INTERRUPTED
from ddlsim.cli.live import Live, LiveCommand, live_report
from ddlsim.cli.options import (
    CheckpointEvery,
    CheckpointKeep,
    CpusPerWorker,
    DataDir,
    Download,
    ExecutorName,
    Fallback,
    GpusPerWorker,
    ObjectStoreGb,
    OnDevice,
    Overrides,
    Profile,
    Quiet,
    Shards,
    SummaryAsJson,
    Track,
    Verbose,
    Workers,
    chosen,
)
from ddlsim.foundation.strict_json import table_text


class Learning(StrEnum):
    """Whether nodes train."""

    real = "real"
    none = "none"


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(cls=LiveCommand)(run)


def run(
    ctx: typer.Context,
    scenario: Annotated[
        str,
        typer.Argument(
            help="A scenario file, or the name of one (`ddlsim list scenarios`).", autocompletion=completion.scenarios
        ),
    ],
    overrides: Overrides = [],  # noqa: B006
    seed: Annotated[int | None, typer.Option(min=0, help="Seed, instead of the scenario's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default below runs/.")] = None,
    data_dir: DataDir = None,
    fallback: Fallback = True,
    download: Download = True,
    device: OnDevice = None,
    learning: Annotated[
        Learning | None, typer.Option(help="none: the network alone, models are sizes and no data is needed.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Run again; one earlier run is kept as .earlier-N.")] = False,
    checkpoint_every: CheckpointEvery = "10m",
    checkpoint_keep: CheckpointKeep = None,
    resume_torn: Annotated[
        bool, typer.Option("--resume", help="Continue the run if the directory holds it and it was stopped.")
    ] = False,
    track: Track = [],  # noqa: B006
    as_json: SummaryAsJson = False,
    quiet: Quiet = False,
    profile: Profile = False,
    executor: ExecutorName = "local",
    workers: Workers = None,
    cpus_per_worker: CpusPerWorker = None,
    gpus_per_worker: GpusPerWorker = None,
    shards: Shards = None,
    object_store_gb: ObjectStoreGb = None,
    live: Live = None,
    verbose: Verbose = False,
) -> None:
    """Run a scenario and leave a run directory."""
    from ddlsim.scenario import load

    computed_by = chosen(
        executor,
        workers=workers,
        cpus_per_worker=cpus_per_worker,
        gpus_per_worker=gpus_per_worker,
        shards=shards,
        object_store_gb=object_store_gb,
    )
    if verbose:
        ctx.parent.params["verbose"] = True
    options = {"seed": seed, "compute_device": device and device.value, "learning": learning and learning.value}
    changes = [f"{key}={value}" for key, value in options.items() if value is not None]
    checked = load(scenario, [*overrides, *changes])

    from ddlsim.runs.api import start

    try:
        found = start.run(
            checked,
            out=out,
            data_dir=data_dir,
            fallback=fallback,
            download=download,
            force=force,
            profile=profile,
            progress="none" if quiet else "log",
            callbacks=live_report(live),
            checkpoint_every=checkpoint_every,
            checkpoint_keep=checkpoint_keep,
            resume=resume_torn,
            track=track,
            command=["ddlsim", *sys.argv[1:]],
            executor=computed_by,
        )
    except start.Interrupted as stop:
        found = stop.run
    except Exception as error:
        if out is not None and not hasattr(error, "run_dir"):
            error.run_dir = out  # type: ignore[attr-defined]  # the log's place, see exits.py
        raise
    end(found.summary, as_json)


def end(summary: dict, as_json: bool) -> None:
    """Prints a summary, and ends with the exit code that goes with it."""
    show(summary, as_json)
    if summary["status"] != "done":
        raise typer.Exit(INTERRUPTED if summary["status"] == "interrupted" else FAILED)


def show(summary: dict, as_json: bool) -> None:
    """Prints a summary."""
    if as_json:
        typer.echo(table_text(summary))
        return
    from ddlsim.report.summary_table import table

    typer.echo(table(summary))
