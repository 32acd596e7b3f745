"""ddlsim network: the simulated network alone."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ddlsim.cli.options import AsJson
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.strict_json import table_text

app = typer.Typer(no_args_is_help=True, help="Use the simulated network alone.")
app.callback()(lambda: None)  # with one command, the group would be that command


@app.command()
def replay(
    flows: Annotated[Path, typer.Argument(help="CSV with the columns start_s,src,dst,bytes.")],
    links: Annotated[Path, typer.Option(help="CSV with the columns node,uplink_mbps,downlink_mbps,latency_ms.")],
    physical: Annotated[
        Path | None, typer.Option(help="Shared links: .graphml, or lines of node node bandwidth_mbps latency_ms.")
    ] = None,
    as_json: AsJson = False,
    fidelity: Annotated[Literal["flow", "tcp"], typer.Option(help="tcp: with effects of TCP.")] = "flow",
    tcp: Annotated[list[str], typer.Option(metavar="KEY=VALUE", help="A key of network.tcp.")] = [],  # noqa: B006
) -> None:
    """Send flows over links and print the time at which each flow ends."""
    from ddlsim.network.replay import replay as replay_files
    from ddlsim.scenario import load
    from ddlsim.scenario.network_sections import Tcp

    settings = None
    if fidelity == "tcp":
        changes = ["network.fidelity=tcp", *(f"network.tcp.{text}" for text in tcp)]
        settings = load("smoke", changes).network.tcp or Tcp()
    elif tcp:
        raise ScenarioError("--tcp: needs --fidelity tcp. Add it.")
    found = replay_files(str(flows), str(links), None if physical is None else str(physical), settings)
    rows = [vars(flow) for flow in found]
    if as_json:
        typer.echo(table_text({"schema_version": 1, "flows": rows}))
        return
    typer.echo("start_s,src,dst,bytes,finish_s")
    for row in rows:
        typer.echo(",".join("" if value is None else f"{value!r}" for value in row.values()))
