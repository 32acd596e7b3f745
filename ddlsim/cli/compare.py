"""ddlsim compare: several runs in a table, a figure and one HTML page."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ddlsim.cli.exits import end_with_damage, say
from ddlsim.foundation.errors import DdlsimError, ScenarioError

Runs = Annotated[list[Path], typer.Argument(help="Run directories, or folders with runs below them.", metavar="RUN...")]


def compare(
    context: typer.Context,
    runs: Runs,
    format: Annotated[
        Literal["text", "csv", "markdown", "latex", "siunitx", "json"], typer.Option(help="Of the table.")
    ] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    group_by: Annotated[
        str | None,
        typer.Option(metavar="KEY,...", help="Keys that make rows and lines; by default all in which runs differ."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Columns of the table: accuracy, target_bytes, target_time, ..."),
    ] = None,
    units: Annotated[str, typer.Option(metavar="UNIT,...", help="Units of the table, such as GB,s.")] = "",
    at: Annotated[float | None, typer.Option(help="Show the cost of reaching this value, such as 0.7.")] = None,
    y: Annotated[
        str | None,
        typer.Option(
            "--y", help="Metric of lines and of --at: accuracy, mse, worst_cluster, fair_accuracy, cluster_0, ..."
        ),
    ] = None,
    x: Annotated[Literal["bytes", "time", "rounds", "joules"], typer.Option("--x", help="Axis of lines.")] = "time",
    band: Annotated[
        Literal["std", "ci", "none"], typer.Option(help="Around a line: one deviation over seeds, or 95 % confidence.")
    ] = "std",
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write one self-contained HTML file.")] = None,
    open_it: Annotated[
        bool, typer.Option("--open", help="Show that file, or comparison.html, in the browser.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="File for a figure (png, pdf, svg).")] = None,
    figure: Annotated[
        Literal["lines", "costs", "sweep"],
        typer.Option(help="A line per setting; bars of the cost to the target; quality over a setting (--over)."),
    ] = "lines",
    over: Annotated[str, typer.Option(help="Of a sweep, the setting's dotted key.")] = "algorithm.tau",
) -> None:
    """Compare runs, with the seeds of one setting in one row and one line."""
    from ddlsim.report.comparing.curves import Drawn
    from ddlsim.report.comparing.rows import compared
    from ddlsim.report.comparing.tables import table_of
    from ddlsim.report.summary import read_all
    from ddlsim.report.text import printable, terminal_width

    page = output is not None or open_it
    drawing = page or plot is not None
    effects = {"x": drawing, "band": drawing, "y": drawing or at is not None, "figure": plot, "over": plot}
    for option, used in effects.items():
        source = context.get_parameter_source(option)
        if not used and source is not None and source.name == "COMMANDLINE":
            raise ScenarioError(f"--{option}: has no effect on a table. Add --plot FILE.")
    keys, names = (None if text is None else _listed(text) for text in (group_by, columns))
    damaged: list[DdlsimError] = []
    drawn, found = Drawn(x, y, keys, band, at), list(read_all(runs, damaged.append))
    layout: dict[str, Any] = {"columns": names, "units": _listed(units), "width": terminal_width()}
    text = table_of(
        compared(found, keys, drawn.target), "json" if as_json else format, keys is not None, keys, **layout
    )
    if text:
        typer.echo(printable(text).rstrip("\n"))
    if page:
        from ddlsim.report.html.page import comparison_page, write

        path = write(comparison_page(found, drawn, damaged), output or Path("comparison.html"))
        say(f"{path}: the comparison as a page")
        if open_it:
            typer.launch(str(path.resolve()))
    if plot and found:
        from ddlsim.report.comparing.figures import save_comparison

        for note in save_comparison(found, plot, figure, over, drawn):
            say(f"{plot}: {note}")
    end_with_damage(damaged)


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
