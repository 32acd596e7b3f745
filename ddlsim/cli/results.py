"""ddlsim report: what a run achieved."""

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated

import typer

from ddlsim.cli.compare import Runs
from ddlsim.cli.exits import FAILED
from ddlsim.errors import DdlsimError, RecordsDamaged, ScenarioError


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command()(report)


def report(
    runs: Runs,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one run as one HTML file, which needs nothing else.")
    ] = None,
    open_it: Annotated[
        bool, typer.Option("--open", help="Show that file in the browser; without -o it is RUN/report.html.")
    ] = False,
    plots: Annotated[Path | None, typer.Option(help="Folder for figures, one below it per run.")] = None,
) -> None:
    """Show each run in depth: accuracy over rounds, fairness, bytes, heads, published numbers beside ours."""
    if not output and not open_it:
        _as_text(runs, plots)
        return
    _as_page(runs, output, open_it)
    if plots:
        _plots(runs, plots, [])


def _as_page(runs: list[Path], output: Path | None, open_it: bool) -> None:
    """One run as an HTML file, whose path is printed."""
    from ddlsim.cli.context import with_context
    from ddlsim.report.html import run_page, write
    from ddlsim.report.records import find_runs, read

    found = find_runs(runs)
    if len(found) > 1:
        raise ScenarioError(
            f"-o: expected one run, got {len(found)} ({found[0]}, {found[1]}{', ...' if len(found) > 2 else ''}). "
            "Name one of them; `ddlsim compare RUN... -o FILE.html` shows several side by side."
        )
    path = write(run_page(*with_context(read(found[0]))), output or found[0] / "report.html")
    typer.echo(path)
    if open_it:
        typer.launch(str(path.resolve()))


def _as_text(runs: list[Path], plots: Path | None) -> None:
    """All runs on the console, and their figures."""
    from ddlsim.report import report
    from ddlsim.report.text import printable

    damaged: list[DdlsimError] = []
    typer.echo(printable(report(runs, damaged.append)), nl=False)
    _tell(damaged)
    if plots:
        _plots(runs, plots, damaged)
    if damaged:
        raise typer.Exit(FAILED)


def _plots(runs: list[Path], plots: Path, damaged: list[DdlsimError]) -> None:
    """Figures of each run in a folder of its own; of those that are damaged it has been told already."""
    from ddlsim.report.plots import save_plots
    from ddlsim.report.records import find_runs

    for given in runs:
        for run in find_runs([given]):
            below = run.name if run == given else run.relative_to(given)
            with suppress(RecordsDamaged) if damaged else nullcontext():
                for path in save_plots(run, plots / below):
                    typer.echo(path)


def _tell(damaged: list[DdlsimError]) -> None:
    """A line for each run that was left out."""
    for error in damaged:
        typer.echo(f"!! left out: {error}", err=True)
