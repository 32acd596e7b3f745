"""ddlsim report: one run in depth, as text, as figures or as one HTML file, which --live updates during the run."""

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from os.path import commonpath
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ddlsim.cli.compare import Runs
from ddlsim.cli.exits import FAILED, say
from ddlsim.foundation.errors import DdlsimError, RecordsDamaged, ScenarioError

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
        help="Serve the report during the run, to this machine alone; 8484, or a free port.",
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


def report(
    runs: Runs,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write one self-contained HTML file.")] = None,
    open_it: Annotated[
        bool, typer.Option("--open", help="Show that file, or RUN/report.html, in the browser.")
    ] = False,
    plots: Annotated[Path | None, typer.Option(help="Folder for figures, with a folder per run.")] = None,
    live: Live = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Import the run's code, for the defaults of its keys.")
    ] = False,
) -> None:
    """Show each run in depth: accuracy over rounds, fairness, bytes, heads, and published numbers with ours."""
    if output is None and not open_it and live is None:
        _as_text(runs, plots)
        return
    run = _one(runs)
    if output or open_it:
        _as_page(run, output, open_it, trust)
    if live is not None:
        _serve(run, live)
    if plots:
        _plots(runs, plots, [])


def _one(runs: list[Path]) -> Path:
    """Return the only run."""
    from ddlsim.report.reading import find_runs

    found = find_runs(runs)
    if len(found) > 1:
        raise ScenarioError(f"A page shows one run, got {len(found)}. `ddlsim compare RUNS -o FILE` shows several.")
    return found[0]


def _as_page(run: Path, output: Path | None, open_it: bool, trust: bool) -> None:
    """Write one run as an HTML file, and print the path."""
    from ddlsim.report.html import write

    path = write(page_of(run, trust), output or run / "report.html")
    typer.echo(path)
    if open_it:
        typer.launch(str(path.resolve()))


def _serve(run: Path, port: int) -> None:
    """Serve the page of a run, which another process may write, until Ctrl-C."""
    server = live_server(port)
    server.show(run)
    try:
        Event().wait()
    finally:
        server.close()


def _as_text(runs: list[Path], plots: Path | None) -> None:
    """Print all runs, and save their figures."""
    from ddlsim.report.run_report import report
    from ddlsim.report.text import printable

    damaged: list[DdlsimError] = []
    typer.echo(printable(report(runs, damaged.append)), nl=False)
    for error in damaged:
        say(f"!! left out: {error}")
    if plots:
        _plots(runs, plots, damaged)
    if damaged:
        raise typer.Exit(FAILED)


def _plots(runs: list[Path], plots: Path, damaged: list[DdlsimError]) -> None:
    """Save the figures of each run in a separate folder; damaged runs were reported before."""
    from ddlsim.report.run_report import save_plots

    for run, below in _folders(runs).items():
        with suppress(RecordsDamaged) if damaged else nullcontext():
            for path in save_plots(run, plots / below):
                typer.echo(path)


def _folders(runs: list[Path]) -> dict[Path, Path]:
    """Return the folder of the figures of each run: its path below the argument.

    Runs with equal paths get their paths below the common folder of these runs.
    """
    from ddlsim.report.reading import find_runs

    found: dict[Path, Path] = {}
    for given in runs:
        for run in find_runs([given]):
            found.setdefault(run, Path(run.name) if run == given else run.relative_to(given))
    times = Counter(found.values())
    alike = [run.resolve() for run, below in found.items() if times[below] > 1]
    if alike:
        common = Path(commonpath(alike))
        found = {run: below if times[below] == 1 else run.resolve().relative_to(common) for run, below in found.items()}
    return found
