"""Error messages and exit codes of the command line."""

import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from ddlsim.foundation import own_code
from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.foundation.interrupts import interruptible

FAILED = 1
RUNS_FAILED = 5
"""Some of several runs have failed; the others are complete."""
INTERRUPTED = 130


class Commands(TyperGroup):
    """Runs a command, and turns its error into one message on standard error and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with interruptible():
                found = super().invoke(ctx)
                sys.stdout.flush()
                return found
        except DdlsimError as error:
            say(message_of(error))
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt:
            say("Interrupted.")
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            modules = {cls.__module__.split(".")[0] for cls in type(error).__mro__}
            if isinstance(error, BrokenPipeError) or modules & {"click", "typer"}:
                raise  # a reader that closed the pipe, a usage error, an exit or an abort, which typer handles
            _report_unexpected(error, bool(ctx.params.get("verbose")))
            raise typer.Exit(FAILED) from error


def say(text: str) -> None:
    """Print a line on standard error, which may be closed, full or a pipe without a reader."""
    with suppress(OSError, ValueError):
        typer.echo(text, err=True)


def end_with_failures(failures: Sequence[tuple[str, str]], total: int, code: int = RUNS_FAILED) -> None:
    """List the failed runs with their causes, if any, and exit with a code."""
    if failures:
        say(f"{len(failures)} of {total} runs failed:")
        for name, cause in failures:
            say(f"  {name}: {cause}")
        raise typer.Exit(code)


def end_with_damage(errors: Sequence[DdlsimError]) -> None:
    """List the damaged runs that were left out, if any, and exit with code 1."""
    for text in dict.fromkeys(map(str, errors)):
        say(f"!! left out: {text}")
    if errors:
        raise typer.Exit(FAILED)


def message_of(error: DdlsimError) -> str:
    """Return the text of a user error, with the line of the user's code or the number of problems of a scenario."""
    problems = getattr(error, "problems", None)
    if problems:
        return f"{error}\n{len(problems)} error{'s' * (len(problems) > 1)}; nothing was run."
    place = None if isinstance(error, ScenarioError) else own_code.user_frame(error)
    return f"{place.split(': ')[0]}: {error}" if place else str(error)


def _report_unexpected(error: Exception, verbose: bool) -> None:
    """Print one line; the traceback is added to the run's log.txt, and printed with -v."""
    text = "".join(traceback.format_exception(error))
    if verbose:
        say(text)
    line = own_code.user_frame(error) or f"{type(error).__name__}: {error}".splitlines()[0]
    kind = type(error).__name__
    if kind in ("MemoryError", "_ArrayMemoryError", "OutOfMemoryError") or "can't allocate memory" in str(error):
        line = f"not enough memory; fewer nodes, a smaller model or smaller batches need less ({line:.200})"
    with suppress(OSError, AttributeError):
        log = Path(error.run_dir) / "log.txt"  # type: ignore[attr-defined]  # set by runs/finalize.py
        with log.open("a", encoding="utf-8") as file:
            file.write(text)
        say(f"The run failed: {line} (traceback in {log})")
        return
    say(f"Failed: {line}" if verbose else f"Failed: {line} (`ddlsim -v ...` shows the traceback)")
