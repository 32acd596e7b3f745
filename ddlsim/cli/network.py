"""ddlsim network: the simulated network alone."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ddlsim.cli.options import AsJson
from ddlsim.foundation.errors import ScenarioError
from ddlsim.foundation.strict_json import table_text


class Fidelity(StrEnum):
    """What of TCP is simulated."""

    flow = "flow"
    tcp = "tcp"


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
    fidelity: Annotated[Fidelity, typer.Option(help="flow, or tcp: with what TCP adds.")] = Fidelity.flow,
    tcp: Annotated[
        list[str],
        typer.Option(help="A key of the scenario section network.tcp, e.g. shares=random.", metavar="KEY=VALUE"),
    ] = [],  # noqa: B006
) -> None:
    """Send given flows over given links and print when each one ends."""
    from ddlsim.network.replay import replay as replay_files

    settings = _tcp(tcp) if fidelity is Fidelity.tcp else None
    if tcp and settings is None:
        raise ScenarioError("--tcp: needs --fidelity tcp")
    found = replay_files(str(flows), str(links), None if physical is None else str(physical), settings)
    rows = [flow.row() for flow in found]
    if as_json:
        typer.echo(table_text({"schema_version": 1, "flows": rows}))
        return
    typer.echo("start_s,src,dst,bytes,finish_s")
    for row in rows:
        typer.echo(",".join("" if value is None else f"{value!r}" for value in row.values()))


def _tcp(settings: list[str]):
    """ddlsim.network.tcp.Tcp of KEY=VALUE texts."""
    import dataclasses

    from ddlsim.network.tcp import Tcp
    from ddlsim.scenario import from_mapping

    keys = {field.name: type(field.default) for field in dataclasses.fields(Tcp)}
    given = {}
    for text in settings:
        key, _, value = text.partition("=")
        if key not in keys:
            raise ScenarioError(f"--tcp: expected one of {', '.join(keys)}, got {key}")
        try:
            given[key] = keys[key](value)
        except ValueError:
            raise ScenarioError(f"--tcp {key}: expected a number, got {value!r}") from None
    scenario = {**_SMALLEST, "network": {"fidelity": "tcp", "tcp": given}}
    return Tcp(**from_mapping(scenario).network.tcp.model_dump())


_SMALLEST = {
    "name": "replay",
    "rounds": 1,
    "nodes": {"clusters": [2]},
    "algorithm": {"name": "el"},
    "model": {"name": "mlp"},
    "data": {"name": "fashion-mnist-mini"},
    "training": {"learning_rate": 0.1},
    "topology": {"name": "ring"},
}
"""A scenario around a section that is to be checked."""
