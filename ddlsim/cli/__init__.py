"""The command line. Each command imports what it needs when it runs, so that --help, check and list start at once.

stdout carries the result and nothing else, stderr progress and messages. Exit codes: 0 done, 1 the run failed, 2 usage
or scenario (nothing was run), 3 data or a part of the environment is missing, 5 some of several runs failed, 130
interrupted.
"""

import gc
import sys
from typing import Annotated

import typer

from ddlsim.cli import (
    calibrate,
    check,
    compare,
    data,
    doctor,
    export,
    listing,
    network,
    new,
    report,
    reproduce,
    resume,
    run,
    sweep,
)
from ddlsim.cli.exits import Commands

YOUNG_OBJECTS = 50_000
"""New objects between two searches for cycles: nearly all that imports and scenarios make stays until the end."""

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
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Show the traceback of an unexpected error.")
    ] = False,
) -> None:
    """Read by Commands.invoke: whatever a command raises is turned into a message and an exit code there."""


PARTS = (run, resume, sweep, reproduce, check, new, listing, report, compare, export, data, network, calibrate, doctor)
for module in PARTS:
    module.register(app)


def main() -> None:
    """The console script."""
    from ddlsim.foundation.interrupts import ignore_signals

    gc.set_threshold(YOUNG_OBJECTS)
    try:
        app()
    finally:  # everything is written; a signal during the end of Python would only spoil the exit code
        ignore_signals()
        # At its end Python would search all objects of the run for cycles. Triton, which torch imports for torchvision
        # and for compiled models, prints that what the search then does not free has leaked.
        if "triton" not in sys.modules:
            gc.freeze()
