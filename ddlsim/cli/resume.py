"""ddlsim resume: a run that was stopped goes on."""

from pathlib import Path
from typing import Annotated

import typer

from ddlsim.cli.exits import FAILED, INTERRUPTED
from ddlsim.cli.run import CheckpointEvery, Device, show


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(resume)


def resume(
    ctx: typer.Context,
    run: Annotated[Path, typer.Argument(help="The directory of the run.", metavar="RUN")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Go on although code, libraries or device are others than before.")
    ] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where to look for data first.")] = None,
    download: Annotated[
        bool, typer.Option("--download/--no-download", help="Download data that is missing, where that is possible.")
    ] = True,
    device: Annotated[Device | None, typer.Option(help="Where to train, instead of the scenario's device.")] = None,
    checkpoint_every: CheckpointEvery = "10m",
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Tell where wall time went.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show the traceback of an unexpected error.")
    ] = False,
) -> None:
    """Continue a run that was killed, interrupted or has failed, from its last checkpoint.

    Its records end as those of a run that was never stopped.
    """
    from ddlsim import runs
    from ddlsim.runs.checkpoint import parse_every

    if verbose:
        ctx.parent.params["verbose"] = True
    summary = runs.resume(
        run,
        data_dir=data_dir,
        download=download,
        device=device and device.value,
        anyway=anyway,
        profile=profile,
        progress="none" if quiet else "auto",
        checkpoint_every=parse_every(checkpoint_every),
    )
    show(summary, as_json)
    if summary["status"] != "done":
        raise typer.Exit(INTERRUPTED if summary["status"] == "interrupted" else FAILED)
