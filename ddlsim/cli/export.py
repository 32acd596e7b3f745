"""ddlsim export: a trained model out of a run."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(export)


def export(
    run: Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")],
    node: Annotated[int, typer.Option(min=0, help="The node that has the model.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The file, such as net.safetensors.")],
    all_parts: Annotated[
        bool, typer.Option("--all-parts", help="Also what the algorithm trained beside the model, if anything.")
    ] = False,
) -> None:
    """Write a node's model to a file that `module.load_state_dict(safetensors.torch.load_file(FILE))` takes."""
    from ddlsim.runs.models import export_model

    count = export_model(run, node, out, all_parts)
    typer.echo(f"{out}: {count} tensors of node {node}")
