"""ddlsim export: a trained model of a run, or its records for another tool."""

from pathlib import Path
from typing import Annotated

import typer

from ddlsim.foundation.errors import ScenarioError


def export(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    node: Annotated[int | None, typer.Option(min=0, help="The node whose model is written to --out.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TOOL[:PROJECT]", help="tensorboard, wandb, mlflow or trackio; csv or parquet with --out."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The model's file, or a folder for records.")] = None,
    all_parts: Annotated[bool, typer.Option("--all-parts", help="Also parts that the algorithm added.")] = False,
) -> None:
    """Write a node's model to a file, or the records of a run to another tool.

    A model is a file that `module.load_state_dict(safetensors.torch.load_file(FILE))` takes. Its metadata say how
    inputs are prepared: layout, dtype, mean, std and classes.
    """
    if (node is None) == (to is None):
        raise ScenarioError("export: expected --node NUMBER -o FILE for a model, or --to TOOL for the records.")
    if to is not None:
        _records(run, to, out)
        return
    if out is None:
        raise ScenarioError("export: expected -o FILE for the model, such as net.safetensors.")
    assert node is not None
    from ddlsim.runs.models import export_model

    count, inputs = export_model(run, node, out, all_parts)
    typer.echo(f"{out}: {count} tensors of node {node}\n{out}: {inputs}")


def _records(run: Path, to: str, out: Path | None) -> None:
    from ddlsim.report.reading import read
    from ddlsim.report.trackers import export_run

    name, _, project = to.partition(":")
    for path in export_run(read(run), name, out, project or None):
        typer.echo(path)
    if not out and name not in ("csv", "parquet"):
        typer.echo(f"{run}: written to {name}")
