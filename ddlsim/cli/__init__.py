"""The command line. Each command imports what it needs when it runs, so that --help, check and list start at once.

stdout carries the result and nothing else, stderr progress and messages. Exit codes: 0 done, 1 the run failed, 2 usage
or scenario (nothing was run), 3 data or a part of the environment is missing, 5 some of several runs failed, 130
interrupted.
"""

import gc
import sys
from typing import Annotated

import typer

from ddlsim.cli import check, compare, data, doctor, listing, network, report, reproduce, run, sweep
from ddlsim.cli.calibrate import calibrate
from ddlsim.cli.exits import Commands
from ddlsim.cli.report import LiveCommand

YOUNG_OBJECTS = 50_000
"""New objects between two searches for cycles: nearly all objects of imports and scenarios live until the end."""

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes longer to import than the rest of --help
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Discrete-event simulator of decentralized deep learning: real training, simulated time and network.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from ddlsim import __version__

        typer.echo(f"ddlsim {__version__}")
        raise typer.Exit


@app.callback()
def main_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show tracebacks of unexpected errors.")] = False,
) -> None:
    """Options of all commands; Commands.invoke reads them and turns errors into messages and exit codes."""


RUNS = (run.run, run.resume, sweep.sweep, reproduce.reproduce)
RECORDS = (report.report, compare.compare, report.export)
SCENARIOS = (check.check, check.schema, check.new, calibrate, doctor.doctor)
for command in (*RUNS, *RECORDS, *SCENARIOS):
    app.command(cls=LiveCommand)(command)
app.command("list", cls=LiveCommand)(listing.list_names)
app.command(cls=LiveCommand)(listing.show)
app.add_typer(data.app, name="data")
app.add_typer(network.app, name="network")


def main() -> None:
    """The console script."""
    from ddlsim.foundation.interrupts import ignore_signals

    gc.set_threshold(YOUNG_OBJECTS)
    try:
        app()
    finally:  # everything is written; a signal now would only change the exit code
        ignore_signals()
        # Python would search all objects for cycles at its end. Triton, which torch imports for torchvision and for
        # compiled models, would report objects that are not searched as leaks.
        if "triton" not in sys.modules:
            gc.freeze()
