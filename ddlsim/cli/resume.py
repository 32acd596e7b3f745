"""ddlsim resume: a run that was stopped goes on."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ddlsim.cli.live import Live, LiveCommand, live_report
from ddlsim.cli.run import CheckpointEvery, CheckpointKeep, Device, Track, end


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(cls=LiveCommand)(resume)


def resume(
    ctx: typer.Context,
    run: Annotated[Path, typer.Argument(help="The directory of the run.", metavar="RUN")],
    from_round: Annotated[
        int | None, typer.Option(min=1, help="Branch the run where all nodes have completed this round.")
    ] = None,
    overrides: Annotated[
        list[str], typer.Option("--set", metavar="KEY=VALUE", help="What is other in the branch, e.g. churn=null.")
    ] = [],  # noqa: B006
    out: Annotated[Path | None, typer.Option(help="Directory of the branch; by default beside the run's.")] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Go on although code, libraries or device are others than before.")
    ] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where to look for data first.")] = None,
    download: Annotated[
        bool, typer.Option("--download/--no-download", help="Download data that is missing, where that is possible.")
    ] = True,
    device: Annotated[Device | None, typer.Option(help="Where to train, instead of the scenario's device.")] = None,
    checkpoint_every: CheckpointEvery = "10m",
    checkpoint_keep: CheckpointKeep = None,
    track: Track = [],  # noqa: B006
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Tell where wall time went.")] = False,
    live: Live = None,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show the traceback of an unexpected error.")
    ] = False,
) -> None:
    """Continue a run that was killed, interrupted or has failed, from its last checkpoint; or branch a run.

    Its records end as those of a run that was never stopped. With --from-round, --set or --out the run stays as it is,
    finished or not, and another run begins with its rounds up to that one and goes on with other values of keys: what
    if the network had been slower from round 400?
    """
    from ddlsim import runs
    from ddlsim.api.start import with_trackers
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
        checkpoint_every=parse_every(checkpoint_every, checkpoint_keep),
        from_round=from_round,
        set=overrides,
        out=out,
        command=["ddlsim", *sys.argv[1:]],
        callbacks=with_trackers(live_report(live), track),
    )
    end(summary, as_json)
