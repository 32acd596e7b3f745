"""The options of commands that can compute on a Ray cluster."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ddlsim.executors.options import Executor

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
    from ddlsim.executors.options import executor_of

    return executor_of(executor, **options)
