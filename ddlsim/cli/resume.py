"""ddlsim resume: a run that was stopped goes on."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ddlsim.cli.live import Live, LiveCommand, live_report
from ddlsim.cli.options import (
    CheckpointEvery,
    CheckpointKeep,
    CpusPerWorker,
    DataDir,
    Download,
    ExecutorName,
    GpusPerWorker,
    ObjectStoreGb,
    OnDevice,
    Profile,
    Quiet,
    Shards,
    SummaryAsJson,
    Track,
    Verbose,
    Workers,
    chosen,
)
from ddlsim.cli.run import end


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
    data_dir: DataDir = None,
    download: Download = True,
    device: OnDevice = None,
    checkpoint_every: CheckpointEvery = "10m",
    checkpoint_keep: CheckpointKeep = None,
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
    """Continue a run that was killed, interrupted or has failed, from its last checkpoint; or branch a run.

    Its records end as those of a run that was never stopped. With --from-round, --set or --out the run stays as it is,
    finished or not, and another run begins with its rounds up to that one and goes on with other values of keys: what
    if the network had been slower from round 400?
    """
    from ddlsim.runs.api import start

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
    try:
        found = start.resume(
            run,
            data_dir=data_dir,
            download=download,
            device=device and device.value,
            anyway=anyway,
            profile=profile,
            progress="none" if quiet else "log",
            checkpoint_every=checkpoint_every,
            checkpoint_keep=checkpoint_keep,
            from_round=from_round,
            set=overrides,
            out=out,
            command=["ddlsim", *sys.argv[1:]],
            executor=computed_by,
            callbacks=live_report(live),
            track=track,
        )
    except start.Interrupted as stop:
        found = stop.run
    end(found.summary, as_json)
