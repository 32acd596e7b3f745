"""--live [PORT]: the report of a run as a page that follows it, only for this machine."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

if TYPE_CHECKING:
    from ddlsim.report.html import Page
    from ddlsim.report.html.live import LiveServer

OPTION = "--live"
ANY_PORT = -1
Live = Annotated[
    int | None,
    typer.Option(
        OPTION,
        metavar="[PORT]",
        min=ANY_PORT,
        max=65535,
        help="Serve the report while the run goes on, to browsers of this machine alone; 8484, or a free port.",
    ),
]


class LiveCommand(TyperCommand):
    """A command whose option --live may have no port."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_port(args))


def with_port(args: Sequence[str]) -> list[str]:
    """Add a port to every --live that has none."""
    found: list[str] = []
    for word, following in zip(args, [*args[1:], ""], strict=False):
        found.append(f"{OPTION}={ANY_PORT}" if word == OPTION and not following.isdigit() else word)
    return found


def live_server(port: int) -> "LiveServer":
    """Start a server, and print its address on standard error.

    Raises:
        ScenarioError: if the port is taken.
    """
    from ddlsim.report.html.live import LiveServer

    server = LiveServer(page_of, None if port == ANY_PORT else port)
    typer.echo(f"Live report: {server.address} (this machine alone)", err=True)
    return server


def page_of(directory: Path, trust: bool = False) -> "Page":
    """Return the page of a run directory, see `with_context`."""
    from ddlsim.cli.context import with_context
    from ddlsim.report.html import run_page
    from ddlsim.report.reading import read

    return run_page(*with_context(read(directory), trust))
