"""ddlsim network: the simulated network alone."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ddlsim.cli.options import AsJson


def register(app: typer.Typer) -> None:
    """Adds the command group."""
    group = typer.Typer(no_args_is_help=True, help="The simulated network alone.")
    group.command()(replay)
    group.callback()(lambda: None)
    app.add_typer(group, name="network")


def replay(
    flows: Annotated[Path, typer.Argument(help="CSV with the columns start_s,src,dst,bytes.")],
    links: Annotated[Path, typer.Option(help="CSV with the columns node,uplink_mbps,downlink_mbps,latency_ms.")],
    physical: Annotated[
        Path | None,
        typer.Option(
            help="Graph of the network between the nodes, whose links flows share: an edge list "
            "(node node bandwidth_mbps latency_ms per line) or a .graphml file."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send given flows over given links and print when each one ends."""
    from ddlsim.network.replay import replay as replay_files

    rows = [flow.row() for flow in replay_files(str(flows), str(links), None if physical is None else str(physical))]
    if as_json:
        typer.echo(json.dumps({"schema_version": 1, "flows": rows}))
        return
    typer.echo("start_s,src,dst,bytes,finish_s")
    for row in rows:
        typer.echo(",".join("" if value is None else f"{value!r}" for value in row.values()))
