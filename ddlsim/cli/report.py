"""ddlsim report: one run in depth, as text, as one HTML file or as figures; and its page while it goes on."""

from collections import Counter
from contextlib import nullcontext, suppress
from os.path import commonpath
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from ddlsim.cli.compare import Runs
from ddlsim.cli.exits import FAILED, say
from ddlsim.cli.live import Live, LiveCommand, live_server, page_of
from ddlsim.foundation.errors import DdlsimError, RecordsDamaged, ScenarioError


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(cls=LiveCommand)(report)


def report(
    runs: Runs,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write one run as one HTML file, which needs nothing else.")
    ] = None,
    open_it: Annotated[
        bool, typer.Option("--open", help="Show that file in the browser; without -o it is RUN/report.html.")
    ] = False,
    plots: Annotated[Path | None, typer.Option(help="Folder for figures, one below it per run.")] = None,
    live: Live = None,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Import code that the run's scenario names, to show the defaults of its keys."),
    ] = False,
) -> None:
    """Show each run in depth: accuracy over rounds, fairness, bytes, heads, published numbers and ours."""
    if output or open_it or live is not None:
        run = _one(runs)
        if output or open_it:
            _as_page(run, output, open_it, trust)
        if live is not None:
            _serve(run, live)
    else:
        _as_text(runs, plots)
        return
    if plots:
        _plots(runs, plots, [])


def _one(runs: list[Path]) -> Path:
    """The one run that is meant."""
    from ddlsim.report.reading import find_runs

    found = find_runs(runs)
    if len(found) > 1:
        raise ScenarioError(
            f"A page shows one run; expected one, got {len(found)} ({found[0]}, {found[1]}"
            f"{', ...' if len(found) > 2 else ''}). `ddlsim compare RUNS -o FILE` shows several side by side."
        )
    return found[0]


def _as_page(run: Path, output: Path | None, open_it: bool, trust: bool) -> None:
    """One run as an HTML file, whose path is printed."""
    from ddlsim.report.html import write

    path = write(page_of(run, trust), output or run / "report.html")
    typer.echo(path)
    if open_it:
        typer.launch(str(path.resolve()))


def _serve(run: Path, port: int) -> None:
    """The page of a run, which another process may be writing, until Ctrl-C."""
    server = live_server(port)
    server.show(run)
    try:
        Event().wait()
    finally:
        server.close()


def _as_text(runs: list[Path], plots: Path | None) -> None:
    """All runs on the console, and their figures."""
    from ddlsim.report import report
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
    """Figures of each run in a folder of its own; of those that are damaged it has been told already."""
    from ddlsim.report.run_report import save_plots

    for run, below in _folders(runs).items():
        with suppress(RecordsDamaged) if damaged else nullcontext():
            for path in save_plots(run, plots / below):
                typer.echo(path)


def _folders(runs: list[Path]) -> dict[Path, Path]:
    """Each run with the folder of its figures: its path below what was given, or, where others have the same one, below
    the folder that all of these lie in.
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
