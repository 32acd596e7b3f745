"""What a user sees when something goes wrong, and the exit code that a script sees."""

import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path

import typer
from typer.core import TyperGroup

from ddlsim.foundation.errors import DdlsimError, ScenarioError
from ddlsim.foundation.interrupts import interruptible

FAILED = 1
RUNS_FAILED = 5
"""Some of several runs have failed; the others are there."""
INTERRUPTED = 130


class Commands(TyperGroup):
    """Runs a command and turns what it raises into one message on stderr and an exit code."""

    def invoke(self, ctx):
        _open_closed_streams()
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
        except BrokenPipeError:  # the reader of our output has gone, e.g. `| head`; a run is over by then, see Progress
            _drop_output()
            raise typer.Exit(0) from None
        except Exception as error:
            if _is_click(error):
                raise
            _tell_unexpected(error, bool(ctx.params.get("verbose")))
            raise typer.Exit(FAILED) from error


def say(text: str) -> None:
    """A line on standard error, which may be closed, full or a pipe that nothing reads."""
    with suppress(OSError, ValueError):
        typer.echo(text, err=True)


def _open_closed_streams() -> None:
    """Gives a process that was started without some of the standard streams (`2>&-`) the null device instead.

    Otherwise the next file that is opened, such as one with records, would get the stream's number, and what a library
    writes on standard error would end in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            if getattr(sys, name) is None:
                setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))


def _drop_output() -> None:
    """What is left in the buffers goes to the null device, so that Python's end does not fail on it once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # tests put streams without a number in their place
            os.dup2(null, stream.fileno())
    os.close(null)


def message_of(error: DdlsimError) -> str:
    """A user error's text, with the line of the user's own file that it came through in a run; the problems of a
    scenario are counted at its end.
    """
    problems = getattr(error, "problems", None)
    if not problems:
        place = None if isinstance(error, ScenarioError) else _own_line(error)
        return f"{place.split(': ')[0]}: {error}" if place else str(error)
    count = f"{len(problems)} error" + ("s" if len(problems) > 1 else "")
    return f"{error}\n{count}; nothing was run."


def _own_line(error: Exception) -> str | None:
    """What was raised, with its line in a file that a scenario names; None: it has nothing to do with one."""
    own_code = sys.modules.get("ddlsim.foundation.own_code")
    return own_code.user_frame(error) if own_code else None


def _is_click(error: Exception) -> bool:
    """Whether click means this one for itself: usage errors, exit, abort."""
    return any(cls.__module__.split(".")[0] in ("click", "typer") for cls in type(error).__mro__)


def _is_memory(error: Exception) -> bool:
    """Whether Python, numpy or torch, on the host or on a device, found no memory."""
    torch_says = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or torch_says


def _tell_unexpected(error: Exception, verbose: bool) -> None:
    """One line on the screen; the traceback goes to the run's log.txt, and to stderr with -v."""
    text = "".join(traceback.format_exception(error))
    directory = getattr(error, "run_dir", None)
    if verbose:
        say(text)
    line = _own_line(error) or f"{type(error).__name__}: {error}".splitlines()[0]
    if _is_memory(error):
        line = f"not enough memory; fewer nodes, a smaller model or smaller batches need less ({line:.200})"
    log = _log(directory, text)
    if log:
        say(f"The run failed: {line} (traceback in {log})")
    elif verbose:
        say(f"Failed: {line}")
    else:
        say(f"Failed: {line} (`ddlsim -v ...` shows the traceback)")


def _log(directory: str | Path | None, text: str) -> Path | None:
    """Adds a traceback to the log of a run, and says where it is; None if there is no such place or no room in it."""
    if not directory or not Path(directory).is_dir():
        return None
    log = Path(directory) / "log.txt"
    try:
        with log.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return None
    return log
