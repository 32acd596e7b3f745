"""Options that several commands have, each defined once.

The options of commands that can compute on a Ray cluster.
"""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ddlsim.cli import completion

if TYPE_CHECKING:
    from ddlsim.runs.cluster.cluster import Executor


Overrides = Annotated[
    list[str],
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a key, e.g. algorithm.heads=3; may be repeated.",
        autocompletion=completion.settings,
    ),
]

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Where to look for data first.")]

Fallback = Annotated[
    bool, typer.Option("--fallback/--no-fallback", help="Run the scenario's fallback if its data is missing.")
]

Download = Annotated[
    bool, typer.Option("--download/--no-download", help="Download data that is missing, where that is possible.")
]

CheckpointEvery = Annotated[
    str, typer.Option(metavar="TIME", help="How often the run can be resumed from: 30s, 10m, 50r (rounds); 0: never.")
]

CheckpointKeep = Annotated[
    str | None,
    typer.Option(
        metavar="N|all",
        help="How many checkpoints are kept, also when the run is done, to branch it from; by default two until then.",
    ),
]

Track = Annotated[
    list[str],
    typer.Option(
        metavar="TOOL", help="Follow the run in tensorboard, wandb, mlflow or trackio, as TOOL or TOOL:PROJECT."
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

SummaryAsJson = Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object.")]

Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No progress.")]

Profile = Annotated[bool, typer.Option("--profile", help="Tell where wall time went.")]

Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show the traceback of an unexpected error.")]

Jobs = Annotated[int, typer.Option(min=1, help="Processes that run side by side, each with its cores.")]


class Device(StrEnum):
    """Where training is computed."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


OnDevice = Annotated[Device | None, typer.Option(help="Where to train, instead of the scenario's device.")]


ExecutorName = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="local|ray[:ADDRESS]",
        help="What computes: this process, or workers of Ray, here or of the cluster at ADDRESS (HOST:PORT or auto).",
    ),
]
Workers = Annotated[int | None, typer.Option(help="Processes that compute, with Ray; by default one per host.")]
CpusPerWorker = Annotated[int | None, typer.Option(help="Threads of each worker; by default a fair share of its host.")]
GpusPerWorker = Annotated[int | None, typer.Option(help="GPUs of each worker; by default workers compute on cores.")]
Shards = Annotated[
    str | None,
    typer.Option(
        metavar="contiguous|clusters|graph",
        help="How nodes are dealt to workers: by number, cluster by cluster, or neighbors together.",
    ),
]
ObjectStoreGb = Annotated[
    float | None, typer.Option(help="Memory for what travels between workers of a Ray that is started here.")
]


def chosen(executor: str, **options: Any) -> "Executor":
    """What the options mean; raises ScenarioError."""
    from ddlsim.runs.cluster.cluster import executor_of

    return executor_of(executor, **options)
