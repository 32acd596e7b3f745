"""ddlsim report and ddlsim compare: what runs achieved."""

from contextlib import nullcontext, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ddlsim.cli.exits import FAILED
from ddlsim.errors import DdlsimError, RecordsDamaged, ScenarioError

Runs = Annotated[list[Path], typer.Argument(help="Run directories, or folders with runs below them.", metavar="RUN...")]


class Format(StrEnum):
    """How a comparison is printed."""

    table = "table"
    md = "md"
    csv = "csv"
    json = "json"


class Figure(StrEnum):
    """What a figure of several runs shows."""

    quality = "quality"
    merges = "merges"
    sweep = "sweep"
    fair = "fair"


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command()(report)
    app.command()(compare)


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


def compare(
    runs: Runs,
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.table,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    plot: Annotated[Path | None, typer.Option(help="File for a figure.")] = None,
    figure: Annotated[
        Figure,
        typer.Option(
            help="quality: over time, and bytes by cause; merges: accuracy before and after each merge, a "
            "panel per run; sweep: quality over the values of a setting; fair: fair accuracy over rounds."
        ),
    ] = Figure.quality,
    over: Annotated[str, typer.Option(help="Of a sweep, the setting's dotted key.")] = "algorithm.tau",
) -> None:
    """Show runs side by side, seeds of one setting in one row."""
    from ddlsim.report import compare
    from ddlsim.report.text import printable

    damaged: list[DdlsimError] = []
    text = compare(runs, "json" if as_json else format.value, damaged.append)
    if text:
        typer.echo(printable(text).rstrip("\n"))
    _tell(damaged)
    if plot:
        from ddlsim.report.side_by_side import save_comparison

        save_comparison(runs, plot, figure.value, over)
    if damaged:
        raise typer.Exit(FAILED)


def _tell(damaged: list[DdlsimError]) -> None:
    """A line for each run that was left out."""
    for error in damaged:
        typer.echo(f"!! left out: {error}", err=True)
