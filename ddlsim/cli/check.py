"""ddlsim check and ddlsim schema: scenarios without data."""

import json
from typing import Annotated

import typer

from ddlsim.cli.exits import message_of
from ddlsim.cli.run import Overrides
from ddlsim.errors import ScenarioError


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(check)
    app.command()(schema)


def check(
    scenarios: Annotated[list[str], typer.Argument(help="Scenario files, or names.", metavar="SCENARIO...")],
    overrides: Overrides = [],  # noqa: B006
) -> None:
    """Check scenarios without touching data; every error at once."""
    from ddlsim.scenario import digest, load

    failed = False
    for path in scenarios:
        try:
            scenario = load(path, overrides)
        except ScenarioError as error:
            typer.echo(message_of(error), err=True)
            failed = True
        else:
            fallback = ", with a fallback" if scenario.fallback is not None else ""
            typer.echo(
                f"{path}: ok. {scenario.name}: {scenario.algorithm_name} on {scenario.data_name}, "
                f"{scenario.nodes.count} nodes, {scenario.rounds} rounds{fallback} [{digest(scenario)}]"
            )
    if failed:
        raise typer.Exit(ScenarioError.exit_code)


def schema() -> None:
    """Print the JSON Schema of scenario files, for editors."""
    from ddlsim.scenario import json_schema

    typer.echo(json.dumps(json_schema(), indent=1))
